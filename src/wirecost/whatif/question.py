"""What is changed in a job: a question."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wirecost.whatif.network import stated_network

_OTHERS = (
    "scale_communication", "bucket_mib", "overlap", "reshard_after_forward", "without_straggler", "like_rank",
    "faster_host",
)  # fmt: skip
"""The changes of a question but for the network."""


@dataclass(frozen=True)
class Question:
    """What is changed. Values that are left out stay as recorded.

    Attributes:
        network: a calibrated network, a cluster preset, a cluster's YAML file or a benchmark's JSON file.
        bandwidth_bps, latency_s: a stated network instead. Without a latency it has that of the recorded job.
        scale_communication: transfers are so many times as fast.
        bucket_mib: cap of DistributedDataParallel's buckets.
        overlap, reshard_after_forward: True or False.
        without_straggler: no rank has more to do than the fastest.
        like_rank: every rank has the load of this rank.
        faster_host: the host is so many times as fast.
    """

    network: str | None = None
    bandwidth_bps: float | None = None
    latency_s: float | None = None
    scale_communication: float | None = None
    bucket_mib: float | None = None
    overlap: bool | None = None
    reshard_after_forward: bool | None = None
    without_straggler: bool = False
    like_rank: int | None = None
    faster_host: float | None = None

    def each(self) -> list[Question]:
        """Returns this question and, if it holds several changes, each of them alone."""
        single: list[Question] = []
        if self.network is not None or self.bandwidth_bps is not None:
            single.append(
                Question(network=self.network, bandwidth_bps=self.bandwidth_bps, latency_s=self.latency_s)
            )
        nothing = Question()
        for name in _OTHERS:
            value = getattr(self, name)
            if value != getattr(nothing, name):
                single.append(replace(nothing, **{name: value}))
        return [self, *single] if len(single) > 1 else [self]

    @property
    def text(self) -> str:
        """The question in words."""
        words = []
        if self.network is not None:
            words.append(f"network {self.network}")
        if self.bandwidth_bps is not None:
            words.append(stated_network(self.bandwidth_bps, self.latency_s).name)
            if self.latency_s:
                words[-1] += f" and {self.latency_s * 1e6:g} us"
        if self.scale_communication is not None:
            words.append(f"communication {self.scale_communication:g} times as fast")
        if self.bucket_mib is not None:
            words.append(f"buckets of {self.bucket_mib:g} MiB")
        if self.overlap is not None:
            words.append(f"overlap {'on' if self.overlap else 'off'}")
        if self.reshard_after_forward is not None:
            words.append(f"reshard after forward {'on' if self.reshard_after_forward else 'off'}")
        if self.without_straggler:
            words.append("no straggler")
        if self.like_rank is not None:
            words.append(f"every rank like rank {self.like_rank}")
        if self.faster_host is not None:
            words.append(f"host {self.faster_host:g} times as fast")
        return ", ".join(words) or "as recorded"
