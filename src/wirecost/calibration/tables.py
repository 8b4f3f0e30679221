"""Fits presets to tables: which properties the rows of a table may move, and the fits of all tables together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wirecost.calibration.fit import Description, Fit, HoldOut, fit
from wirecost.calibration.inputs.benchmarks import CollectiveRow, collective_row
from wirecost.calibration.inputs.fractions import fraction_rows
from wirecost.calibration.inputs.rows import TableRow, iteration_rows
from wirecost.calibration.inputs.table import Setting, TableKind, kind_of, parsed, read_table
from wirecost.calibration.links import fit_rows
from wirecost.calibration.properties import PROPERTIES, Free, Parts, Values, free, split_name, start_of, unique
from wirecost.calibration.table_rows import FractionRows, IterationRows
from wirecost.diagnostics import Diagnostic, diagnostic
from wirecost.errors import SpecError, one_of
from wirecost.spec import GPU, Link, Stack

FEWEST = 3
"""Rows of a table that must depend on a property: a row is one figure that nobody repeated."""
NEVER_USUAL = frozenset({"low_precision_efficiency", "matrix_efficiency", "attention_bytes_forward", "straggler"})
"""Properties of stacks that are fitted only if they are named."""
UNFUSED_ONLY = frozenset({"attention_bytes_backward", "unaligned_efficiency", "host_softmax_fallback_s"})
USUAL_OF_FRACTIONS = (
    "host_forward_s",
    "host_backward_s",
    "host_sharpness",
    "host_masked",
    "hidden_bytes",
    "attention_bytes_forward",
    "attention_bytes_backward",
    "iteration_s",
)
"""Fractions tell ratios only: the GPU's properties, which set the scale, are not fitted to them."""


@dataclass
class Tables:
    """The rows of all tables, by what they are measurements of, with the names of the files."""

    iterations: list[TableRow] = field(default_factory=list)
    fractions: list[TableRow] = field(default_factory=list)
    collectives: list[CollectiveRow] = field(default_factory=list)
    names: dict[TableKind, list[str]] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def read_tables(paths: Sequence[Path], setting: Setting) -> Tables:
    """Reads tables.

    Raises:
        SpecError: if a table can't be read, or none of its rows can be fitted to, with the first reason.
    """
    tables = Tables()
    for path in paths:
        table = read_table(path)
        kind = kind_of(table)
        try:
            if kind is TableKind.FRACTIONS:
                rows = fraction_rows(table, setting)
                tables.fractions += rows.rows
            elif kind is TableKind.COLLECTIVES:
                rows = parsed(table, lambda row, index: collective_row(row, index, setting))
                tables.collectives += rows.rows
            else:
                rows = iteration_rows(table)
                tables.iterations += rows.rows
        except SpecError as error:
            raise SpecError(f"{path}: {error}") from error
        if not rows.rows:
            reason = rows.skipped[0]["reason"] if rows.skipped else "it has no rows"
            raise SpecError(f"{path}: no row can be calibrated on: {reason}")
        tables.names.setdefault(kind, []).append(str(path))
        if rows.skipped:
            first = rows.skipped[0]
            message = f"{len(rows.skipped)} rows can't be expressed; {first['id']}: {first['reason']}"
            tables.diagnostics.append(
                diagnostic("rows_not_expressed", message, subject=str(path), count=len(rows.skipped))
            )
    return tables


def fit_tables(
    tables: Tables, *, names: Sequence[str] = (), hold_out: HoldOut | None = None, group: str | None = None
) -> list[Fit]:
    """Fits links to collectives first, then the other properties to times or fractions. Needs scipy.

    Args:
        names: the properties to fit to times or fractions; the usual ones by default.
        group: a column whose whole values are left out, instead of `hold_out`.

    Raises:
        SpecError: for tables of fractions together with times, or a property that no row has.
    """
    if tables.iterations and tables.fractions:
        raise SpecError("fractions and iteration times are fitted apart: give one kind of table")
    for name in names:
        split_name(name)
    hold_out = hold_out or HoldOut()
    inputs = {kind: tuple(paths) for kind, paths in tables.names.items()}
    fits = fit_rows(tables.collectives, inputs.get(TableKind.COLLECTIVES, ()), hold_out)
    known = {name: value for each in fits for name, value in each.values.items()}
    rows = tables.iterations or tables.fractions
    if not rows:
        return fits
    seconds = bool(tables.iterations)
    kind = TableKind.ITERATIONS if seconds else TableKind.FRACTIONS
    problem = IterationRows(rows) if seconds else FractionRows(rows)
    if not problem.rows:
        raise SpecError(f"nothing to calibrate on: no row carries a figure ({', '.join(inputs[kind])})")
    table = problem.table
    usual = usual_of_times(table) if seconds else usual_of_fractions(table)
    properties = named(names, table) if names else [p for p in usual if p.name not in known]
    if group is not None:
        labels = tuple(str(row.parameters.get(group, "")) for row in table)
        hold_out = HoldOut(labels=labels, column=group)
    description = Description(str(kind), inputs[kind], "s" if seconds else "fraction", FEWEST)
    return [*fits, fit(with_known(problem, known), properties, description, hold_out)]


def with_known(problem: IterationRows | FractionRows, known: Values) -> IterationRows | FractionRows:
    """Returns the problem with values that other measurements determined in place of its presets'."""
    if not known:
        return problem
    rows = [_row_with(row, known) for row in problem.table]
    return IterationRows(rows) if isinstance(problem, IterationRows) else FractionRows(rows)


def _row_with(row: TableRow, known: Values) -> TableRow:
    from dataclasses import replace

    return replace(row, parts=row.parts.with_values(known))


def named(names: Sequence[str], rows: Sequence[TableRow]) -> list[Free]:
    """Returns the properties of these names.

    Raises:
        SpecError: for a name that is no property of any row's parts.
    """
    owners = _owners(rows)
    properties = []
    for name in names:
        kind, preset, key = split_name(name)
        if (kind, preset) not in owners:
            known = [of for k, of in owners if k == kind]
            raise SpecError(f"{name}: no row uses it; " + one_of(kind, preset, known))
        properties.append(free(name, PROPERTIES[kind, key], start_of(owners[kind, preset], key)))
    return unique(properties)


def _owners(rows: Sequence[TableRow]) -> dict[tuple[str, str], GPU | Stack | Link]:
    owners: dict[tuple[str, str], GPU | Stack | Link] = {}
    for row in rows:
        parts = row.parts
        owners[("gpu", parts.gpu.name)] = parts.gpu
        owners[("stack", parts.stack.name)] = parts.stack
        owners[("link", parts.intra.name)] = parts.intra
        owners[("link", parts.inter.name)] = parts.inter
    return owners


def usual_of_times(rows: Sequence[TableRow]) -> list[Free]:
    """Returns what a fit to iteration times moves when nothing else is said: the rows' stacks and GPUs, and their
    links where rows use them."""
    properties: list[Free] = []
    for parts, layouts in _by_parts(rows):
        skip = NEVER_USUAL if parts.stack.attention.kind == "unfused" else NEVER_USUAL | UNFUSED_ONLY
        keys = [key for kind, key in PROPERTIES if kind == "stack" and key not in skip]
        properties += [_free("stack", parts.stack, key) for key in keys]
        properties += [_free("gpu", parts.gpu, key) for key in ("matrix_efficiency", "matrix_traffic")]
        properties += _links(parts, layouts)
    return unique(properties)


def usual_of_fractions(rows: Sequence[TableRow]) -> list[Free]:
    """Returns what a fit to communication fractions moves when nothing else is said: launch and traffic of the
    rows' stacks, and their links where rows use them."""
    properties: list[Free] = []
    for parts, layouts in _by_parts(rows):
        properties += _links(parts, layouts)
        properties += [_free("stack", parts.stack, key) for key in USUAL_OF_FRACTIONS]
    return unique(properties)


def _by_parts(rows: Sequence[TableRow]) -> list[tuple[Parts, list[TableRow]]]:
    groups: dict[tuple[str, str, str, str], list[TableRow]] = {}
    for row in rows:
        key = (row.key.gpu, row.key.stack, row.key.intra, row.key.inter)
        groups.setdefault(key, []).append(row)
    return [(members[0].parts, members) for members in groups.values()]


def _links(parts: Parts, rows: Sequence[TableRow]) -> list[Free]:
    properties = []
    if any(float(row.layout.world) > row.key.gpus_per_node for row in rows):
        properties.append(_free("link", parts.inter, "efficiency"))
    if any(float(row.layout.world) > 1 for row in rows):
        properties.append(_free("link", parts.intra, "efficiency"))
    return properties


def _free(kind: str, spec: GPU | Stack | Link, key: str) -> Free:
    return free(f"{kind} {spec.name} {key}", PROPERTIES[kind, key], start_of(spec, key))
