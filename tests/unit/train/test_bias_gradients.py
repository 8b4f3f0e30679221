import pytest
import torch

from wirecost.train.parallel.tensor.biases import bias_gradient, summed_by_product


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_are_summed_by_a_product(dtype: torch.dtype) -> None:
    gradient = torch.randn(3, 40, 7, generator=torch.Generator().manual_seed(1)).to(dtype)
    exact = gradient.double().sum((0, 1))
    for summed in (bias_gradient(gradient), summed_by_product(gradient.flatten(0, 1))):
        assert summed.shape == (7,)
        assert summed.dtype is dtype
        torch.testing.assert_close(summed.double(), exact, rtol=0, atol=100 * torch.finfo(dtype).eps)
