"""The chart of a sweep over bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirecost.whatif.sweep import Sweep

if TYPE_CHECKING:
    import altair


def sweep_chart(sweep: Sweep) -> altair.TopLevelMixin:
    """Returns the iteration over bandwidth, with its knee as a rule."""
    import altair as alt

    rows = [{"bandwidth_Gbps": p.bandwidth_bps * 1e-9, "iteration_ms": p.iteration_ms} for p in sweep.points]
    line = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("bandwidth_Gbps:Q", scale=alt.Scale(type="log"), title="bandwidth of a rank in Gb/s"),
            y=alt.Y("iteration_ms:Q", title="iteration in ms (predicted from the traces)"),
        )
        .properties(width=480, title="Iteration over bandwidth")
    )
    if sweep.knee_bps is None:
        return line
    knee = alt.InlineData(
        values=[{"knee_Gbps": sweep.knee_bps * 1e-9, "text": f"knee {sweep.knee_bps * 1e-9:.3g} Gb/s"}]
    )
    rule = alt.Chart(knee).mark_rule(strokeDash=[4, 4]).encode(x="knee_Gbps:Q")
    text = alt.Chart(knee).mark_text(align="left", dx=4, y=12).encode(x="knee_Gbps:Q", text="text:N")
    return line + rule + text
