"""The values of a Hugging Face configuration, checked one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

LARGEST = 10**9
"""Largest accepted dimension of a model."""
LONGEST_DEFAULT_SEQUENCE = 8192
"""Default length of a sequence for models that can read more. Models are pretrained with 4,096 to 8,192 tokens and
extended afterwards (Llama 3, arXiv:2407.21783, section 3.4.2; DeepSeek-V3, arXiv:2412.19437, section 4.3)."""

Dimensions = dict[str, Any]
"""Keys of a workload with their values."""


class Config:
    """The values of a configuration. Its methods check a value and return it.

    Raises:
        ValueError: if a value is missing or invalid. The message is one line and names the key.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        where: str = "",
        read: set[str] | None = None,
        *,
        sequence_length: int | None = None,
    ) -> None:
        """Takes the values, and how messages name the mapping that holds them (`text_config.`).

        Args:
            read: the keys that were looked up so far, which grows with each look-up.
            sequence_length: length of a sequence in tokens where the values don't tell it.
        """
        self._data = data
        self._sequence_length = sequence_length
        self.where = where
        self._read: set[str] = set() if read is None else read
        self._parts: list[Config] = []

    def get(self, key: str) -> Any:
        """Returns the unchecked value under `key`, or None without it."""
        self._read.add(key)
        return self._data.get(key)

    def has(self, key: str) -> bool:
        """Returns whether `key` is there, whatever its value is."""
        self._read.add(key)
        return key in self._data

    def changed(self, **values: Any) -> Config:
        """Returns the configuration with other values under some keys. It shares the record of what was read."""
        changed = Config({**self._data, **values}, self.where, self._read, sequence_length=self._sequence_length)
        changed._parts = self._parts
        return changed

    def unread(self) -> Iterator[tuple[str, str, Any]]:
        """Yields each key that nobody looked up, also of the mappings that were read, with where it is and its
        value."""
        for key, value in self._data.items():
            if key not in self._read:
                yield self.where, key, value
        for part in self._parts:
            yield from part.unread()

    @property
    def kind(self) -> str:
        """The model type."""
        return str(self.get("model_type"))

    def whole(self, key: str, *others: str, default: int | None = None) -> int:
        """Returns the positive integer under `key` or one of its other names. null counts as missing."""
        present_key = next((k for k in (key, *others) if self.get(k) is not None), None)
        if present_key is None:
            if default is None:
                raise ValueError(f"{self.where}{key}: is missing")
            return default
        value = self.get(present_key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LARGEST:
            raise ValueError(
                f"{self.where}{present_key}: should be a whole number from 1 to {LARGEST}, not {shown(value)}"
            )
        return value

    def optional(self, key: str, *others: str) -> int | None:
        """Returns the positive integer under `key` or one of its other names, or None without it."""
        return self.whole(key, *others, default=0) or None

    def count(self, key: str) -> int:
        """Returns the integer under `key`, which may be 0. A missing value and null are 0."""
        value = self.get(key)
        return 0 if type(value) is int and value == 0 else self.whole(key, default=0)

    def number(self, key: str, *, default: float) -> float:
        """Returns the number under `key`, which isn't negative. null counts as missing."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST:
            raise ValueError(f"{self.where}{key}: should be a number from 0 to {LARGEST}, not {shown(value)}")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """Returns the boolean under `key`. null counts as missing."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(f"{self.where}{key}: should be true or false, not {shown(value)}")
        return value

    def only(self, key: str, *allowed: Any) -> Any:
        """Returns the value under `key`, which must be one of `allowed`. A missing value is the first of them."""
        value = self.get(key)
        if value is None:
            return allowed[0]
        # 1 == True, but they are different settings.
        if not any(type(value) is type(a) and value == a for a in allowed):
            raise ValueError(
                f"{self.where}{key}: {shown(value)} can't be described; only {' or '.join(map(shown, allowed))}"
            )
        return value

    def part(self, key: str) -> Config:
        """Returns the mapping under `key`. A missing value and null are an empty mapping."""
        value = self.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise ValueError(f"{self.where}{key}: should be a mapping, not {shown(value)}")
        self._parts.append(Config(value, f"{self.where}{key}."))
        return self._parts[-1]

    def items(self, key: str) -> list[Any]:
        """Returns the list under `key`. A missing value and null are an empty list."""
        value = self.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise ValueError(f"{self.where}{key}: should be a list, not {shown(value)}")
        return value

    def of_layers(self, key: str, layers: int, *allowed: Any) -> list[Any]:
        """Returns the items of the first `layers` layers of the list under `key`. Further items belong to modules
        that predict tokens. A missing value, null and an empty list are an empty list.

        Raises:
            ValueError: if the list has fewer items, or one of the first `layers` is none of `allowed`.
        """
        values = self.items(key)
        if values and len(values) < layers:
            raise ValueError(f"{self.where}{key}: has {len(values)} items, and the model has {layers} layers")
        for value in values[:layers]:
            if allowed and not any(type(value) is type(each) and value == each for each in allowed):
                raise ValueError(
                    f"{self.where}{key}: should hold {' or '.join(map(shown, allowed))} for each layer, not "
                    f"{shown(value)}"
                )
        return values[:layers]

    def sequence(self, *keys: str, default: int | None = None) -> int:
        """Returns the default length of a sequence for a model without learned positions: what the model can
        read, but at most `LONGEST_DEFAULT_SEQUENCE`."""
        if default is None and all(self.get(key) is None for key in keys):
            if self._sequence_length is None:
                raise ValueError(
                    f"{self.where}{keys[0]}: is missing, so the length of a sequence isn't known; say it, as in "
                    "{config: FILE, sequence_length: 2048} or `wirecost predict FILE --sequence-length 2048`"
                )
            return self._sequence_length
        return min(self.whole(*keys, default=default), LONGEST_DEFAULT_SEQUENCE)


class KeyNames(Config):
    """Records the keys that a reader looks up. Every number is 4 and every other value its default."""

    def __init__(self, kind: str) -> None:
        super().__init__({"model_type": kind})

    def names(self) -> set[str]:
        """Returns the keys that were looked up so far."""
        return self._read.union(*(part.names() for part in self._parts if isinstance(part, KeyNames)))

    def changed(self, **values: Any) -> Config:
        """Returns itself, because values don't matter."""
        return self

    def whole(self, key: str, *others: str, default: int | None = None) -> int:
        """Records the names and returns 4."""
        self._read |= {key, *others}
        return 4

    def sequence(self, *keys: str, default: int | None = None) -> int:
        """Records the names and returns 4."""
        return self.whole(*keys)

    def part(self, key: str) -> Config:
        """Records the name and returns a part that records too."""
        self._read.add(key)
        self._parts.append(KeyNames(self.kind))
        return self._parts[-1]


def shown(value: Any) -> str:
    """Returns a value for messages, shortened and in ASCII."""
    return ascii(value)[:60] if not isinstance(value, bool | None) else json.dumps(value)


def extended(dimensions: Dimensions, *, layer: int = 0, model: int = 0, notes: tuple[str, ...] = ()) -> Dimensions:
    """Returns dimensions with further parameters of each layer and of the model, and further approximations."""
    return {
        **dimensions,
        "extra_layer_parameters": dimensions.get("extra_layer_parameters", 0) + layer,
        "extra_parameters": dimensions.get("extra_parameters", 0) + model,
        "approximations": (*dimensions.get("approximations", ()), *notes),
    }


def with_norms(dimensions: Dimensions, *, layer: int, final: int = 1, biases: bool = False) -> Dimensions:
    """Returns dimensions whose extra parameters correct the norms: a workload has two of each layer and a final
    one.

    Args:
        layer: number of norms of a layer.
        final: number of norms outside the layers.
        biases: whether the norms have biases.
    """
    counted = 2 if dimensions.get("norm", "layernorm") == "layernorm" else 1
    each = (2 if biases else 1) * dimensions["hidden"]
    assumed = counted * dimensions["hidden"]
    return extended(dimensions, layer=layer * each - 2 * assumed, model=final * each - assumed)


def head_sizes(dimensions: Dimensions) -> tuple[int, int, int]:
    """Returns the size of a head, of all queries and of all keys. Fractions of a head are cut off."""
    heads = dimensions["heads"]
    size = dimensions.get("head_dim") or dimensions["hidden"] // heads
    return size, heads * size, (dimensions.get("kv_heads") or heads) * size


def with_attention_biases(dimensions: Dimensions, *, output: bool) -> Dimensions:
    """Returns dimensions with the parameters of biases of queries, keys and values, and with `output` of the
    projection of the heads' outputs."""
    _, queries, keys = head_sizes(dimensions)
    return extended(dimensions, layer=queries + 2 * keys + (dimensions["hidden"] if output else 0))


def with_window(c: Config, dimensions: Dimensions, *, full: int, key: str = "sliding_window") -> Dimensions:
    """Returns dimensions with the sliding window under `key`, if there is one, in all but `full` layers.

    The list `layer_types` counts the layers without a window if the configuration has one.
    """
    window = c.optional(key)
    types = c.items("layer_types")[: dimensions["layers"]]
    if types:
        full = sum(kind == "full_attention" for kind in types)
    if window is None or full >= dimensions["layers"]:
        return dimensions
    return {**dimensions, "sliding_window": window, "full_attention_layers": full}
