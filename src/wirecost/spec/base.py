"""What every specification shares: strict, frozen, with refusals that name the key and what is allowed."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from wirecost.errors import one_of


class Spec(BaseModel):
    """Plain validated data. Unknown keys are refused with the nearest known one."""

    # Built when first used: a command that needs three specifications should not wait for all of them.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, allow_inf_nan=False, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    raise ValueError(one_of("key", key, cls.model_fields))
        return data
