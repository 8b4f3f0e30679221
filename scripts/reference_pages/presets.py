"""The page of presets: GPUs, links, clusters, stacks and workloads, with what their figures rest on."""

from __future__ import annotations

from reference_pages import NOTICE, table
from wirecost.spec import GPU, Cluster, Link, Stack, Workload, load_spec
from wirecost.spec.parameters import count
from wirecost.spec.presets import names
from wirecost.spec.provenance import Provenance, Sourced
from wirecost.units import format_rate_bps, format_size_bytes

_INTRODUCTION = """# Presets

Every machine, software stack and model that has a name, with its provenance. Names are found by their aliases
too, in upper or lower case, and with any separator between words: `rtx 4090`, `RTX-4090` and `4090` are the same
GPU. `wirecost presets KIND NAME` prints a preset as YAML, to start your own from. A machine that isn't here
is described in place of its name ([how to](../how-to/predict.md#a-machine-or-model-without-a-preset)).

What figures rest on is one of four, and sets the width of the interval of a prediction:

"""
BEHIND = "source; rows or measurements behind the figures"
_MEANINGS = {
    Provenance.MEASURED: "fitted to measurements of this very GPU, link or stack",
    Provenance.DERIVED: "calculated from a relative that was measured, or from a published total",
    Provenance.DATASHEET: "a vendor's nominal figures, with the usual efficiencies",
    Provenance.JUDGEMENT: "an estimate",
}


def page() -> str:
    """Returns the page: a table for each kind of preset."""
    meanings = table(("provenance", "meaning"), [(f"`{key}`", text) for key, text in _MEANINGS.items()])
    sections = [_gpus(), _links(), _clusters(), _stacks(), _workloads()]
    return "\n\n".join([f"{NOTICE}\n\n{_INTRODUCTION}{meanings}", *sections])


def _section(title: str, heading: tuple[str, ...], rows: list[tuple[str, ...]], text: str = "") -> str:
    about = f"{text}\n\n" if text else ""
    return f"## {title}\n\n{about}{table(heading, rows)}"


def _named(name: str, aliases: tuple[str, ...] = ()) -> str:
    return ", ".join([f"**{name}**", *(f"`{alias}`" for alias in aliases)])


def _basis(spec: Sourced) -> tuple[str, str]:
    """Returns the provenance and what is behind the figures."""
    return str(spec.provenance), ". ".join(text for text in (spec.source, spec.calibration) if text)


def _gpus() -> str:
    rows = []
    for name in names("gpu"):
        spec: GPU = load_spec("gpu", name)
        peaks = ", ".join(f"{key} {value / 1e12:g}" for key, value in spec.peak_flops.items())
        rows.append(
            (
                _named(name, spec.aliases),
                spec.architecture,
                format_size_bytes(spec.memory_bytes),
                f"{spec.memory_bandwidth_Bps / 1e9:g}",
                peaks,
                *_basis(spec),
            )
        )
    heading = ("name, aliases", "architecture", "memory", "GB/s", "dense TFLOP/s", "provenance", BEHIND)
    return _section("GPUs", heading, rows)


def _links() -> str:
    rows = []
    for name in names("link"):
        spec: Link = load_spec("link", name)
        efficiency = "default" if spec.efficiency is None else f"{spec.efficiency:g}"
        rows.append((_named(name, spec.aliases), format_rate_bps(spec.rate), efficiency, *_basis(spec)))
    heading = ("name, aliases", "rate in one direction", "efficiency", "provenance", BEHIND)
    return _section("Links", heading, rows, "Rates are those of a GPU inside a node, and of a NIC between nodes.")


def _clusters() -> str:
    rows = []
    for name in names("cluster"):
        spec: Cluster = load_spec("cluster", name)
        parts = (spec.accelerator, spec.intra_node, spec.inter_node)
        rows.append(
            (
                _named(name, spec.aliases),
                f"{spec.gpus_per_node} x {spec.accelerator.name}",
                spec.intra_node.name,
                f"{spec.nics_per_node} x {spec.inter_node.name}",
                ", ".join(str(part.provenance) for part in parts),
                spec.source or "",
            )
        )
    heading = ("name, aliases", "node", "inside", "between", "provenance of GPU, inside, between", "source")
    return _section("Clusters", heading, rows, "Any number of nodes can be predicted, whatever a preset has.")


def _stacks() -> str:
    rows = []
    for name in names("stack"):
        spec: Stack = load_spec("stack", name)
        spread = f"{spec.accuracy.spread:g}"
        rows.append((_named(name), spec.description, spread, *_basis(spec)))
    heading = ("name", "description", "half width of the interval (log)", "provenance", BEHIND)
    return _section("Stacks", heading, rows)


def _workloads() -> str:
    rows = []
    for name in names("workload"):
        spec: Workload = load_spec("workload", name)
        rows.append((_named(name), str(spec.family), f"{count(spec).total:,}", spec.source or ""))
    text = "Any other model is read from its Hugging Face `config.json` or the local cache (`hf://ORG/NAME`)."
    return _section("Workloads", ("name", "family", "parameters", "source"), rows, text)
