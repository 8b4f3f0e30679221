"""Training text: token files made without a download, and corpora that `wirecost data prepare` wrote."""

from wirecost.corpus.prepared import PreparedCorpus, Windows, is_prepared, load_windows
from wirecost.corpus.tokens import load_text, load_tokens, prepare_tokens

__all__ = [
    "PreparedCorpus", "Windows", "is_prepared", "load_text", "load_tokens", "load_windows", "prepare_tokens",
]  # fmt: skip
