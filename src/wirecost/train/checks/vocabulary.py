"""Refuses workloads whose vocabulary doesn't hold the token ids of a prepared corpus."""

from __future__ import annotations

from wirecost.corpus.prepared import CorpusVocabulary
from wirecost.spec import Family, Workload
from wirecost.spec.workload import SPECIAL_TOKENS
from wirecost.train.texts import SENTINELS

SPECIAL_NAMES = {
    Family.GPT: (),
    Family.BERT: ("[CLS]", "[SEP]", "[MASK]"),
    Family.T5: ("<pad>", *(f"<extra_id_{n}>" for n in range(SENTINELS))),
}
"""The special tokens that a family needs. Without them, the ids behind those of the text are used."""


def check_vocabulary(workload: Workload, vocabulary: CorpusVocabulary) -> str | None:
    """Returns why a workload can't be trained on a corpus, or None if it can."""
    special = vocabulary.special or {}
    own = all(name in special for name in SPECIAL_NAMES[workload.family])
    needed = vocabulary.size + (0 if own else SPECIAL_TOKENS[workload.family])
    if needed <= workload.vocab_size:
        return None
    return (
        f"its token ids need a vocab_size of at least {needed}, and workload '{workload.name}' has "
        f"{workload.vocab_size}; set vocab_size: {-(-needed // 128) * 128}, or prepare it with a smaller "
        "tokenizer (--tokenizer bpe --vocab-size N)"
    )
