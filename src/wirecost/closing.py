"""Context managers that close themselves when their context is left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """A context manager whose context calls `close` when it is left."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def close(self) -> None:
        """Releases what the object holds."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
