"""JSON schemas of the YAML files that wirecost reads and of the JSON that it prints."""

from __future__ import annotations

import types
import typing
from enum import Enum
from typing import Any

import annotated_types
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from reference_pages import columns
from reference_pages.meanings import COMMON, meanings
from reference_pages.plan_schemas import measured_plans, plans
from reference_pages.schema_parts import DRAFT, record
from reference_pages.schema_parts import keys as _keys
from reference_pages.schema_parts import list_of as _list
from reference_pages.schema_parts import or_null as _or_null
from reference_pages.schema_parts import typed as _typed
from reference_pages.yaml_keys import fields
from wirecost.breakdown import Breakdown
from wirecost.collectives.document import Document
from wirecost.diagnostics import Severity
from wirecost.spec import GPU, Cluster, Link, Network, Plan, Stack, Study, Workload
from wirecost.spec.base import Spec
from wirecost.trace.tables import SCHEMA_VERSION, column_types
from wirecost.units import BitsPerSecond, Seconds

ADDRESS = "https://raw.githubusercontent.com/wirecost/wirecost/main/docs/reference/schemas"

_PRESETS: tuple[type[Spec], ...] = (Workload, Network, Plan, GPU, Link)
"""Specifications in whose place a file may have the name of a preset."""
_NAMED_BY_FILE: tuple[type[Spec], ...] = (Workload, Plan, Cluster, Stack)
"""Specifications whose name is the file's name where the file has none."""

_TYPES: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    BitsPerSecond: {"type": "string", "pattern": r"^\s*[0-9.eE+-]+\s*[kKMGT]?i?(b/s|bit/s|bps|bit|B/s)\s*$"},
    Seconds: {"type": "string", "pattern": r"^\s*[0-9.eE+-]+\s*(ns|us|µs|ms|s|sec|min|m|h)\s*$"},
}


# YAML files


def yaml_schema(model: type[Spec], title: str) -> dict[str, Any]:
    """Returns the schema of a YAML file that holds one specification."""
    definitions: dict[str, Any] = {}
    schema = _object(model, definitions, is_file=True)
    return {"$schema": DRAFT, "title": title, **schema, "$defs": dict(sorted(definitions.items()))}


def _object(model: type[Spec], definitions: dict[str, Any], *, is_file: bool = False) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required = []
    for key, name, owner, field in fields(model):
        properties[key] = _property(field, definitions) | _described(owner, name)
        if field.is_required() and not (key == "name" and is_file and model in _NAMED_BY_FILE):
            required.append(key)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if model is Workload:
        properties["config"] = {
            "type": "string",
            "description": "Path of a Hugging Face config.json that gives the dimensions.",
        }
        return schema | {"anyOf": [{"required": ["config"]}, {"required": required}]}
    return schema | ({"required": required} if required else {})


def _property(field: FieldInfo, definitions: dict[str, Any]) -> dict[str, Any]:
    return _schema(field.annotation, field.metadata, definitions)


def _described(owner: type[Spec], name: str) -> dict[str, str]:
    text = meanings(owner).get(name) or COMMON.get(name)
    return {"description": " ".join(text.split())} if text else {}


def _schema(annotation: Any, metadata: list[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _schema(arguments[0], list(arguments[1:]), definitions)
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        choices = [_schema(a, metadata, definitions) for a in arguments if a is not type(None)]
        if type(None) in arguments:
            choices.append({"type": "null"})
        return choices[0] if len(choices) == 1 else {"anyOf": choices}
    if origin is tuple:
        items = _schema(arguments[0], [], definitions)
        return {"type": "array", "items": items} | _lengths(metadata)
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], [], definitions)}
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {"enum": [member.value for member in annotation]}
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return _reference(annotation, definitions)
    return _TYPES[annotation] | _bounds(annotation, metadata)


def _reference(model: type[Spec], definitions: dict[str, Any]) -> dict[str, Any]:
    name = model.__name__
    if name not in definitions:
        definitions[name] = {}
        definitions[name] = _object(model, definitions)
    reference = {"$ref": f"#/$defs/{name}"}
    if model in _PRESETS:
        return {"anyOf": [{"type": "string", "description": "Name of a preset."}, reference]}
    return reference


def _bounds(annotation: Any, metadata: list[Any]) -> dict[str, Any]:
    if annotation not in (int, float):
        return {}
    names = {
        annotated_types.Gt: ("gt", "exclusiveMinimum"),
        annotated_types.Ge: ("ge", "minimum"),
        annotated_types.Lt: ("lt", "exclusiveMaximum"),
        annotated_types.Le: ("le", "maximum"),
    }
    return {names[type(m)][1]: getattr(m, names[type(m)][0]) for m in metadata if type(m) in names}


def _lengths(metadata: list[Any]) -> dict[str, Any]:
    lengths = [m.min_length for m in metadata if isinstance(m, annotated_types.MinLen)]
    return {"minItems": lengths[0]} if lengths else {}


# Outputs


_JSON_OF_COLUMN = {"Int64": "integer?", "Float64": "number?", "String": "string?", "Boolean": "boolean?"}


def _table_row(name: str, *, without: tuple[str, ...] = (), more: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns the schema of a row of a trace table."""
    described = columns.TRACE[name]
    properties = {
        column: _typed(_JSON_OF_COLUMN[kind], f"{described[column][1]} Unit: {described[column][0]}.")
        for column, kind in column_types(name).items()
        if column not in without
    }
    return record(properties | (more or {}))


_PARTS = {
    name: _typed("integer", f"{meaning} Unit: {unit}.")
    for name, (unit, meaning) in columns.PARTS.items()
    if name.endswith("_ns")
}


def trace() -> dict[str, Any]:
    """Returns the schema of `wirecost trace --format json`."""
    place = record(_keys(rank="integer?", start_ns="integer", end_ns="integer", label="string"))
    answer = record(
        _keys(
            iteration="string", communication="string", cause="string", gain="string", next="string",
            code="string", iteration_ns="number?", gain_ns="number?", gain_share="number?",
        )
        | {"ranks": _list(_typed("integer")), "place": _or_null(place), "brief": _list(_typed("string"))}
    )  # fmt: skip
    problem = record(_keys(code="string", count="integer", loss="boolean", message="string"))
    diagnostics = _list(_table_row("diagnostics", without=("rank", "file")))
    iteration = record(_keys(name="string", start_ns="integer", window_source="string", cut="boolean") | _PARTS)
    rank = record(
        _keys(
            file="string", rank="integer?", rank_source="string?", world_size="integer?", backend="string?",
            device="string?", start_ns="integer?", window_source="string",
        )
        | {
            "window": _or_null(record(_PARTS)),
            "iterations": _list(iteration),
            "collectives": _list(_table_row("collectives", without=("rank",))),
            "kernels": _list(_table_row("kernels", without=("rank",))),
            "diagnostics": diagnostics,
            "problems": _list(problem),
        }
    )  # fmt: skip
    cause = _table_row("causes")
    cost = record(
        _keys(
            step_time_ns="integer", traced_ns="number", added_ns="number", idle_ns="number", iterations="integer"
        )
    )
    ideal = record(
        _keys(iteration_ns="number?", ideal_ns="number?", error="number?", unknown="string?", sentence="string")
        | {"costs": _list(_table_row("straggler_costs"))}
    )
    finding = record(_keys(code="string", share="number", mean_ns="number", text="string", advice="string"))
    return record(
        {
            "schema_version": {"const": SCHEMA_VERSION},
            "world_size": _typed("integer?"),
            "answer": answer,
            "ranks": _list(rank),
            "skew": _list(_table_row("skew")),
            "clocks": _list(_table_row("clocks")),
            "comm_parts": _list(_table_row("comm_parts")),
            "stragglers": _list(_table_row("stragglers")),
            "without_stragglers": ideal,
            "imbalance": _list(_table_row("imbalance")),
            "top_exposed": _list(_table_row("exposed", more={"causes": _list(cause)})),
            "causes": _list(cause),
            "slowdowns": _list(_table_row("slowdowns")),
            "profiler_cost": _or_null(cost),
            "diagnostics": diagnostics,
            "problems": _list(problem),
            "lost_time": _list(_diagnostic(share=_typed("number"), mean_ns=_typed("number"))),
            "findings": _list(finding),
            "summary": _list(_typed("string")),
        },
        title="wirecost trace --format json",
    )


_FORMER_WARNING = record(_keys(code="string", message="string"))


def _diagnostic(**more: Any) -> dict[str, Any]:
    """Returns the schema of a diagnostic, with further keys of the place where it stands."""
    properties = _keys(code="string", message="string", remedy="string?", subject="string", count="integer")
    properties["severity"] = {"enum": [str(severity.value) for severity in Severity]}
    return record(properties | more, optional=("subject", "count"))


def transport() -> dict[str, Any]:
    """Returns the schema of `wirecost transport --format json`."""
    texts = _list(_typed("string"))
    pair = record(
        {
            "hosts": _list(_typed("string?")),
            "where": _typed("string"),
            "verdict": _typed("string"),
            "networks": texts,
            "interfaces": texts,
            "gpudirect": _typed("string?"),
            "edges": _typed("integer"),
            "failed": _typed("boolean"),
        },
        optional=("interfaces", "gpudirect", "failed"),
    )
    communicator = record(
        {
            **_keys(id="string?", nranks="integer?", ranks_seen="integer", nodes="integer?"),
            "hosts": texts,
            "verdict": _typed("string"),
            "reason": _typed("string"),
            "selected": texts,
            "pairs": _list(pair),
        },
        optional=("reason",),
    )
    return record(
        {
            "verdict": _typed("string"),
            "reason": _typed("string", "Why the verdict is unknown."),
            "communicators": _list(communicator),
            "diagnostics": _list(_diagnostic()),
            "warnings": _list(_FORMER_WARNING),
            "nccl_versions": texts,
            "read": record(_keys(sources="integer", bytes="integer", lines="integer", nccl_lines="integer")),
        },
        optional=("reason",),
        title="wirecost transport --format json",
    )


def doctor() -> dict[str, Any]:
    """Returns the schema of `wirecost doctor --format json`."""
    choice = _keys(
        between_hosts="string?", between_hosts_why="string", inside_host="string?", inside_host_why="string?"
    )
    finding = record(_keys(area="string", message="string", remedy="string?") | {"level": _levels()})
    return record(
        {
            "schema_version": {"const": 2},
            "transport": record(choice),
            "diagnostics": _list(_diagnostic(area=_typed("string"))),
            "findings": _list(finding),
        },
        title="wirecost doctor --format json",
    )


def _levels() -> dict[str, Any]:
    return {"enum": ["ok", "note", "warning", "problem"]}


def _column(unit: str, meaning: str) -> dict[str, Any]:
    kind = "string?" if unit == "text" else "boolean?" if unit == "true/false" else "number?"
    return _typed(kind, f"{meaning} Unit: {unit}.")


def report() -> dict[str, Any]:
    """Returns the schema of `wirecost report --format json`."""
    cell = _keys(
        workload="string", plan="string", scaling="string", ranks="integer", global_batch="integer",
        accumulation="integer", disturbed="string",
    )  # fmt: skip
    speed_up = _keys(
        fast="string", slow="string", speed_up="number", low="number?", high="number?", n_fast="integer",
        n_slow="integer",
    )  # fmt: skip
    expectation = _keys(
        network="string", bytes="integer", measured_ms="number", expected_ms="number", deviation="number",
        holds="boolean",
    )  # fmt: skip
    traffic = _keys(network="string", traffic="string", sent_bytes="number?", saved="number?") | {
        "losses": {"type": ["array", "null"], "items": _typed("number?")}
    }
    found = _keys(
        workload="string", plan="string", ranks="integer", micro_batch="integer?",
        smallest_oom_micro_batch="integer?", trials="integer", memory_bytes="integer?",
    )  # fmt: skip
    predicted = _keys(
        network="string", from_network="string", from_plan="string", question="string", measured_ms="number",
        predicted_ms="number?", low_ms="number?", high_ms="number?", error="number?", inside="boolean?",
        unknown="string?",
    )  # fmt: skip
    benchmark = _keys(
        network="string", hosts="integer", ranks="integer", latency_ns="number?", largest_bytes="integer?",
        bus_bandwidth_GBps="number?", fitted_bus_bandwidth_GBps="number?", left_out_error="number?",
        reason="string?", remark="string?",
    )  # fmt: skip
    return record(
        {
            "format_version": {"const": 2},
            "name": _typed("string"),
            "environment": {"type": ["object", "null"]},
            "experiments": _list(record({name: _column(*described) for name, described in columns.STUDY.items()})),
            "speed_ups": _list(record(cell | speed_up)),
            "expected_from_bytes_and_rate": _list(record(cell | expectation)),
            "gradient_traffic": _list(record(cell | traffic)),
            "largest_batches": _list(record(found)),
            "what_if": _list(record(cell | predicted)),
            "networks": _list(record(benchmark)),
            "diagnostics": _list(_diagnostic(experiments=_typed("integer"))),
            "warnings": _list(record(_keys(code="string", message="string", experiments="integer"))),
        },
        title="wirecost report --format json",
    )


class _Quantities(GenerateJsonSchema):
    """Makes schemas of models with rates and times, which are written as text with a unit."""

    def function_plain_schema(self, schema: Any) -> dict[str, Any]:
        return {"type": "string"}


def breakdown() -> dict[str, Any]:
    """Returns the schema of a breakdown, as `wirecost trace --breakdown` writes it."""
    return {"$schema": DRAFT} | Breakdown.model_json_schema(mode="serialization")


def predict() -> dict[str, Any]:
    """Returns the schema of `wirecost predict --format json`: one prediction, a sweep, or a study."""
    numbers = _keys(
        iteration_s="number", comm_fraction="number", comm_fraction_low="number?", comm_fraction_high="number?",
        tokens_per_s="number?", tokens_per_s_low="number?", tokens_per_s_high="number?",
        mfu="number?", mfu_low="number?", mfu_high="number?", fits="boolean", largest_micro_batch="integer?",
    )  # fmt: skip
    numbers["assumed"] = {
        "type": "object",
        "additionalProperties": _typed("string"),
        "description": "Values of options that were not given.",
    }
    part = record(_keys(part="string", name="string", provenance="string", detail="string"))
    numbers["basis"] = {**_list(part), "description": "Provenance of the GPU, the links, the stack and the plan."}
    result = breakdown()
    single = {
        **{key: value for key, value in result.items() if key not in ("$schema", "$defs", "title")},
        "title": "One prediction",
        "properties": result["properties"] | {"prediction": record(numbers)},
        "required": [*result["required"], "prediction"],
    }
    point = {name: _column(*described) for name, described in columns.SWEEP.items()}
    point |= {"fits": _typed("boolean"), "warnings": _list(_typed("string"))}
    row = record(point, optional=tuple(name for name in point if name not in ("value", "label")))
    sweep = record({"axis": _typed("string"), "points": _list(row)})
    cell = record(_keys(cell="string", iteration_s="number?", comm_fraction="number?", refused="string?"))
    study = record({"study": _typed("string"), "predicted": _list(cell)})
    return {
        "$schema": DRAFT,
        "title": "wirecost predict --format json",
        "anyOf": [single, sweep, study],
        "$defs": result["$defs"],
    }


def bench() -> dict[str, Any]:
    """Returns the schema of `wirecost bench --format json`."""
    return {"$schema": DRAFT} | Document.model_json_schema(mode="serialization", schema_generator=_Quantities)


def bench_read() -> dict[str, Any]:
    """Returns the schema of `wirecost bench --read FILE --format json`."""
    schema = bench()
    definitions = {name: schema["$defs"][name] for name in ("Row", "FitEntry", "LinkShare", "Mode")}
    for name in ("Row", "FitEntry", "LinkShare"):
        numbered = definitions[name]
        numbered["properties"]["table"] = _typed("integer", "Number of the table in `tables`.")
        numbered["required"].append("table")
    source = record(
        _keys(path="string", hosts="integer?", ignored="integer")
        | {"notes": _list(_typed("string")), "corrupt": _list(_typed("string"))}
        | {"diagnostics": _list(_diagnostic())}
    )
    table = record(
        _keys(
            collective="string", ranks="integer", groups="integer", hosts="integer?", dtype="string", gpu="string?"
        )
    )
    document = record(
        {
            "format_version": {"const": 2},
            "read": _list(source),
            "tables": _list(table),
            "rows": _list({"$ref": "#/$defs/Row"}),
            "fits": _list({"$ref": "#/$defs/FitEntry"}),
            "links": _list({"$ref": "#/$defs/LinkShare"}),
        },
        title="wirecost bench --read FILE --format json",
    )
    return document | {"$defs": definitions}


def monitor() -> dict[str, Any]:
    """Returns the schema of a line of `wirecost monitor --out FILE.jsonl`."""
    properties = {name: _column(*described) for name, described in columns.MONITOR.items()}
    event = record(_keys(counter="string", count="integer"))
    properties["events"] = {"type": ["array", "null"], "items": event}
    required = ("t_ns", "unix_ns", "kind", "device")
    return record(
        properties,
        optional=tuple(name for name in properties if name not in required),
        title="A line of wirecost monitor --out FILE.jsonl",
    )


YAML_FILES: dict[str, tuple[type[Spec], str]] = {
    "study": (Study, "A study: `wirecost study run FILE`"),
    "workload": (Workload, "A workload: `wirecost predict FILE`"),
    "plan": (Plan, "A plan: `--plan FILE`"),
    "network": (Network, "A network, as in a study's `networks`"),
    "cluster": (Cluster, "A cluster: `--cluster FILE`"),
    "stack": (Stack, "A software stack: `--stack FILE`"),
}
OUTPUTS: dict[str, tuple[typing.Callable[[], dict[str, Any]], str]] = {
    "breakdown": (breakdown, "`wirecost trace --breakdown FILE`, and `breakdown.json` of each result of a study"),
    "trace": (trace, "`wirecost trace PATH --format json`"),
    "transport": (transport, "`wirecost transport LOG --format json`"),
    "doctor": (doctor, "`wirecost doctor --format json`"),
    "report": (report, "`wirecost report DIRECTORY --format json`"),
    "predict": (predict, "`wirecost predict ... --format json`"),
    "plans": (plans, "`wirecost plan ... --format json`"),
    "measured-plans": (measured_plans, "`wirecost plan ... --measure K --format json`"),
    "bench": (bench, "`wirecost bench ... --format json`"),
    "bench-read": (bench_read, "`wirecost bench --read FILE --format json`"),
    "monitor": (monitor, "a line of `wirecost monitor --out FILE.jsonl`"),
}


def all_schemas() -> dict[str, dict[str, Any]]:
    """Returns every schema by its name."""
    files = {name: yaml_schema(model, title.split(":")[0]) for name, (model, title) in YAML_FILES.items()}
    outputs = {name: make() for name, (make, _) in OUTPUTS.items()}
    return {
        name: {"$schema": schema.pop("$schema"), "$id": f"{ADDRESS}/{name}.json", **schema}
        for name, schema in (files | outputs).items()
    }
