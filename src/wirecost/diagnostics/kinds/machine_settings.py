"""Codes of `wirecost doctor`: NCCL's environment variables and configuration files."""

from __future__ import annotations

from wirecost.diagnostics.kind import Area, Kind
from wirecost.diagnostics.record import Severity


def _kind(code: str, severity: Severity, meaning: str, remedy: str | None = None) -> Kind:
    return Kind(code, severity, Area.ENVIRONMENT, meaning, remedy)


KINDS = (
    _kind(
        "nccl_conf_line_ignored",
        Severity.WARNING,
        "A line of a configuration file of NCCL is not NAME=VALUE. NCCL ignores it.",
        "write NAME=VALUE",
    ),
    _kind(
        "nccl_conf_name_not_trimmed",
        Severity.WARNING,
        "A line of a configuration file has blanks or `export` before the name. NCCL keeps them as part of the "
        "name, so the variable isn't set.",
        "write NAME=VALUE without them",
    ),
    _kind(
        "nccl_conf_unreadable",
        Severity.WARNING,
        "A configuration file of NCCL can't be read. NCCL reads nothing from it.",
        "put a regular file there that every rank can read, or none",
    ),
    _kind(
        "nccl_conf_value_not_trimmed",
        Severity.WARNING,
        "A line of a configuration file has blanks or quotes around the value. NCCL keeps them as part of the "
        "value.",
        "write the value without them",
    ),
    _kind(
        "nccl_file_missing",
        Severity.WARNING,
        "A variable names a file that doesn't exist here.",
        "name a file that every rank can read",
    ),
    _kind(
        "nccl_hca_matches_nothing",
        Severity.ERROR,
        "NCCL_IB_HCA excludes all of this machine's RDMA devices. NCCL uses sockets, or refuses to start.",
        "name a device of this machine",
    ),
    _kind(
        "nccl_ib_permitted_only",
        Severity.INFO,
        "NCCL_IB_DISABLE=0 is set, which only permits RDMA. There is no device here to use.",
        "in a container pass the RDMA devices in",
    ),
    _kind(
        "nccl_list_invalid",
        Severity.ERROR,
        "A list of algorithms or protocols has an entry that NCCL doesn't know. NCCL refuses to start.",
        "list only names that NCCL knows",
    ),
    _kind(
        "nccl_transport_disabled",
        Severity.WARNING,
        "A variable switches a transport off.",
        "unset it, unless you test",
    ),
    _kind(
        "nccl_value_contradiction",
        Severity.WARNING,
        "Values of two variables contradict each other.",
        "change or unset one of them",
    ),
    _kind(
        "nccl_value_no_effect",
        Severity.WARNING,
        "A switch is set to a value without effect.",
        "write 1, or unset it",
    ),
    _kind(
        "nccl_value_not_a_number",
        Severity.WARNING,
        "A variable that holds a number is set to something else. NCCL reads another number, or keeps its "
        "default.",
        "write a number, or unset it",
    ),
    _kind(
        "nccl_value_octal",
        Severity.WARNING,
        "A number starts with 0. NCCL reads it as octal.",
        "write it without the leading 0",
    ),
    _kind(
        "nccl_value_out_of_range",
        Severity.WARNING,
        "A number lies outside the range that NCCL takes.",
        "write a number in the range, or unset it",
    ),
    _kind(
        "nccl_value_unknown",
        Severity.WARNING,
        "A variable is set to a name that NCCL doesn't know. NCCL keeps its default.",
        "write one of the names that NCCL knows",
    ),
    _kind(
        "nccl_variable_misspelt",
        Severity.WARNING,
        "NCCL doesn't know the variable, and knows one of a similar name. The setting has no effect.",
        "write the name that NCCL knows",
    ),
    _kind(
        "nccl_variable_removed",
        Severity.WARNING,
        "Newer versions of NCCL don't read the variable.",
        "unset it, or use the variable that replaced it",
    ),
    _kind(
        "nccl_variable_unknown",
        Severity.INFO,
        "NCCL doesn't know the variable. It may be another program's or a plugin's.",
    ),
)
