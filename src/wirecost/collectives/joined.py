"""Runs a benchmark as one of the ranks that a launcher started, possibly on several machines."""

from __future__ import annotations

import datetime
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wirecost.collectives.bench import BenchError, check_runnable, reported
from wirecost.collectives.request import Backend, BenchRequest
from wirecost.collectives.result import BenchNetwork, Row, combine
from wirecost.errors import WirecostError
from wirecost.launch.environment import nccl_log_environment, network_environment
from wirecost.launch.world import World
from wirecost.temporary import temporary_directory

POLL_S = 0.1
GRACE_S = 2.0
"""Time that rank 0 has to report an error before the other ranks end too, and the others to report theirs to rank
0.
"""
MAX_LOG_BYTES = 4 << 20
EXIT_FAILED = 1


class RankError(BenchError):
    """Raised for an error that only one rank knows. Every other error is the same on all ranks."""


def run_joined(
    request: BenchRequest,
    world: World,
    *,
    on_start: Callable[[BenchNetwork], None] | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> tuple[BenchNetwork, list[Row]]:
    """Measures together with the other ranks. Only rank 0 gets rows and calls.

    Raises:
        WirecostError: if the request can't be measured here.
        BenchError: if a rank fails or doesn't join, with its number if known.
    """
    check_runnable(request)
    from wirecost.collectives.driver import cases, measure
    from wirecost.collectives.session import session

    network = BenchNetwork(name=request.network.name, emulated=False)
    rows: list[Row] = []
    with temporary_directory("wirecost-bench-") as logs:
        own_log = logs / f"nccl-{world.rank}.log"
        # A variable that the user has set takes precedence.
        for key, value in _environment(request, own_log).items():
            os.environ.setdefault(key, value)
        watch = _Watch(world, request.timeout_s)
        with watch.running(), _failures_told(watch):
            store = None if world.address is None else meet(world, request.timeout_s)
            watch.step("came", store)
            with session(request, world.rank, world.local_rank, 3 * request.timeout_s, store) as setup:
                for number, case in enumerate(cases(request)):
                    gathered = measure(setup, case)
                    if number == 0 and request.backend is Backend.NCCL:
                        network = _with_transport(request, network, setup.control.gather(_log(own_log)), logs)
                    watch.step(str(case), store)
                    if gathered is None:
                        continue
                    row = combine(request, network, vars(case), gathered)
                    if not rows and on_start:
                        on_start(network)
                    rows.append(row)
                    if on_row:
                        on_row(row)
    return network, rows


def _environment(request: BenchRequest, log: Path) -> dict[str, str]:
    chosen = network_environment(request.network, 0, emulated=False)
    return chosen | (nccl_log_environment(log) if request.backend is Backend.NCCL else {})


def _log(path: Path) -> bytes:
    return path.read_bytes()[:MAX_LOG_BYTES] if path.exists() else b""


def _with_transport(
    request: BenchRequest, network: BenchNetwork, texts: list[bytes] | None, logs: Path
) -> BenchNetwork:
    if texts is None or not any(texts):
        return network
    for rank, text in enumerate(texts):
        (logs / f"nccl-{rank}.log").write_bytes(text)
    return network.model_copy(update=reported(request, logs))


def meet(world: World, timeout_s: float) -> Any:
    """Returns a torch.distributed.Store after every rank has joined it.

    Raises:
        BenchError: names the ranks that didn't join.
    """
    import torch

    dist: Any = torch.distributed
    assert world.address is not None
    assert world.port is not None
    # torchrun's agent already has a store at this address.
    theirs = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    deadline = time.monotonic() + timeout_s
    keeper = world.rank == 0 and not theirs
    if not keeper:
        _await_listener(world, deadline, timeout_s)
    try:
        store = dist.TCPStore(
            world.address,
            world.port,
            is_master=keeper,
            timeout=datetime.timedelta(seconds=timeout_s),
            wait_for_workers=False,
        )
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0]
        raise RankError(
            f"rank {world.rank}: rank 0 can't be reached at {world.address}:{world.port} within {timeout_s:g} s: "
            f"{first[:200]}"
        ) from error
    store = dist.PrefixStore(f"wirecost/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    store.set(f"came/{world.rank}", "yes")
    missing = list(range(world.size))
    while missing:
        missing = [rank for rank in missing if not store.check([f"came/{rank}"])]
        if missing and time.monotonic() > deadline:
            names = ", ".join(map(str, missing))
            raise BenchError(f"rank {names} of {world.size} did not start within {timeout_s:g} s")
        if missing:
            time.sleep(POLL_S)
    # The rank that hosts the store must not leave before the others have read this.
    return store


def _await_listener(world: World, deadline: float, timeout_s: float) -> None:
    """Returns once a process listens at the meeting address. The store's own wait ignores Ctrl-C, and its error is
    not one line.
    """
    assert world.address is not None
    while True:
        try:
            socket.create_connection(
                (world.address, world.port), timeout=max(deadline - time.monotonic(), POLL_S)
            ).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RankError(
                    f"rank {world.rank}: rank 0 of {world.size} was not reachable at {world.address}:{world.port} "
                    f"within {timeout_s:g} s ({error.strerror or error})"
                ) from error
        time.sleep(POLL_S)


class _Watch:
    """Ends a rank that makes no progress, because launchers don't."""

    def __init__(self, world: World, timeout_s: float) -> None:
        self.world, self.timeout_s = world, timeout_s
        self.last = "its start"
        self.count = 0
        self.store: Any = None
        self._since = time.monotonic()
        self._done = threading.Event()

    def step(self, what: str, store: Any) -> None:
        self.last, self.store, self._since = what, store, time.monotonic()
        self.count += 1
        if store is not None:
            store.set(f"step/{self.world.rank}", f"{self.count} {what}")

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._done.set()

    def slowest(self) -> tuple[int, str] | None:
        """Returns the rank with the least progress, and its last step."""
        if self.store is None:
            return None
        steps = []
        for rank in range(self.world.size):
            step = self.store.get(f"step/{rank}").decode() if self.store.check([f"step/{rank}"]) else "0 nothing"
            count, _, what = step.partition(" ")
            steps.append((int(count), rank, what))
        _, rank, what = min(steps)
        return rank, what

    def failure(self) -> str | None:
        """Returns the error that another rank reported before it ended; None without one."""
        if self.store is None:
            return None
        for rank in range(self.world.size):
            if self.store.check([f"failed/{rank}"]):
                return f"rank {rank}: {self.store.get(f'failed/{rank}').decode(errors='replace')}"
        return None

    def _watch(self) -> None:
        # While ranks join, `meet` knows better which are missing; later rank 0 does.
        while not self._done.wait(POLL_S):
            if time.monotonic() - self._since > self.timeout_s + (
                GRACE_S if self.world.rank or self.count == 0 else 0
            ):
                break
        else:
            return
        if self.world.rank == 0 or self.store is None:
            slowest = self.slowest()
            who, last = slowest or (self.world.rank, self.last)
            sys.stdout.flush()
            print(
                f"wirecost: rank {who} of {self.world.size} stood still within {self.timeout_s:g} s, last after: "
                f"{last}; raise --timeout if it only is slow",
                file=sys.stderr,
                flush=True,
            )
        # The main thread may be stuck in a library for ever.
        os._exit(EXIT_FAILED)


@contextmanager
def _failures_told(watch: _Watch) -> Iterator[None]:
    """Converts an exception that ends this rank to one line, and reports it to the other ranks."""
    from wirecost.launch.rank import classify

    try:
        yield
    except BenchError:
        raise
    except WirecostError as error:
        _tell(watch, str(error))
        raise RankError(f"rank {watch.world.rank}: {error}") from error
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "")[:300]
        if classify(error) == "lost_peer" and watch.world.rank == 0:
            time.sleep(GRACE_S)
            raise BenchError(watch.failure() or f"a rank has ended: {first}") from error
        if classify(error) == "lost_peer":
            raise BenchError(first) from error
        _tell(watch, f"{type(error).__name__}: {first}")
        raise RankError(f"rank {watch.world.rank}: {type(error).__name__}: {first}") from error


def _tell(watch: _Watch, reason: str) -> None:
    if watch.store is not None:
        watch.store.set(f"failed/{watch.world.rank}", reason)
    elif watch.world.launcher == "mpirun" and "mpi4py.MPI" in sys.modules:
        print(f"wirecost: rank {watch.world.rank}: {reason}", file=sys.stderr, flush=True)
        # The others wait for this rank in a call that nothing else ends.
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(EXIT_FAILED)  # type: ignore[attr-defined]
