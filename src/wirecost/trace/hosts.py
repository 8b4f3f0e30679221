"""What hosts do while their devices are idle, in words."""

from __future__ import annotations

from wirecost.trace.idle import IdleUse

_MOST = 0.5  # of the idle time
# Of these the host may be innocent.
DEVICE_KINDS = frozenset(("queued", "unseen"))


def host_words(use: IdleUse) -> tuple[str, str, str]:
    """Returns (code, continuation of a sentence that describes what the host does, what to try)."""
    total = use.loading_ns + use.synchronised_ns + use.launching_ns + use.queued_ns + use.unknown_ns
    if total and use.loading_ns >= _MOST * total:
        return (
            "data",
            f" ({use.loading_ns / total:.0%} of that in the data loader)",
            "give the data loader more workers (num_workers, prefetch_factor, persistent_workers), preprocess "
            "ahead, or read from quicker storage",
        )
    if total and use.synchronised_ns >= _MOST * total:
        return (
            "synchronise",
            f" ({use.synchronised_ns / total:.0%} of that after the host waited for the device)",
            "take .item(), .cpu(), nonzero() and synchronize() out of the step, or do them seldom",
        )
    if total and use.queued_ns >= _MOST * total:
        return (
            "queued",
            f" ({use.queued_ns / total:.0%} of that with the next kernel launched already)",
            "look for streams that wait for each other, events and blocking copies (--html, --perfetto)",
        )
    if not total or use.unknown_ns >= _MOST * total:
        return (
            "unseen",
            "",
            "record what the host does as well (ProfilerActivity.CPU, or nsys profile --trace=cuda,nvtx,osrt), "
            "and look for slow Python, data loading and synchronisation in the step (py-spy)",
        )
    launching = ""
    if total and use.launching_ns >= _MOST * total:
        launching = f" ({use.launching_ns / total:.0%} of that until the next kernel is launched)"
    return (
        "host",
        launching,
        "use torch.compile or CUDA graphs, raise the micro-batch, and look for slow Python and data loading in "
        "the step (py-spy)",
    )
