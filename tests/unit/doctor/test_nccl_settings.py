"""NCCL's configuration files, misspelt names and impossible values."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.diagnostics import Diagnostic, Severity, area_of
from wirecost.doctor import Diagnosis, Machine, diagnose
from wirecost.doctor.nccl_values import is_on, number_of
from wirecost.doctor.nccl_variables import KNOWN, NOT_NCCLS, NUMBERS, RANGES, REMOVED
from wirecost.doctor.settings import settings_of
from wirecost.ncclog import Transport


def machine(root: Path, files: dict[str, str] | None = None, **environment: str) -> Machine:
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(root=root, live=False, environment={"HOME": "/home/a", **environment})


def findings(root: Path, **environment: str) -> list[Diagnostic]:
    return [
        f for f in diagnose(machine(root, None, **environment)).diagnostics if area_of(f.code) == "environment"
    ]


def with_words(diagnosis: Diagnosis, words: str) -> list[Diagnostic]:
    return [f for f in diagnosis.diagnostics if area_of(f.code) == "environment" and words in f.message]


def with_port(root: Path) -> None:
    for path, text in {
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
        "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
        "dev/infiniband/uverbs0": "",
        "sys/class/net/eth0/mtu": "9000",
        "sys/class/net/eth0/operstate": "up",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")


def test_the_environment_wins_over_the_users_file_and_that_over_the_systems(tmp_path: Path) -> None:
    files = {
        "etc/nccl.conf": "# all\nNCCL_DEBUG=WARN\nNCCL_IB_TIMEOUT=22\nNCCL_IB_SL=1\n",
        "home/a/.nccl.conf": "NCCL_DEBUG=INFO\r\nNCCL_IB_TIMEOUT=18\n",
    }
    settings = settings_of(machine(tmp_path, files, NCCL_DEBUG="TRACE"))
    assert [settings.values[n] for n in ("NCCL_DEBUG", "NCCL_IB_TIMEOUT", "NCCL_IB_SL")] == ["TRACE", "18", "1"]
    assert settings.named("NCCL_IB_TIMEOUT") == "NCCL_IB_TIMEOUT=18 (in /home/a/.nccl.conf)"
    assert settings.source_of("NCCL_DEBUG") == "the environment"
    assert not settings.diagnostics


def test_a_named_file_takes_the_place_of_the_users(tmp_path: Path) -> None:
    files = {"home/a/.nccl.conf": "NCCL_DEBUG=INFO\n", "opt/n.conf": "NCCL_IB_SL=2\n"}
    settings = settings_of(machine(tmp_path, files, NCCL_CONF_FILE="/opt/n.conf"))
    assert "NCCL_DEBUG" not in settings.values and settings.values["NCCL_IB_SL"] == "2"


def test_a_setting_in_a_file_decides_the_transport(tmp_path: Path) -> None:
    with_port(tmp_path)
    assert diagnose(machine(tmp_path)).choice.between_hosts is Transport.RDMA_GDR
    diagnosis = diagnose(machine(tmp_path, {"etc/nccl.conf": "NCCL_IB_DISABLE=1\n"}))
    assert diagnosis.choice.between_hosts is Transport.TCP
    (finding,) = with_words(diagnosis, "NCCL_IB_DISABLE")
    assert "(in /etc/nccl.conf) switches off RDMA" in finding.message
    assert finding.remedy is not None and "in /etc/nccl.conf" in finding.remedy


@pytest.mark.parametrize(
    ("line", "words", "remedy"),
    [
        ("NCCL_DEBUG = INFO", "doesn't set NCCL_DEBUG", "write NCCL_DEBUG=... without them"),
        ("export NCCL_DEBUG=INFO", "doesn't set NCCL_DEBUG", "write NCCL_DEBUG=... without them"),
        ('NCCL_SOCKET_IFNAME="eth0"', "quotes as part of the value", "write NCCL_SOCKET_IFNAME=eth0"),
        ("NCCL_IB_DISABLE= 1", "blanks and quotes as part", "write NCCL_IB_DISABLE=1"),
        ("NCCL_IB_DISABLE 1", "no NAME=VALUE", "write NAME=VALUE"),
    ],
)
def test_lines_that_nccl_reads_otherwise(tmp_path: Path, line: str, words: str, remedy: str) -> None:
    diagnosis = diagnose(machine(tmp_path, {"etc/nccl.conf": f"{line}\n"}))
    (finding,) = [f for f in with_words(diagnosis, words) if f.remedy == remedy]
    assert finding.severity is Severity.WARNING and finding.message.startswith("/etc/nccl.conf: ")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("/gone.conf", "there is no such file"), ("/pipe", "is no regular file")):
        (finding,) = with_words(diagnose(machine(tmp_path, NCCL_CONF_FILE=name)), name)
        assert words in finding.message and finding.remedy is not None
    (tmp_path / "etc").mkdir(exist_ok=True)
    (tmp_path / "etc/nccl.conf").write_text("#" * (2 << 20))
    (finding,) = with_words(diagnose(machine(tmp_path)), "larger than 1 MiB")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCCL_IB_DISABEL", "NCCL_IB_DISABLE"),
        ("NCCL_IB_GID_IDX", "NCCL_IB_GID_INDEX"),
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("NCCL_P2P_LEVELS", "NCCL_P2P_LEVEL"),
        ("NCCL_DEBUGS", "NCCL_DEBUG"),
        ("NCLL_DEBUG", "NCCL_DEBUG"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("NCL_IB_HCA", "NCCL_IB_HCA"),
        ("NCCL_MIN_CHANNELS", "NCCL_MIN_NCHANNELS"),
        ("NCCL_DEBGU", "NCCL_DEBUG"),
    ],
)
def test_misspelt_names(tmp_path: Path, name: str, meant: str) -> None:
    (finding,) = findings(tmp_path, **{name: "1"})
    assert finding.severity is Severity.WARNING and finding.remedy == f"{meant} is meant?"


def test_opposite_switches(tmp_path: Path) -> None:
    for name, right in (("NCCL_IB_ENABLE", "NCCL_IB_DISABLE"), ("NCCL_NVLS_DISABLE", "NCCL_NVLS_ENABLE")):
        (finding,) = findings(tmp_path, **{name: "1"})
        assert finding.remedy == f"{right} is the variable for it"


def test_names_of_others_are_left_alone(tmp_path: Path) -> None:
    for name in (
        *NOT_NCCLS,
        "NCCL_TESTS_DEVICE",
        "NCCL_UCX_TLS",
        "TORCH_NCCL_BLOCKING_WAIT",
        "OFI_NCCL_PROTOCOL",
        "CC",
    ):
        assert not findings(tmp_path, **{name: "x"}), name
    for name, words in (("NCCL_QUUX_BAZ", "a plugin's?"), ("NCCL_TIMEOUT", "like it: NCCL_IB_TIMEOUT")):
        (finding,) = findings(tmp_path, **{name: "1"})
        assert finding.severity is Severity.INFO and words in finding.message


def test_variables_that_newer_versions_ignore(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, NCCL_IB_GDR_LEVEL="3")
    assert finding.remedy == "see NCCL_NET_GDR_LEVEL, or unset NCCL_IB_GDR_LEVEL"
    assert not REMOVED.keys() & KNOWN


@pytest.mark.parametrize(
    ("name", "value", "words", "remedy"),
    [
        ("NCCL_IB_TIMEOUT", "50", "out of range", "0 to 31, or unset NCCL_IB_TIMEOUT"),
        ("NCCL_IB_GID_INDEX", "abc", "NCCL reads 0", "write a number, or unset NCCL_IB_GID_INDEX"),
        ("NCCL_BUFFSIZE", "4M", "NCCL reads 4", "write a number"),
        ("NCCL_SOCKET_NTHREADS", "08", "octal: 0", "NCCL_SOCKET_NTHREADS=8"),
        ("NCCL_BUFFSIZE", "9" * 30, "no number of 64 bits", "unset NCCL_BUFFSIZE"),
        ("NCCL_P2P_DISABLE", "2", "NCCL takes 1 alone", "NCCL_P2P_DISABLE=1"),
        ("NCCL_NET_GDR_LEVEL", "phb", "doesn't know this level", "NCCL_NET_GDR_LEVEL=PHB"),
        ("NCCL_P2P_LEVEL", "NVLINK", "doesn't know this level", "one of: LOC, NVL"),
        ("NCCL_DEBUG", "DEBUG", "no such value", "one of: VERSION, WARN"),
        ("NCCL_SOCKET_FAMILY", "ipv4", "no such value", "one of: AF_INET, AF_INET6"),
        ("NCCL_DEBUG_SUBSYS", "INIT,NETWORK", "doesn't know the subsystem NETWORK", "some of: INIT"),
        ("NCCL_ALGO", "Rng", "there is no 'Rng'", "some of: Tree, Ring"),
        ("NCCL_PROTO", "LL64", "there is no 'LL64'", "some of: LL, LL128"),
        ("NCCL_ALGO", "tree;ring", "names no function", "some of"),
        ("NCCL_ALGO", "allreduces:tree", "no function 'allreduces'", "some of"),
        ("NCCL_TOPO_FILE", "/gone.xml", "no such file", "name a file"),
    ],
)
def test_impossible_values(tmp_path: Path, name: str, value: str, words: str, remedy: str) -> None:
    (finding,) = findings(tmp_path, **{name: value})
    assert words in finding.message
    assert finding.remedy is not None and finding.remedy.startswith(remedy)
    assert finding.severity is (Severity.ERROR if name in ("NCCL_ALGO", "NCCL_PROTO") else Severity.WARNING)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_ALGO", "ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring"),
        ("NCCL_PROTO", "^LL128;allreduce:LL128"),
        ("NCCL_DEBUG", "info"),
        ("NCCL_LAUNCH_MODE", "parallel"),
        ("NCCL_DEBUG_SUBSYS", "^ALL"),
        ("NCCL_P2P_LEVEL", "5"),
        ("NCCL_BUFFSIZE", "0x400000"),
        ("NCCL_IB_GID_INDEX", "-1"),
        ("NCCL_SET_THREAD_NAME", "true"),
        ("NCCL_NET", "anything"),
    ],
)
def test_values_that_nccl_takes(tmp_path: Path, name: str, value: str) -> None:
    assert not findings(tmp_path, **{name: value})


def test_a_switch_that_is_set_to_a_word_switches_nothing_off(tmp_path: Path) -> None:
    with_port(tmp_path)
    diagnosis = diagnose(machine(tmp_path, NCCL_IB_DISABLE="true"))
    assert diagnosis.choice.between_hosts is Transport.RDMA_GDR
    (finding,) = with_words(diagnosis, "NCCL_IB_DISABLE")
    assert finding.message.endswith("is no number: NCCL reads 0") and finding.remedy == "NCCL_IB_DISABLE=1"


def test_values_that_contradict_each_other(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, NCCL_SOCKET_NTHREADS="16", NCCL_NSOCKS_PERTHREAD="8")
    assert "64 sockets" in finding.message
    (finding,) = findings(tmp_path, NCCL_MIN_NCHANNELS="8", NCCL_MAX_NCHANNELS="4")
    assert "NCCL_MIN_NCHANNELS=8 is more than" in finding.message
    assert not findings(tmp_path, NCCL_SOCKET_NTHREADS="4", NCCL_NSOCKS_PERTHREAD="4")


def test_numbers_as_strtoll_reads_them() -> None:
    read = {"": None, "1": 1, " -2x": -2, "true": 0, "010": 8, "0x1F": 31, "08": 0, "+5": 5, "9" * 5000: None}
    assert {text: number_of(text) for text in read} == read
    assert is_on({"NCCL_IB_DISABLE": "2"}, "NCCL_IB_DISABLE")
    assert not is_on({"NCCL_P2P_DISABLE": "2"}, "NCCL_P2P_DISABLE")
    assert RANGES.keys() <= NUMBERS


@given(st.sampled_from(sorted(KNOWN)), st.text(max_size=40), st.binary(max_size=200))
def test_nothing_in_settings_breaks_the_doctor(name: str, value: str, data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "etc").mkdir()
        (root / "etc/nccl.conf").write_bytes(data)
        messages = [finding.message for finding in findings(root, **{name: value})]
    assert max(map(len, messages), default=0) < 500
