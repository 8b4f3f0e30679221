"""The fused vocabulary loss against logits and cross-entropy of PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import wirecost.train.models.blocks as blocks
import wirecost.train.models.vocabulary as vocabulary
from wirecost.train.models.blocks import VocabularyLoss

TARGETS, HIDDEN, WORDS = (3, 7), 16, 40


def _loss_and_gradients(
    *, fused: bool, bias: bool, dtype: torch.dtype = torch.float32, scale: float = 1.0
) -> tuple[torch.Tensor, ...]:
    """The embedding is tied: its gradient has two parts."""
    torch.manual_seed(0)
    embedding = nn.Embedding(WORDS, HIDDEN)
    head = VocabularyLoss(embedding.weight, bias=bias)
    if head.bias is not None:
        nn.init.normal_(head.bias)
    head.fused = fused
    head.to(dtype)
    embedding.to(dtype)
    inputs, targets = torch.randint(0, WORDS, TARGETS), torch.randint(0, WORDS, TARGETS)
    hidden = torch.tanh(embedding(inputs))
    hidden.retain_grad()
    loss = head(hidden, targets)
    (loss * scale).backward()
    found = [loss.detach(), hidden.grad, embedding.weight.grad]
    if head.bias is not None:
        found.append(head.bias.grad)
    assert all(f is not None for f in found)
    return tuple(f / scale if number else f for number, f in enumerate(found) if f is not None)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_words_that_are_missing_change_nothing(fused: bool, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    padded = _loss_and_gradients(fused=fused, bias=bias)
    monkeypatch.setattr(vocabulary, "ALIGNMENT", 1)
    exact = _loss_and_gradients(fused=fused, bias=bias)
    assert [mine.shape for mine in padded] == [right.shape for right in exact]
    assert len(exact) == 3 + bias
    for mine, right in zip(padded, exact, strict=True):
        torch.testing.assert_close(mine, right)


@pytest.mark.parametrize(("words", "more"), [(50257, 47), (50304, 0), (30522, 6), (1, 63)])
def test_logits_are_of_whole_matrix_tiles(words: int, more: int) -> None:
    assert vocabulary.padding_for(words) == more
    weight = torch.ones(words, 2)
    logits = vocabulary.aligned_logits(torch.ones(3, 2), weight, None)
    assert logits.shape == (3, words + more)
    assert logits.shape[-1] % vocabulary.ALIGNMENT == 0
    assert int((logits == -torch.inf).sum()) == 3 * more


def test_backward_keeps_no_copy_of_the_weight() -> None:
    head = VocabularyLoss(nn.Parameter(torch.randn(WORDS, HIDDEN)))
    kept = set()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() and tensor.shape[-1] == HIDDEN:
            kept.add(tensor.data_ptr())
        return tensor

    hidden = [torch.randn(*TARGETS, HIDDEN) for _ in range(3)]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        losses = [head(x, torch.randint(0, WORDS, TARGETS)) for x in hidden]
    assert len(losses) == len(hidden)
    assert kept <= {head.weight.data_ptr(), *(x.data_ptr() for x in hidden)}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk_bytes", [4 * WORDS * 5, 2**29])
def test_fused_is_plain(bias: bool, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "CHUNK_BYTES", chunk_bytes)
    fused, plain = _loss_and_gradients(fused=True, bias=bias), _loss_and_gradients(fused=False, bias=bias)
    assert len(fused) == len(plain) == 3 + bias
    for mine, right in zip(fused, plain, strict=True):
        torch.testing.assert_close(mine, right)


def test_sixteen_bits_lose_nothing_more_than_plain_does() -> None:
    exact = _loss_and_gradients(fused=False, bias=True)
    assert len(exact) == 4
    for dtype, scale in ((torch.bfloat16, 1.0), (torch.float16, 1024.0)):
        fused = _loss_and_gradients(fused=True, bias=True, dtype=dtype, scale=scale)
        plain = _loss_and_gradients(fused=False, bias=True, dtype=dtype, scale=scale)
        for mine, theirs, right in zip(fused, plain, exact, strict=True):
            error, allowed = (mine.float() - right).norm(), (theirs.float() - right).norm()
            assert error <= 1.5 * allowed + 1e-6


def test_evaluation_makes_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    head = VocabularyLoss(nn.Parameter(torch.randn(WORDS, HIDDEN)))
    x, targets = torch.randn(*TARGETS, HIDDEN), torch.randint(0, WORDS, TARGETS)
    with torch.no_grad():
        plain = head(x, targets)
        head.fused = True
        monkeypatch.setattr(blocks, "vocabulary_loss", None)
        assert torch.allclose(head(x, targets), plain, rtol=1.3e-6, atol=1e-5)


def test_the_operator_keeps_the_rules_of_operators() -> None:
    x, weight = torch.randn(6, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    results = torch.library.opcheck(
        vocabulary.vocabulary_loss, (x, weight, None, torch.randint(0, 5, (6,)), 2, False), test_utils=checks
    )
    assert results == dict.fromkeys(checks, "SUCCESS")


@pytest.mark.parametrize(("words", "chunk"), [(50304, 4096), (256, 2**20), (2**40, 1)])
def test_chunks_bound_the_logits(words: int, chunk: int) -> None:
    assert vocabulary.chunk_for(words) == chunk
