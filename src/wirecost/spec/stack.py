"""Stack: the software that trains, by the properties that decide how fast it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from wirecost.errors import one_of
from wirecost.spec.base import Spec, check_numbers
from wirecost.spec.provenance import Sourced
from wirecost.spec.stack_costs import (
    Accuracy,
    AttentionKernels,
    Costs,
    DataParallelCosts,
    HostCosts,
    IterationCosts,
    LayerKernels,
    MemoryCosts,
    PipelineCosts,
    Recomputation,
    TensorParallelCosts,
    VocabularyKernels,
)
from wirecost.spec.written_numbers import with_numbers


class Match(Spec):
    """When a table's row means this stack: every list that isn't empty must hold. Text is compared lower-case."""

    framework: tuple[str, ...] = ()
    """The row's framework contains one of these."""
    architecture: tuple[str, ...] = ()
    """The GPU's architecture is one of these."""
    sharding: tuple[str, ...] = ()
    """The row's sharding contains one of these."""
    features: tuple[str, ...] = ()
    """The row has one of these: `fused_attention` (it says so, or its model is younger than fused attention)."""


class Stack(Sourced):
    """Kernels, fusion, launch cost, overlap and state layout of a training framework.

    In YAML the keys of all records stand beside each other (`attention_efficiency`, `host_forward_s`, ...), and a
    stack is written like that. Times are in seconds.
    """

    description: str
    match: tuple[Match, ...] = ()
    """Rows of tables of measurements that mean this stack: those that meet one of these."""
    attention: AttentionKernels
    layer: LayerKernels
    host: HostCosts
    vocabulary: VocabularyKernels
    recomputation: Recomputation
    iteration: IterationCosts
    data_parallel: DataParallelCosts
    tensor_parallel: TensorParallelCosts
    pipeline: PipelineCosts
    memory: MemoryCosts
    accuracy: Accuracy

    former_keys = {"seen": "workload_corrections", "seen_spread": "workload_correction_spread"}
    INLINED: ClassVar[frozenset[str]] = frozenset()
    """Fields whose own keys stand in the YAML mapping of the stack."""

    @field_validator("match", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, dict | Match) else value

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, data: Any) -> Any:
        """Sorts flat keys into the records."""
        if not isinstance(data, dict) or any(isinstance(data.get(name), Costs) for name in RECORDS):
            return data
        own = [name for name in cls.model_fields if name not in RECORDS]
        sorted_: dict[str, Any] = {name: {} for name in RECORDS}
        for key, written in cls.with_present_keys(data).items():
            if key in PLACES:
                record, field = PLACES[key]
                value = with_numbers(RECORDS[record].model_fields[field].annotation, written)
                sorted_[record][key] = value
            elif key in own:
                value = with_numbers(cls.model_fields[key].annotation, written)
                sorted_[key] = value
            else:
                raise ValueError(one_of("key", key, [*own, *PLACES]))
            check_numbers(key, value)
        return sorted_

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        nested = handler(self)
        flat = {key: value for key, value in nested.items() if key not in RECORDS}
        for key, (record, field) in PLACES.items():
            if field in nested.get(record, {}):
                flat[key] = nested[record][field]
        return flat

    def value(self, key: str) -> Any:
        """Returns the value of a YAML key, like 'host_forward_s'."""
        if key not in PLACES:
            return getattr(self, key)
        record, field = PLACES[key]
        return getattr(getattr(self, record), field)

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """Returns the stack with other values of YAML keys. The values are not validated again.

        Raises:
            KeyError: for a key that a stack does not have.
        """
        records: dict[str, dict[str, Any]] = {}
        changes: dict[str, Any] = {}
        for key, value in values.items():
            if key in PLACES:
                record, field = PLACES[key]
                records.setdefault(record, {})[field] = value
            elif key in type(self).model_fields and key not in RECORDS:
                changes[key] = value
            else:
                raise KeyError(key)
        for record, update in records.items():
            changes[record] = getattr(self, record).model_copy(update=update)
        return self.model_copy(update=changes)


RECORDS: dict[str, type[Costs]] = {
    name: field.annotation
    for name, field in Stack.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Costs)
}
PLACES: dict[str, tuple[str, str]] = {
    key: (record, field) for record, costs in RECORDS.items() for key, field in costs.keys().items()
}
"""Record and field of each YAML key that is part of a record."""
Stack.INLINED = frozenset(RECORDS)
