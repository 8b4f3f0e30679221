"""Training text as token files, without a download."""

from wirecost.corpus.tokens import load_tokens, prepare_tokens

__all__ = ["load_tokens", "prepare_tokens"]
