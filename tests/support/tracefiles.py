"""Profiler traces made here, in the shapes real ones have, and a plain second opinion on what they say.

`python tests/support/tracefiles.py FOLDER [RANKS [STEPS]]` writes a set of ranks to try things on.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import statistics
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

BASE_NS = 1_727_743_122_000_000_000
GROUP = "0 (default_pg)"
_KERNELS = (
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float> >(int, float)",
    "triton_poi_fused_add_all_gather_into_tensor_0",
)


def _us(ns: int) -> str:
    """Microseconds as kineto writes them: up to three decimals, zeros trimmed."""
    whole, part = divmod(ns, 1000)
    return f"{whole}.{part:03d}".rstrip("0").rstrip(".")


class Writer:
    """Events in kineto's layout, or as compact JSON."""

    def __init__(self, layout: str = "kineto") -> None:
        self.layout = layout
        self.events: list[str] = []

    def complete(
        self,
        cat: str,
        name: str,
        pid: object,
        tid: object,
        start: int,
        ns: int,
        args: dict[str, Any] | None = None,
    ) -> None:
        head = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        fields = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items())
        inside = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in (args or {}).items())
        times = f'"ts": {_us(start)}, "dur": {_us(ns)}'
        self.events.append(f'  {{\n    {fields},\n    {times},\n    "args": {{\n      {inside}\n    }}\n  }}')

    def other(self, **fields: Any) -> None:
        ts = fields.pop("ts", None)
        inside = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in fields.items())
        self.events.append("  {\n    " + inside + (f', "ts": {_us(ts)}' if ts is not None else "") + "\n  }")

    def text(self, info: dict[str, Any] | None, base: int | None) -> bytes:
        top = ['"schemaVersion": 1', '"deviceProperties": [\n    {\n      "id": 0, "name": "GPU"\n    }\n  ]']
        if info is not None:
            top.append('"distributedInfo": ' + json.dumps(info))
        top.append('"traceEvents": [\n' + ",\n".join(self.events) + "\n  ]")
        top += ['"INFO": ["INFO:2026-01-01 profiler"]', '"traceName": "trace.json"', '"displayTimeUnit": "ms"']
        if base is not None:
            top.append(f'"baseTimeNanoseconds": {base}')
        text = "{\n  " + ",\n  ".join(top) + "\n}\n"
        if self.layout == "compact":
            # Numbers stay as they are written: Decimal keeps their digits.
            text = _compact(json.loads(text, parse_float=Decimal))
        return text.encode()


def _compact(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_compact(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


@dataclass
class Made:
    """One rank's trace and the truth about it."""

    rank: int
    text: bytes
    collectives: list[tuple[str, int, int]] = field(default_factory=list)  # (op, start, end), ns with base
    steps: list[str] = field(default_factory=list)


def make_job(
    ranks: int = 2,
    steps: int = 2,
    *,
    seed: int = 0,
    kernels: int = 3,
    late: int = -1,
    arguments: bool = True,
    gpu_steps: bool = False,
    layout: str = "kineto",
    base: int | None = BASE_NS,
    info: bool = True,
) -> list[Made]:
    """Returns a data-parallel job. Each step has some kernels and an all-reduce that ends together on all ranks.

    Rank `late` comes late to every all-reduce.
    """
    draw = random.Random(seed)
    writers = [Writer(layout) for _ in range(ranks)]
    made = [Made(r, b"") for r in range(ranks)]
    clock = [1_000_000_000 + draw.randrange(5000) for _ in range(ranks)]
    opened = list(clock)
    for step in range(steps):
        begins = list(clock)
        ready = []
        for r, w in enumerate(writers):
            at = clock[r] + draw.randrange(500, 3000)
            w.complete(
                "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 0, 7, at, 1203, {"stream": 7, "bytes": 4096}
            )
            at += 1400
            for k in range(kernels):
                length = draw.randrange(2000, 9000)
                number = step * 100 + k
                w.complete(
                    "cpu_op", f"aten::op{k}", 99, 99, at - 400, 300, {"External id": number, "Ev Idx": number}
                )
                w.complete("cuda_runtime", "cudaLaunchKernel", 99, 99, at - 300, 80, {"correlation": number})
                w.complete(
                    "kernel", _KERNELS[k % len(_KERNELS)], 0, 7, at, length,
                    {"device": 0, "stream": 7, "correlation": number, "grid": [8, 1, 1], "block": [128, 1, 1]},
                )  # fmt: skip
                at += length + draw.randrange(0, 700)
            ready.append(at - 2500 + (40_000 if r == late else draw.randrange(2000)))
            clock[r] = at
        done = max(ready) + draw.randrange(20_000, 30_000)
        for r, w in enumerate(writers):
            end = done + draw.randrange(3)
            args: dict[str, Any] = {"device": 0, "stream": 20, "correlation": step * 100 + 50}
            if arguments:
                args |= {
                    "Collective name": "allreduce", "In msg nelems": 1_000_000, "Out msg nelems": 1_000_000,
                    "Group size": ranks, "dtype": "BFloat16", "Process Group Name": "0",
                    "Process Group Description": "default_pg", "Process Group Ranks": str(list(range(ranks))),
                }  # fmt: skip
            w.complete(
                "kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 20,
                ready[r], end - ready[r], args,
            )  # fmt: skip
            made[r].collectives.append(("all_reduce", ready[r] + (base or 0), end + (base or 0)))
            overlapped = clock[r] + 600
            w.complete(
                "kernel", _KERNELS[0], 0, 7, overlapped, 5000, {"stream": 7, "correlation": step * 100 + 60}
            )
            clock[r] = max(end, overlapped + 5000) + 2000
            name = f"ProfilerStep#{step + 3}"
            w.complete("user_annotation", name, 99, 99, begins[r], clock[r] - begins[r], {"External id": 1})
            if gpu_steps:
                w.complete("gpu_user_annotation", name, 0, 7, begins[r] + 900, clock[r] - begins[r] - 1800, {})
            made[r].steps.append(name)
            clock[r] += 100
    for r, w in enumerate(writers):
        w.other(name="process_name", ph="M", ts=opened[r], pid=99, tid=0, args={"name": "python"})
        span = (opened[r] - 500, clock[r] - opened[r] + 9000)
        w.complete("Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", *span, {"Op count": 0})
        w.other(name="Record Window End", ph="i", s="g", pid="", tid="", ts=clock[r] + 8500)
        told = {"backend": "nccl", "rank": r, "world_size": ranks, "nccl_version": "2.21.5"} if info else None
        made[r].text = w.text(told, base)
    return made


# ---------------------------------------------------------------------------------------------------------------
# The second opinion: json, Fractions and a sweep over sorted edges, sharing nothing with the reader.

_DEVICE = dict.fromkeys(("kernel", "Kernel", "mtia_ccp_events"), "k") | dict.fromkeys(
    ("gpu_memcpy", "Memcpy", "gpu_memset", "Memset"), "m"
)


_HOST = ("user_annotation", "cpu_op", "Operator")
_NCCL = re.compile(r"(?<![a-z0-9])nccl\w*kernel|all_?reduce|all_?gather", re.IGNORECASE)


@dataclass
class Opinion:
    """What a valid trace says; `doubts` are events that a reader must not pass over in silence."""

    doubts: list[str] = field(default_factory=list)
    whole: dict[str, int] | None = None
    steps: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)  # by where their windows come from
    calls: list[tuple[int, int]] = field(default_factory=list)
    bytes: int = 0
    launched_ns: dict[str, int] = field(default_factory=dict)  # first to last event that a step launched


def _strict(text: bytes) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    return json.loads(text.decode("utf-8"), parse_float=Decimal, parse_constant=refuse)


def _ns(value: Any) -> Fraction | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if isinstance(value, Decimal) and abs(value.adjusted()) > 100:
        return None
    return Fraction(value) * 1000


def parts(start: int, end: int, device: list[tuple[int, int, str]]) -> dict[str, int]:
    """Returns the five parts, computed by a walk over the sorted edges."""
    edges = sorted({start, end, *(min(max(t, start), end) for s, e, _ in device for t in (s, e))})
    opened = sorted((s, e, k) for s, e, k in device if e > s)
    got = dict.fromkeys(("compute_only", "overlapped", "exposed_comm", "exposed_memory", "idle"), 0)
    for left, right in itertools.pairwise(edges):
        kinds = {k for s, e, k in opened if s <= left and e >= right}
        if "k" in kinds and "c" in kinds:
            part = "overlapped"
        elif "k" in kinds:
            part = "compute_only"
        elif "c" in kinds:
            part = "exposed_comm"
        else:
            part = "exposed_memory" if "m" in kinds else "idle"
        got[part] += right - left
    return {f"{k}_ns": v for k, v in got.items()} | {"window_ns": end - start}


def opinion(text: bytes) -> Opinion:
    """Raises ValueError where the text is no valid JSON trace."""
    document = _strict(text)
    found = Opinion()
    events = document["traceEvents"] if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise ValueError("no list of events")
    device: dict[str, tuple[int, int, str]] = {}
    launched: dict[str, tuple[int, int, int, bool]] = {}  # start, end, correlation, whether on the kernels' stream
    begun: dict[int, list[tuple[int, object]]] = {}  # by correlation: when, and in which process
    steps: dict[str, list[tuple[int, int]]] = {}
    old_steps: dict[str, list[tuple[int, int]]] = {}
    annotated = False
    gpu: dict[str, list[tuple[int, int]]] = {}
    for event in events:
        if not isinstance(event, dict):
            found.doubts.append("no event")
            continue
        cat, name = event.get("cat"), event.get("name")
        if cat in _DEVICE or cat == "gpu_user_annotation" or (cat in _HOST and _step(name)):
            span = _span(event)
            annotated = annotated or cat == "user_annotation"
            if event.get("ph") != "X" or span is None or not isinstance(name, str):
                found.doubts.append(f"unsound {cat}")
                continue
            if cat in _DEVICE:
                kind = "c" if _DEVICE[cat] == "k" and _communicates(name, event.get("args")) else _DEVICE[cat]
                key = json.dumps([cat, name, event.get("pid"), event.get("tid"), event.get("args")], default=str)
                if kind == "c" and f"{span} {key}" not in device:
                    found.bytes += _size(event.get("args"))
                device[f"{span} {key}"] = (*span, kind)
                launched[f"{span} {key}"] = (*span, _correlation(event), kind == "k" and event.get("tid") == 7)
            elif _step(name):
                into = gpu if cat.startswith("gpu") else steps if cat == "user_annotation" else old_steps
                into.setdefault(name, []).append(span)
        elif (
            cat in ("cuda_runtime", "cuda_driver")
            and event.get("ph") == "X"
            and _span(event)
            and _correlation(event) >= 0
        ):
            begun.setdefault(_correlation(event), []).append((_span(event)[0], event.get("pid")))  # pyright: ignore
        elif cat is None and event.get("ph") == "X":
            found.doubts.append("no category")
    steps = steps if annotated else old_steps
    work = list(device.values())
    found.calls = sorted((s, e) for s, e, k in work if k == "c")
    timed = [w for w in work if w[1] > w[0]]
    if timed:
        found.whole = parts(min(s for s, _, _ in timed), max(e for _, e, _ in timed), work)
        for source, listed in (("cpu_step", steps), ("gpu_step", gpu)):
            whole = {step: (min(s for s, _ in spans), max(e for _, e in spans)) for step, spans in listed.items()}
            found.steps[source] = {step: parts(*span, work) for step, span in whole.items()}
            if source == "cpu_step":
                windows, found.launched_ns = launched_windows(whole, list(launched.values()), begun)
                found.steps["launches"] = {step: parts(*span, work) for step, span in windows.items()}
    return found


def launched_windows(
    steps: dict[str, tuple[int, int]],
    device: list[tuple[int, int, int, bool]],
    begun: dict[int, list[tuple[int, object]]],
) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """Returns windows from the first device event launched in a step to the first of the next, and the time from the
    first to the last event of each; none if unknown."""
    order = sorted(steps, key=lambda name: (steps[name][0], name))
    inside: dict[str, list[tuple[int, int, bool]]] = {name: [] for name in order}
    unknown = []
    for start, end, correlation, main in device:
        times = begun.get(correlation, [])
        if not times or len({json.dumps(pid, default=str) for _, pid in times}) > 1:
            unknown.append(start)
            continue
        at = min(t for t, _ in times)
        before = [name for name in order if steps[name][0] <= at]
        if before and not (before[-1] == order[-1] and at > steps[order[-1]][1]):
            inside[before[-1]].append((start, end, main))
    if not any(inside.values()):
        return {}, {}
    if any(steps[n][0] <= s < steps[n][1] for n in order if not inside[n] for s in unknown):
        return {}, {}
    first = {n: min(s for s, _, _ in inside[n]) for n in order if inside[n]}
    last = {n: max(e for _, e, _ in inside[n]) for n in order if inside[n]}
    lengths = {n: last[n] - first[n] for n in first}
    mains = {n: [(s, e) for s, e, main in inside[n] if main] for n in order}
    if len(order) > 1 and all(mains.values()):
        lead = sorted(max(0, max(e for _, e in mains[a]) - first[b]) for a, b in itertools.pairwise(order))
        step = sorted(first[b] - first[a] for a, b in itertools.pairwise(order))
        if statistics.median(lead) > 0.01 * statistics.median(step):
            first = {n: min(s for s, _ in mains[n]) for n in order}
    windows = {}
    for number, name in enumerate(order):
        if name not in first:
            continue
        following = [n for n in order[number + 1 :] if n in first]
        until = order.index(following[0]) if following else number
        gaps = [steps[b][0] - steps[a][1] for a, b in itertools.pairwise(order)]
        usual = max(
            statistics.median([end - start for start, end in steps.values()]),
            statistics.median([steps[b][0] - steps[a][0] for a, b in itertools.pairwise(order)] or [0]),
        )
        paused = any(g > statistics.median(gaps) + 0.1 * usual for g in gaps[number:until])
        end = first[following[0]] if following else last[name]
        windows[name] = (first[name], max(first[name], min(end, last[name]) if paused else end))
    return windows, lengths


def _communicates(name: str, args: object) -> bool:
    if isinstance(args, dict) and isinstance(args.get("Collective name"), str) and args["Collective name"]:
        # What a collective launches beside its transfer runs on one GPU alone.
        return re.search("gemm|elementwise|^void at::|^triton_", name) is None
    return not name.startswith("triton_") and _NCCL.search(re.split("[(<]", name)[0]) is not None


def _correlation(event: dict[str, Any]) -> int:
    args = event.get("args")
    found = args.get("correlation") if isinstance(args, dict) else None
    if isinstance(found, str) and found.isascii() and found.isdigit():
        found = int(found)
    return found if type(found) is int and 0 <= found < 10**18 else -1


def _step(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(r"ProfilerStep#\d+", name) is not None


def _span(event: dict[str, Any]) -> tuple[int, int] | None:
    start, length = _ns(event.get("ts")), _ns(event.get("dur"))
    if (
        start is None
        or length is None
        or length < 0
        or max(abs(start), abs(start + length)) > 2**61
        or length > 2**50
    ):
        return None
    return floor(start), floor(start + length)


def _size(args: object) -> int:
    count = args.get("In msg nelems") if isinstance(args, dict) else None
    return 2 * count if isinstance(count, int) and not isinstance(count, bool) else 0


def write_job(folder: Path, ranks: int = 4, steps: int = 5, **options: Any) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for made in make_job(ranks, steps, **options):
        written.append(folder / f"rank{made.rank}_trace.json")
        written[-1].write_bytes(made.text)
    return written


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[2:4]]
    for path in write_job(Path(sys.argv[1]), *numbers, kernels=12, late=-1 if "--even" in sys.argv else 2):
        print(path)
