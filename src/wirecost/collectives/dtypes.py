"""Element types with their names in nccl-tests and PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from wirecost.errors import SpecError, one_of


@dataclass(frozen=True)
class DType:
    """An element type.

    Every integer up to `exact_to` is representable, so that sums below it are exact in any order. `nccl` is the
    number in ncclDataType_t (nccl.h), `mpi` the name in mpi4py; MPI has no name for the short floats.
    """

    name: str
    torch: str
    item_bytes: int
    exact_to: int
    nccl: int
    mpi: str | None = None


DTYPES = {
    d.name: d
    for d in (
        DType("int8", "int8", 1, 2**7 - 1, 0, "INT8_T"),
        DType("uint8", "uint8", 1, 2**8 - 1, 1, "UINT8_T"),
        DType("int32", "int32", 4, 2**31 - 1, 2, "INT32_T"),
        DType("int64", "int64", 8, 2**53, 4, "INT64_T"),
        DType("half", "float16", 2, 2**11, 6),
        DType("float", "float32", 4, 2**24, 7, "FLOAT"),
        DType("double", "float64", 8, 2**53, 8, "DOUBLE"),
        DType("bfloat16", "bfloat16", 2, 2**8, 9),
    )
}
ALIASES = {"fp32": "float", "fp64": "double", "fp16": "half", "bf16": "bfloat16"} | {
    d.torch: d.name for d in DTYPES.values()
}


def dtype_named(text: str) -> DType:
    """Returns the element type with a name. Raises SpecError for a type that no backend supports."""
    name = ALIASES.get(text.strip().lower(), text.strip().lower())
    if name not in DTYPES:
        raise SpecError(one_of("dtype", text, DTYPES))
    return DTYPES[name]
