"""What a store says that can't be used, and of results that it leaves out."""

from __future__ import annotations

from wirecost.errors import WirecostError


class DamagedResultWarning(UserWarning):
    """Warns of a result that is left out because it is damaged."""


class StoreError(WirecostError):
    """Raised for a store that can't be used as requested."""
