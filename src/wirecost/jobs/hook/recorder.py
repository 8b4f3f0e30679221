"""Records the iterations of a rank inside a job, from the steps of its optimizers.

The environment variable WIRECOST_JOB names a folder. A process that takes optimizer steps is a rank. It writes

    steps/HOST-PID.jsonl    a header, then one line for each iteration's end, then how recording ended
    traces/HOST-PID.json.gz the iterations under PyTorch's profiler
    dumps/HOST-PID.txt      the stacks of all threads, when the launcher asks for them (SIGUSR1)
    failures/rank-R.json    the error that ended the process

Times are those of CLOCK_MONOTONIC in nanoseconds. On a GPU they are those of events in the stream of the
optimizer, without a synchronization. The job must not fail because of what happens here: an error ends the
recording, and `steps` says so.
"""

import atexit
import contextlib
import faulthandler
import json
import os
import signal
import socket
import sys
import time
import traceback
from typing import Any

FOLDER = os.environ.get("WIRECOST_JOB", "")
WARMUP = int(os.environ.get("WIRECOST_JOB_WARMUP", "5"))
ITERATIONS = int(os.environ.get("WIRECOST_JOB_ITERATIONS", "20"))
PROFILED = int(os.environ.get("WIRECOST_JOB_PROFILED", "3"))
LEAST_STEPS = 2
"""Number of steps that every optimizer takes before the one that ends an iteration is chosen."""
MOST_STEPS_TO_CHOOSE = 200
"""Number of steps of all optimizers after which it is chosen in any case, and at least four of each."""
NEW_WITHIN = 50
"""Number of steps in which a further optimizer makes the choice start again. A generator may step after many steps
of its discriminator."""
LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Socket closed")
"""Messages of gloo when a connection ends on reading or on writing, as in `wirecost.launch.rank`."""


def watch_optimizers(module):
    """Registers the recorder with `torch.optim.optimizer`, for all optimizers of the process."""
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        raise RuntimeError("this PyTorch has no global optimizer hooks; at least version 2.0 has")
    register(_RECORDER.stepped)
    _watch_end()


def watch_grad_scaler(module):
    """Makes `GradScaler.step` end an iteration also if it skips the optimizer's step because of an overflow."""
    original = module.GradScaler.step

    def step(self, optimizer, *args, **kwargs):
        before = _RECORDER.calls
        result = original(self, optimizer, *args, **kwargs)
        if _RECORDER.calls == before and self.is_enabled():
            _RECORDER.stepped(optimizer, args, kwargs)
        return result

    step.__doc__, step.__name__, step.__qualname__ = original.__doc__, original.__name__, original.__qualname__
    module.GradScaler.step = step


class Recorder:
    """The recording of this process. A forked child that takes steps begins one of its own."""

    def __init__(self):
        self.calls = 0
        self.rank = None
        self._pid = 0
        self._over = False

    def stepped(self, optimizer, args=(), kwargs=None):
        """Notes the end of a step. It is a post-hook of all optimizers."""
        self.calls += 1
        if self._pid != os.getpid():
            self._begin()
        if self._over:
            return
        try:
            self._note(optimizer)
        except Exception as error:  # noqa: BLE001 - the job must go on
            self._end("error", f"{type(error).__name__}: {error}")

    def _begin(self):
        self._pid, self._over = os.getpid(), False
        self._file: Any = None
        self._profiler: Any = None
        self._name = ""
        self._numbers, self._counts, self._sequence = {}, [], []
        self._boundary = None
        self._ends = 0
        self._written = 0
        self._events = []
        self._anchor: Any = None
        self._first_call = self.calls
        self._cuda = False
        self.rank = None

    def _note(self, optimizer):
        key = id(optimizer)
        boundary = self._boundary
        if boundary is not None:
            if key == boundary:
                self._iteration_ended(self._mark())
                return
            if key in self._numbers or self.calls - self._first_call >= NEW_WITHIN or self._profiler is not None:
                return
            self._choose_again()
        if self._file is None:
            self._open(optimizer)
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._counts):
            self._counts.append(0)
        self._counts[number] += 1
        self._sequence.append((key, number, self._mark()))
        self._choose()

    def _choose(self, last=False):
        """Chooses the optimizer whose steps end an iteration: the one with the fewest, and of several the last.

        A generator and its discriminator, or an optimizer for each parameter, step in turn. Optimizers that
        step much more seldom than the others, such as one for a schedule of its own, are left out.
        """
        settled = min(self._counts) >= LEAST_STEPS and max(self._counts) >= max(WARMUP, LEAST_STEPS)
        most = max(MOST_STEPS_TO_CHOOSE, 4 * len(self._counts))
        if not (settled or last or len(self._sequence) >= most):
            return
        candidates = [n for n, count in enumerate(self._counts) if count >= LEAST_STEPS] or [0]
        fewest = min(self._counts[n] for n in candidates)
        chosen = max(n for n in candidates if self._counts[n] == fewest)
        sequence, self._sequence = self._sequence, []
        for key, number, mark in sequence:
            if number == chosen:
                self._boundary = key
                self._iteration_ended(mark)

    def _choose_again(self):
        """Forgets the iterations so far, because they may be parts of iterations."""
        self._numbers, self._counts, self._sequence = {}, [], []
        self._boundary = None
        self._ends = self._written = 0
        self._events = []
        self._write({"restart": True})

    def _open(self, optimizer):
        """Writes the header: which rank this is, and of what."""
        import torch

        dist = torch.distributed
        group = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if group else int(os.environ.get("RANK", "0"))
        device = next(p.device for g in optimizer.param_groups for p in g["params"])
        self._cuda = device.type == "cuda"
        name = f"{socket.gethostname()}-{self._pid}"
        os.makedirs(os.path.join(FOLDER, "steps"), exist_ok=True)  # noqa: PTH103, PTH118
        self._file = open(os.path.join(FOLDER, "steps", f"{name}.jsonl"), "a", buffering=1)  # noqa: PTH118, PTH123, SIM115
        self._write(
            {
                "rank": self.rank,
                "world_size": dist.get_world_size() if group else 1,
                "launched_world_size": int(os.environ.get("WORLD_SIZE", "1")),
                "backend": str(dist.get_backend()) if group else None,
                "device": device.type,
                "gpu": _uuid_of(device) if self._cuda else None,
                "pid": self._pid,
                "host": socket.gethostname(),
                "torch": torch.__version__,
            }
        )
        self._name = name
        if self._cuda:
            torch.cuda.synchronize()
            self._anchor = (self._event(), time.monotonic_ns())
            self._anchor[0].synchronize()

    def _event(self):
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _mark(self):
        """Returns the time in ns, or on a GPU an event in the current stream."""
        return self._event() if self._cuda else time.monotonic_ns()

    def _iteration_ended(self, mark):
        self._ends += 1
        if self._cuda:
            self._events.append(mark)
            self._resolve(wait=False)
        else:
            self._write_end(mark)
        # The start of the first iteration is unknown, so that it is never measured.
        last = max(WARMUP, 1) + ITERATIONS
        if self._ends < last or self._over:
            return
        if self._ends == last:
            if not (PROFILED and self._start_profiler()):
                self._end("done")
        elif self._profiler is not None:
            # One iteration in which the profiler sets itself up comes before the recorded ones.
            self._profiler.step()
            if self._ends == last + 1 + PROFILED:
                self._stop_profiler()
                self._end("done")

    def _resolve(self, wait):
        """Writes the times of the events that the device has passed."""
        while self._events and (wait or self._events[0].query()):
            event = self._events.pop(0)
            if wait:
                event.synchronize()
            anchor, anchor_ns = self._anchor
            now_ns = anchor_ns + round(anchor.elapsed_time(event) * 1e6)
            # `elapsed_time` is a 32-bit float: short spans keep its precision.
            self._anchor = (event, now_ns)
            self._write_end(now_ns)

    def _write_end(self, time_ns):
        self._file.write('{"end":%d,"t_ns":%d}\n' % (self._written, time_ns))  # noqa: UP031 - the fastest form
        self._written += 1

    def _write(self, record):
        self._file.write(json.dumps(record) + "\n")

    def _start_profiler(self):
        """Starts PyTorch's profiler. Returns whether it runs: it can't if the job's own profiler does."""
        import torch

        try:
            if torch.autograd.profiler._is_profiler_enabled:
                raise RuntimeError("the job's own profiler is running")
            from torch.profiler import ProfilerActivity, profile, schedule

            activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if self._cuda else [])
            window = schedule(wait=0, warmup=1, active=PROFILED, repeat=1)
            # On processors nothing else tells the bytes of collectives.
            self._profiler = profile(activities=activities, schedule=window, record_shapes=not self._cuda)
            self._profiler.start()
        except Exception as error:  # noqa: BLE001 - the job must go on
            self._profiler = None
            self._write({"profiler": f"{type(error).__name__}: {error}"})
            return False
        return True

    def _stop_profiler(self):
        profiler, self._profiler = self._profiler, None
        folder = os.path.join(FOLDER, "traces")  # noqa: PTH118
        try:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
            profiler.stop()
            profiler.export_chrome_trace(os.path.join(folder, f"{self._name}.json.gz"))  # noqa: PTH118
        except Exception as error:  # noqa: BLE001 - the job must go on
            self._write({"profiler": f"{type(error).__name__}: {error}"})

    def _end(self, how, reason=None):
        self._over = True
        with contextlib.suppress(Exception):
            if self._boundary is None and self._sequence:
                self._choose(last=True)
            if self._cuda:
                self._resolve(wait=True)
            self._write({"ended": how, "reason": reason})
            self._file.close()

    def finish(self):
        """Writes what is left when the process ends by itself."""
        if self._pid == os.getpid() and not self._over and self._file is not None:
            self._end("exit")


def _uuid_of(device):
    """Returns the UUID of a GPU, or None if PyTorch or the driver doesn't tell it. Some drivers report zeros for
    every GPU."""
    import torch

    with contextlib.suppress(Exception):
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        return uuid if uuid.strip("0-") else None
    return None


def _watch_end():
    """Reports errors that end this process, and its stacks on request."""
    atexit.register(_RECORDER.finish)
    previous = sys.excepthook

    def report(kind, error, trace):
        with contextlib.suppress(Exception):
            _report_failure(kind, error, trace)
        previous(kind, error, trace)

    sys.excepthook = report
    with contextlib.suppress(Exception):
        # The folder tells the launcher that this is ready.
        os.makedirs(os.path.join(FOLDER, "dumps"), exist_ok=True)  # noqa: PTH103, PTH118
        # A job's own handler stays, and one that it installs later replaces this one.
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
            rank = os.environ.get("RANK", "unknown")
            path = os.path.join(FOLDER, "dumps", f"{rank}-{os.getpid()}.txt")  # noqa: PTH118
            # The file stays open for as long as the process lives.
            faulthandler.register(signal.SIGUSR1, file=open(path, "w"), all_threads=True)  # noqa: PTH123, SIM115


def _report_failure(kind, error, trace):
    rank = (
        _RECORDER.rank if _RECORDER.rank is not None and _RECORDER._pid == os.getpid() else os.environ.get("RANK")
    )
    if rank is None or issubclass(kind, KeyboardInterrupt):
        return
    if kind.__name__ == "ChildFailedError":
        return  # torchrun inside this process, whose child has the error
    text = "".join(traceback.format_exception(kind, error, trace))
    lines = str(error).strip().splitlines()
    sign = "error"
    if (
        kind.__name__ == "OutOfMemoryError"
        or issubclass(kind, MemoryError)
        or "can't allocate memory" in str(error)
    ):
        sign = "out_of_memory"
    elif any(message in str(error) for message in LOST_PEER):
        sign = "lost_peer"
    folder = os.path.join(FOLDER, "failures")  # noqa: PTH118
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    path = os.path.join(folder, f"rank-{rank}.json")  # noqa: PTH118
    if os.path.exists(path):  # noqa: PTH110
        return  # a launcher of this rank fails after it, and only knows that it failed
    partial = os.path.join(folder, f".rank-{rank}.json")  # noqa: PTH118
    with open(partial, "w") as file:  # noqa: PTH123
        reason = f"{kind.__name__}: {lines[0][:500] if lines else ''}"
        json.dump({"rank": int(rank), "kind": sign, "reason": reason, "traceback": text[-20000:]}, file)
    os.rename(partial, path)  # noqa: PTH104


_RECORDER = Recorder()
