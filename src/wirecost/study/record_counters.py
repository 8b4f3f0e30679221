"""Records network counters during a run: `counters.jsonl` in the experiment's directory, on the clock of the
samples.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wirecost.counters import CounterSource, Sampler, default_sources
from wirecost.counters.ethernet import SwitchSource
from wirecost.counters.jsonl import JsonlWriter
from wirecost.counters.nvml import nvml_source
from wirecost.counters.softirq import SoftirqSource
from wirecost.emulation.hosts import EmulatedHosts
from wirecost.errors import WirecostError
from wirecost.spec import Device
from wirecost.storage import StorageError

COUNTERS = "counters.jsonl"
EVERY_NS = 100_000_000


@contextmanager
def recorded_counters(directory: Path, device: Device, hosts: EmulatedHosts | None) -> Iterator[Sampler]:
    """Records from entering to leaving the context. Call the sampler's `start` after all forks.

    Emulated hosts are counted at their switch, which sees all of them; otherwise this machine's interfaces are. An
    error that ends the recording early is printed on stderr and doesn't end the run.

    Raises:
        StorageError: if the counters can't be written; the run's other files then couldn't be either.
    """
    sampler = Sampler(
        every_ns=EVERY_NS,
        sources=_sources(device, hosts),
        sinks=[JsonlWriter(directory / COUNTERS, sparse=True)],
        keep=False,
    )
    try:
        # Sample before the run starts, so that its first bytes are counted.
        sampler.sample()
        yield sampler
    finally:
        try:
            sampler.stop()
        except StorageError:
            raise
        except WirecostError as error:
            print(f"counters: the recording ended early: {error}", file=sys.stderr)


def _sources(device: Device, hosts: EmulatedHosts | None) -> list[CounterSource]:
    if hosts is None:
        return default_sources()
    rate = hosts.emulation.rate
    with hosts.at_switch() as ports:
        sources: list[CounterSource] = [SwitchSource(ports, rate / 8 if rate else None), SoftirqSource()]
    gpus = nvml_source() if device is Device.CUDA else None
    return sources if gpus is None else [*sources, gpus]
