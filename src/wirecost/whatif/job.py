"""A job's traces as a graph that is replayed, and changed as a question asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from wirecost.diagnostics import diagnostic
from wirecost.errors import WirecostError
from wirecost.whatif import changes
from wirecost.whatif.buckets import with_buckets
from wirecost.whatif.graph import build
from wirecost.whatif.host_speed import fit_host, fit_processors
from wirecost.whatif.job_diagnostics import job_diagnostics
from wirecost.whatif.latency import Latency, learned_latency
from wirecost.whatif.measure import bound_by, iteration_ns, measure
from wirecost.whatif.named_network import named_network
from wirecost.whatif.network import NetworkModel, StatedNetwork, fitted_network, stated_network
from wirecost.whatif.nodes import Graph
from wirecost.whatif.overlap import with_full_overlap, without_overlap
from wirecost.whatif.question import Question
from wirecost.whatif.reading import RankRecord
from wirecost.whatif.resharding import with_resharding, without_resharding
from wirecost.whatif.results import Counts, Replay
from wirecost.whatif.scenario import Scenario, as_recorded
from wirecost.whatif.simulate import Speeds

_MOST_STRAGGLERS = 64
"""Ranks whose cost is replayed one by one."""


class Job:
    """A job's traces, ready for questions. `networks` are known by name before those of a calibration.
    `recorded_on` is the network of the recording, if its rate is known."""

    def __init__(
        self,
        records: Sequence[RankRecord],
        *,
        step_time_ns: float | None = None,
        calibration: Path | None = None,
        networks: Mapping[str, NetworkModel] | None = None,
        recorded_on: StatedNetwork | None = None,
    ) -> None:
        self.records = list(records)
        self.graph: Graph = build(self.records)
        self.calibration = calibration
        self.networks = dict(networks or {})
        self.recorded_on = recorded_on
        self.recorded = as_recorded(self.graph)
        self.on_processors = any(record.waits is not None for record in self.records)
        self.world = max([r.trace.world_size or 0 for r in self.records] + [len(self.records)])
        self.diagnostics = job_diagnostics(self.records, self.graph, self.world)
        self.step_time_ns = step_time_ns
        self.host = (fit_processors if self.on_processors else fit_host)(self.recorded, step_time_ns)
        if self.host.contradicts and step_time_ns is not None:
            self.diagnostics.append(
                diagnostic(
                    "step_time_contradicts",
                    f"a step of {step_time_ns * 1e-6:.1f} ms can't be reached by any speed of the host: what "
                    "bounds the iteration is scaled to it",
                )
            )
        self.asked: list[Question] = []
        self._error: float | None = None

    @property
    def error(self) -> float:
        """The replay's error against the recording, as a share."""
        if self._error is None:
            recorded = float(np.mean(self.graph.recorded_ns)) if self.graph.recorded_ns else 0.0
            self._error = self._replayed_ns() / recorded - 1 if recorded else 0.0
        return self._error

    def _replayed_ns(self) -> float:
        """Returns the replay of the recording, measured as the recording is."""
        order = range(self.graph.step_count)
        results = Scenario(
            self.graph, [r.steps for r in self.graph.ranks], self.recorded.collectives, self.recorded.transfer_ns
        ).run(Speeds(), order, begins_ns=self.graph.begins_ns)
        lengths = []
        for result in results:
            several = self.graph.open_end and len(result.begins) > 1
            starts = result.begins if several else [*result.begins, result.end]
            lengths.append(np.diff(starts)[1:] if len(starts) > 2 else np.diff(starts))
        count = min(len(part) for part in lengths)
        return float(np.mean([part[:count] for part in lengths]))

    def replay(self) -> Replay:
        """Returns how the recording replays."""
        speeds = self.speeds(None)
        measured = measure(self.recorded, speeds)
        recorded = float(np.mean(self.graph.recorded_ns)) if self.graph.recorded_ns else measured.iteration_ns
        length = measured.iteration_ns
        if self.step_time_ns is None:
            length = self._replayed_ns()
        return Replay(
            iteration_ms=length * 1e-6,
            recorded_ms=recorded * 1e-6,
            error=self.error,
            bound_by=bound_by(self.recorded, speeds),
            comm_fraction=measured.comm_fraction,
            parts=measured.parts,
        )

    def speeds(self, question: Question | None) -> Speeds:
        """Returns the middle of the speeds with which a question's job is replayed; None: the recorded job."""
        host = (self.host.low + self.host.high) / 2
        if question is None:
            return self.host.speeds(host if self.step_time_ns is not None else 1.0, same_network=True)
        same = question.network is None and question.bandwidth_bps is None
        return self.host.speeds(host / (question.faster_host or 1.0), same_network=same)

    def counts(self) -> Counts:
        """Returns what the graph rests on."""
        ranks = self.graph.ranks
        return Counts(
            inferred_waits=sum(r.waits.inferred for r in ranks),
            refuted_waits=sum(r.waits.refuted for r in ranks),
            moved_waits=sum(r.waits.moved for r in ranks),
            unlaunched=sum(r.unlaunched for r in ranks),
            unmatched=self.graph.unmatched,
            unexplained_ms=sum(r.unexplained_ns for r in ranks) * 1e-6,
            host_waiting_ms=sum(r.host.waited_ns for r in ranks) * 1e-6,
        )

    def network(self, question: Question) -> NetworkModel | None:
        """Returns the network that a question names; None where it stays as recorded."""
        if question.network in self.networks:
            found = self.networks[question.network]
            return found.with_latency(self.latency) if isinstance(found, StatedNetwork) else found
        if question.network is not None:
            return named_network(question.network, self.calibration, self.world, self.networks)
        if question.bandwidth_bps is not None:
            return self.stated_network(question.bandwidth_bps, question.latency_s)
        return None

    def stated_network(self, rate_bps: float, latency_s: float | None) -> StatedNetwork:
        """Returns a network of a stated bandwidth. Without a stated latency it has the recorded job's."""
        return stated_network(rate_bps, latency_s).with_latency(self.latency)

    @cached_property
    def latency(self) -> Latency:
        """The latency of the job's messages without the profiler, as far as its transfers tell."""
        known = self.recorded_on
        if known is None:
            found = learned_latency(self.graph, None)
        else:
            found = learned_latency(self.graph, known.rate_Bps, known.delay_s)
        return found.scaled(self.host.network) if self.on_processors else found

    def scenario(self, question: Question) -> Scenario:
        """Returns the job as a question changes it.

        Raises:
            WirecostError: if the traces don't allow the change.
        """
        network = self.network(question)
        scenario = self.recorded
        speeds = self.speeds(question)
        steps: list[Callable[[Scenario], Scenario]] = []
        if question.without_straggler or question.like_rank is not None:
            steps.append(lambda s: changes.like_rank(s, self._rank_number(question.like_rank), speeds))
        if question.reshard_after_forward is not None:
            steps.append(with_resharding if question.reshard_after_forward else without_resharding)
        if question.bucket_mib is not None:
            cap = question.bucket_mib
            model = network or fitted_network(self.graph.collectives)
            steps.append(lambda s: with_buckets(s, cap, model))
        if question.overlap is not None:
            steps.append(with_full_overlap if question.overlap else without_overlap)
        if network is not None:
            steps.append(lambda s: changes.with_network(s, network))
        if question.scale_communication is not None:
            factor = question.scale_communication
            steps.append(lambda s: changes.scaled_communication(s, factor))
        for change in steps:
            scenario = change(scenario)
        return scenario

    def _rank_number(self, rank: int | None) -> int | None:
        if rank is None:
            return None
        ranks = [r.rank for r in self.graph.ranks]
        if rank not in ranks:
            raise WirecostError(f"--like-rank {rank}: the traces hold ranks {', '.join(map(str, ranks))}")
        return ranks.index(rank)

    def straggler_ms(self) -> dict[int, float]:
        """Returns what each rank costs: the iteration less that in which it is as fast as the fastest, by rank."""
        speeds = self.speeds(None)
        recorded = iteration_ns(self.recorded, speeds)
        costs = {}
        for number, rank in enumerate(self.graph.ranks[:_MOST_STRAGGLERS]):
            changed = changes.like_rank(self.recorded, None, speeds, only=[number])
            costs[rank.rank] = (recorded - iteration_ns(changed, speeds)) * 1e-6
        return dict(sorted(costs.items(), key=lambda item: -item[1]))
