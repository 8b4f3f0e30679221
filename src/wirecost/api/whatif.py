"""What-if questions about a job, from its traces."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wirecost.api.whatif_view import PathLike, WhatIfView
from wirecost.errors import WirecostError
from wirecost.units import parse_rate_bps, parse_time_s
from wirecost.whatif.answer import answers
from wirecost.whatif.job import Job
from wirecost.whatif.question import Question
from wirecost.whatif.study_cells import (
    is_study,
    measured_answers,
    others,
    profiled_experiment,
    read_cell,
    read_named,
    recorded_on,
    step_time_ns,
    study_networks,
    unknown_networks,
)
from wirecost.whatif.sweep import sweep as sweep_bandwidth


def what_if(
    paths: PathLike | Iterable[PathLike],
    *,
    experiment: str | None = None,
    network: str | Sequence[str] | None = None,
    bandwidth: str | None = None,
    latency: str | None = None,
    scale_communication: float | None = None,
    bucket_mib: float | None = None,
    overlap: bool | None = None,
    reshard_after_forward: bool | None = None,
    without_straggler: bool = False,
    like_rank: int | None = None,
    faster_host: float | None = None,
    step_time: str | None = None,
    calibration: PathLike | None = None,
    ranks: Iterable[str] = (),
    sweep: str | None = None,
) -> WhatIfView:
    """Replays a job from its traces and says what changes to it would do. Changes are made together.

    Args:
        paths: traces of all ranks that torch.profiler wrote: files, directories and globs; or the folder of a
            study's results, of which every experiment is asked about that differs in what can be changed.
        experiment: of a study's results, the experiment whose traces are read, by its name or the beginning of it.
        network: a calibrated network's name, a cluster preset, a cluster's YAML file, or a benchmark's JSON file;
            several are answered one by one. In a study the names of its networks.
        bandwidth: a stated network instead: what each rank sends in one direction, as `100 Gb/s`.
        latency: time of an empty collective on it, as `20 us`.
        scale_communication: transfers are so many times as fast.
        bucket_mib: cap of DistributedDataParallel's buckets in MiB.
        overlap: whether collectives run beside computing.
        reshard_after_forward: False: FSDP keeps its parameters after the forward pass.
        without_straggler: no rank has more to do than the fastest.
        like_rank: every rank has the load of this rank.
        faster_host: the host is so many times as fast.
        step_time: the job's own step time without the profiler, as `238 ms`.
        calibration: what `wirecost calibrate --out` wrote.
        ranks: `FILE=RANK` for files that don't tell their rank.
        sweep: a range of bandwidths, as `1 Gb/s:400 Gb/s`, to answer for as well.

    Raises:
        WirecostError: if the traces can't be replayed, or don't allow a change.
    """
    if bandwidth is not None and network:
        raise WirecostError("a network is either named (--network) or stated (--bandwidth), not both")
    if latency is not None and bandwidth is None and sweep is None:
        raise WirecostError("--latency belongs to a stated network: give --bandwidth too")
    named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    networks = [network] if isinstance(network, str) else list(network or ())
    question = Question(
        network=networks[0] if networks else None,
        bandwidth_bps=None if bandwidth is None else _parsed("--bandwidth", bandwidth, parse_rate_bps),
        latency_s=None if latency is None else _parsed("--latency", latency, parse_time_s),
        scale_communication=scale_communication,
        bucket_mib=bucket_mib,
        overlap=overlap,
        reshard_after_forward=reshard_after_forward,
        without_straggler=without_straggler,
        like_rank=like_rank,
        faster_host=faster_host,
    )
    given_ns = None if step_time is None else _parsed("--step-time", step_time, parse_time_s) * 1e9
    if given_ns is not None and given_ns <= 0:
        raise WirecostError(f"--step-time: a step takes longer than '{step_time}'")
    tables = [os.fspath(p) for p in named if os.fspath(p).endswith(".parquet")]
    if tables:
        raise WirecostError(f"{tables[0]}: a table of operations tells stragglers alone: use stragglers()")
    folder = None if calibration is None else Path(calibration)
    if len(named) == 1 and is_study(Path(named[0])):
        return study_view(Path(named[0]), experiment, question, networks, (given_ns, folder))
    if experiment is not None:
        raise WirecostError("--experiment names an experiment of a study: give the folder of its results alone")
    job = Job(read_named([os.fspath(p) for p in named], ranks), step_time_ns=given_ns, calibration=folder)
    nothing = question == Question()
    questions = [] if nothing else [*question.each(), *(replace(question, network=n) for n in networks[1:])]
    view = WhatIfView(answers(job, questions))
    if sweep is not None:
        view.sweep = sweep_bandwidth(job, question, sweep, question.latency_s)
    return view


def study_view(
    folder: Path,
    experiment: str | None,
    question: Question,
    networks: Sequence[str],
    basis: tuple[float | None, Path | None],
) -> WhatIfView:
    """Returns what the traces of a study's experiment say about others of it, beside what they measured.

    Args:
        question: further changes; with any, only the named networks are asked about.
        basis: the step time in ns, by default the experiment's own, and a calibration.

    Raises:
        WirecostError: if no traces are kept, or the experiment isn't clear.
    """
    base = profiled_experiment(folder, experiment)
    step_time, calibration = basis
    known = study_networks(folder, base.experiment, calibration)
    job = Job(
        read_cell(base.directory, base.experiment.ranks),
        step_time_ns=step_time or step_time_ns(base),
        calibration=calibration,
        networks=known,
        recorded_on=recorded_on(base.experiment),
    )
    if replace(question, network=None) == Question():
        questions = others(folder, base, networks)
        if not networks and (unknown := unknown_networks(questions, known)):
            answerable = [q.network for q in questions if q.network in known]
            raise WirecostError(
                f"{base.directory}: no benchmark and no nominal rate tells what {', '.join(unknown)} would do to "
                f"it; ask with {f'--network {answerable[0]}' if answerable else '--bandwidth RATE'}"
            )
    else:
        questions = [replace(question, network=name) for name in networks] or [question]
    measured_ms = measured_answers(folder, base)
    return WhatIfView(answers(job, questions), measured_ms=measured_ms, experiment=base.directory.name)


def _parsed(option: str, text: str, parse: Any) -> float:
    try:
        return float(parse(text))
    except ValueError as error:
        raise WirecostError(f"{option}: {error}") from error
