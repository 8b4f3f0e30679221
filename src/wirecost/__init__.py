"""wirecost: what the network costs in large language model training, why, and what would change it."""

from wirecost._version import __version__

__all__ = ["__version__"]
