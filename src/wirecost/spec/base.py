"""The base class of all specifications: strict, immutable, and with errors that name the key and what is
allowed."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from wirecost.errors import deprecated, one_of


class Spec(BaseModel):
    """Plain validated data. The error for an unknown key names the nearest known one."""

    # Models are built when they are first used, because a command needs only some of them.
    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=True, allow_inf_nan=False, defer_build=True
    )
    deprecated_keys: ClassVar[dict[str, str]] = {}
    """Former names of keys in users' files, each with the present name. They are accepted with a warning."""
    former_keys: ClassVar[dict[str, str]] = {}
    """Former names of keys in files that wirecost writes, each with the present name. They are accepted."""

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
