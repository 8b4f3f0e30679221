"""`AnsweredTraces`: matched traces with the losses, the answer, and the diagnostics to read it with."""

from __future__ import annotations

from functools import cached_property

from wirecost.diagnostics import Diagnostic, lines_of
from wirecost.trace.answer import Answer, answer
from wirecost.trace.diagnosis import Loss, losses
from wirecost.trace.lost_time import LostTime, lost_time
from wirecost.trace.matched_traces import MatchedTraces
from wirecost.trace.notable import notable_diagnostics
from wirecost.trace.straggler_costs import StragglerCosts, straggler_costs


class AnsweredTraces(MatchedTraces):
    """Matched traces with the losses of an iteration and their causes."""

    @cached_property
    def losses(self) -> list[Loss]:
        """The losses of an iteration and their causes, by possible gain, the largest first."""
        return losses(self)

    @cached_property
    def answer(self) -> Answer:
        """The answer in five lines and the facts behind it."""
        return answer(self, self.losses)

    @cached_property
    def lost_time(self) -> list[LostTime]:
        """The lost time by cause, the largest loss first, with what to try."""
        return lost_time(self)

    @cached_property
    def straggler_costs(self) -> StragglerCosts:
        """The ideal iteration with no rank slower than the others, and what ranks, hosts, stages and operations
        cost."""
        return straggler_costs(self)

    @cached_property
    def notable_diagnostics(self) -> list[Diagnostic]:
        """The diagnostics that change how the numbers are read, each code once over all ranks."""
        return notable_diagnostics(self)

    @property
    def summary(self) -> list[str]:
        """The answer, the losses and the notable diagnostics as lines of text."""
        lines = [f"{label}: {text}." for label, text in self.answer.lines]
        if self.world_size > 1:
            lines.append(f"Stragglers: {self.straggler_costs.sentence}.")
        reported = [loss.diagnostic for loss in self.lost_time] + self.notable_diagnostics
        return lines + [line for each in reported for line in lines_of(each)]
