"""What every specification shares: strict, frozen, with refusals that name the key and what is allowed."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from wirecost.errors import deprecated, one_of


class Spec(BaseModel):
    """Plain validated data. Unknown keys are refused with the nearest known one."""

    # Built when first used: a command that needs three specifications should not wait for all of them.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, allow_inf_nan=False, defer_build=True
    )
    deprecated_keys: ClassVar[dict[str, str]] = {}
    """Keys that people wrote before they were renamed, each with today's key; accepted with a warning."""
    former_keys: ClassVar[dict[str, str]] = {}
    """Keys that wirecost itself wrote before they were renamed, each with today's key."""

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for former, key in (*cls.deprecated_keys.items(), *cls.former_keys.items()):
                if former in data and key not in data:
                    data = {key if k == former else k: v for k, v in data.items()}
                    if former in cls.deprecated_keys:
                        deprecated(f"the key '{former}'", f"'{key}'")
            for key in data:
                if key not in cls.model_fields:
                    raise ValueError(one_of("key", key, cls.model_fields))
        return data
