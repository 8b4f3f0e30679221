"""Whatever launchers, collectors and terminals put around NCCL's lines, the verdict stays the same."""

from __future__ import annotations

import codecs
import csv
import html
import io
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirecost.ncclog import GpuDirect, LogReader, Transport, Where, read_logs, read_text
from wirecost.ncclog.wrapping import Prefixes, encoding_of, peel


def job(net: str) -> list[str]:
    """Ranks 0, 1 on n1 and 2, 3 on n2, in a ring over `net`."""
    lines = []
    for rank in range(4):
        host, device = f"n{rank // 2 + 1}", rank % 2
        who = f"{host}:{51 + rank}:{71 + rank} [{device}] NCCL INFO "
        head = f"ncclCommInitRank comm 0x75{rank}0 rank {rank} nranks 4 cudaDev {device} nvmlDev {device} "
        head += f"busId {device + 1}7000 commId 0xaa1 - Init "
        before, after = (rank - 1) % 4, (rank + 1) % 4
        lines += [
            f"{who}NET/Socket : Using [0]eth0:10.0.0.{rank}<0>",
            f"{who}Using network X",
            f"{who}{head}START",
        ]
        if device == 0:
            lines.append(f"{who}Channel 00/0 : {before}[1] -> {rank}[0] [receive] via {net}")
            lines.append(f"{who}Channel 00/0 : {rank}[0] -> {after}[1] via P2P/CUMEM/read")
        else:
            lines.append(f"{who}Channel 00/0 : {rank}[1] -> {after}[0] [send] via {net}")
        lines.append(f"{who}{head}COMPLETE")
    return lines


def _record(**fields: object) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _go(text: str) -> str:
    """JSON as Go's encoder writes it: docker's and containerd's."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _csv(i: int, line: str) -> str:
    row = io.StringIO()
    csv.writer(row, quoting=csv.QUOTE_ALL).writerow([f"2026-01-01 00:00:{i:02d}", line, "stderr"])
    return row.getvalue().rstrip("\r\n")


WRAPPERS: dict[str, Callable[[int, str], str]] = {
    "ray-repeated": lambda i, s: (
        f"\x1b[36m(RayWorker pid={i})\x1b[0m {s}\x1b[32m [repeated 30x across cluster]\x1b[0m"
    ),
    "ray-dedup-hint": lambda i, s: (
        f"(W pid={i}, ip=10.0.0.{i}) {s} [repeated 2x across cluster] (Ray deduplicates logs)"
    ),
    "json-go": lambda i, s: _go(_record(log=s + "\n", stream="stderr", time=f"2026-01-01T00:00:{i:02d}Z")),
    "json-fluentd": lambda i, s: _record(kubernetes={"pod": {"name": f"p{i}", "labels": {"a": "b"}}}, message=s),
    "json-cloud-logging": lambda i, s: _record(insertId=f"x{i}", resource={"type": "k8s"}, textPayload=s + "\n"),
    "json-unknown-key": lambda i, s: _record(ts=i, payload_line=s, other="a longer text " * 20),
    "json-in-json": lambda i, s: _record(log=_record(level="info", msg=s) + "\n", stream="stdout"),
    "json-behind-a-time": lambda i, s: f"2026-01-01T00:00:{i:02d}Z stdout F " + _record(message=s),
    "json-cut-short": lambda i, s: _record(log=s + "\n", stream="stderr")[:-9],
    "json-array-member": lambda i, s: _record(message=s) + ",",
    "json-pretty-member": lambda i, s: f'    "message": {json.dumps(s)},',
    "loki-pair": lambda i, s: json.dumps([f"17000000000000000{i:02d}", s]) + ",",
    "json-colours": lambda i, s: _record(log=f"\x1b[33m{s}\x1b[0m\n"),
    "logfmt": lambda i, s: f'ts=2026-01-01T00:00:{i:02d}Z level=info msg="{s}" pod=p{i}',
    "logfmt-bare": lambda i, s: f"pod=p{i} msg={s} stream=stderr",
    "csv": _csv,
    "csv-bare": lambda i, s: f"2026-01-01 00:00:{i:02d},{s},stderr,p{i}",
    "tsv": lambda i, s: f"2026-01-01\t{s}\tstderr",
    "bytes-repr": lambda i, s: repr(s.encode() + b"\n"),
    "str-repr-tab": lambda i, s: repr(f"\t{s}\n"),
    "html-escaped": lambda i, s: f"<tr><td>{i}</td><td>{html.escape(s)}</td></tr>",
    "html-raw": lambda i, s: f'<span class="line">{s}</span><br/>',
    "markdown-table": lambda i, s: f"| {i} | {s} |",
    "markdown-quote": lambda i, s: f"> {s}",
    "backticks": lambda i, s: f"`{s}`",
    "escape-lost": lambda i, s: f" [36m(W pid={i}) [0m {s} [32m [repeated 6x across cluster] [0m",
    "escape-spelled": lambda i, s: f"\\x1b[36m{s}\\x1b[0m",
    "escape-octal": lambda i, s: f"\\033[1;36m{s}\\033[0m",
    "escape-caret": lambda i, s: f"^[[36m{s}^[[0m",
    "rsyslog": lambda i, s: f"Jan  1 00:00:{i:02d} host train[7]: #033[36m#011{s}#033[0m",
    "cloudwatch-glued": lambda i, s: f"2025-05-16T16:39:{i:02d}.208-07:00{s}",
    "ompi5": lambda i, s: f"[prterun-n1-4242@1,{i}]<stderr>: {s}",
    "azureml": lambda i, s: f"[1,{i}]<stdout>:\x1b[0m{s}",
    "trailing": lambda i, s: f"{s}   \t ",
    "semicolon": lambda i, s: f"{s};",
    "windows": lambda i, s: f"{s}\r",
    "loguru": lambda i, s: f"2026-01-01 00:00:00.{i:03d} | INFO     | train:run:12 - {s}",
    "klog": lambda i, s: f"I0101 00:00:{i:02d}.000000       1 launcher.go:77] {s}",
    "datadog": lambda i, s: f"{{host:p{i}}} {s} dd.trace_id={i}",
}


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize(
    ("net", "expected", "direct"),
    [
        ("NET/IB/0/GDRDMA", Transport.RDMA_GDR, GpuDirect.BOTH),
        ("NET/IB/0", Transport.RDMA, GpuDirect.NONE),
        ("NET/Socket/0", Transport.TCP, None),
        ("NET/AWS Libfabric/3(2)/GDRDMA/Shared", Transport.EFA, GpuDirect.BOTH),
    ],
)
def test_the_verdict_is_that_of_the_bare_log(name: str, net: str, expected: Transport, direct: GpuDirect) -> None:
    plain = read_text("\n".join(job(net)) + "\n")
    verdict = read_text("\n".join(WRAPPERS[name](i, line) for i, line in enumerate(job(net))) + "\n")
    assert verdict.verdict is expected
    assert verdict.communicators == plain.communicators
    assert verdict.diagnostics == plain.diagnostics
    (between,) = [p for p in verdict.communicators[0].pairs if p.where is Where.BETWEEN]
    assert (between.hosts, between.edges, between.gpudirect) == (("n1", "n2"), 2, direct)


@pytest.mark.parametrize("separator", ["   ", " | ", "\\n", "\\r\\n", " (RayWorker pid=5) "])
def test_messages_joined_in_one_line(separator: str) -> None:
    lines = job("NET/Socket/0")
    verdict = read_text(separator.join(lines))
    assert verdict.communicators == read_text("\n".join(lines)).communicators
    assert verdict.diagnostic("lines_cut") is None


def test_messages_of_one_json_record() -> None:
    text = json.dumps({"events": [{"message": line} for line in job("NET/Socket/0")]})
    assert read_text(text).communicators == read_text("\n".join(job("NET/Socket/0"))).communicators


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32", "latin-1"])
@pytest.mark.parametrize("chunk", [1, 3, 1000, 1 << 20])
def test_encodings(encoding: str, chunk: int, tmp_path) -> None:
    lines = job("NET/Socket/0")
    data = ("\r\n".join(lines) + "\r\n").encode(encoding)
    reader = LogReader()
    first = min(64, len(data))  # sources hand over more than that at once
    reader.feed(data[:first])
    for at in range(first, len(data), chunk):
        reader.feed(data[at : at + chunk])
    plain = read_text("\n".join(lines) + "\n")
    assert reader.verdict().communicators == plain.communicators
    path = tmp_path / "nccl.log"
    path.write_bytes(data)
    assert read_logs([tmp_path]).communicators == plain.communicators
    assert read_logs([path]).lines == plain.lines


def test_encoding_by_mark_or_by_nuls() -> None:
    assert encoding_of(codecs.BOM_UTF16_BE + b"\0a") == ("utf-16-be", 2)
    assert encoding_of("NCCL INFO".encode("utf-16-le")) == ("utf-16-le", 0)
    assert encoding_of(b"plain") == ("utf-8", 0)
    assert encoding_of(bytes(1000)) == ("utf-8", 0)


def test_a_message_that_holds_braces_is_no_record() -> None:
    line = b'n1:1:2 [0] NCCL INFO config {"a": "b", "message": "other"}'
    assert peel(line) == [line.replace(b"\\", b"")]


@given(st.binary(max_size=300))
def test_peeling_takes_any_bytes(line: bytes) -> None:
    assert {type(part) for part in peel(line.replace(b"\n", b""))} <= {bytes}


@pytest.mark.parametrize("text", ["[" * 60_000, '{"a":' * 12_000, '{"log":"' + "\\" * 60_000, "<span" * 12_000])
def test_peeling_is_no_trap(text: str) -> None:
    assert peel(f'{text} NCCL INFO "x"'.encode())
    assert read_text(f'{text} NCCL INFO "x" 1[0] NCCL INFO\n' * 3).verdict is Transport.UNKNOWN


@pytest.mark.parametrize(
    ("line", "bare"),
    [
        ("0: # nThread", "# nThread"),
        (" 12:        65536", "       65536"),
        ("[1,0]<stdout>:#  Rank", "#  Rank"),
        ("2026-01-01T00:00:00.000000000Z stdout F # Using", "# Using"),
        ("[pod/nccl-abc/launcher] # x", "# x"),
        ("worker-0  | # x", "# x"),
        ("Jan  1 00:00:00 node train[7]: # x", "# x"),
        ("(Launcher pid=7, ip=10.0.0.1) # x", "# x"),
        ("[default0]:# x", "# x"),
        ("10.1.2.3: # x", "# x"),
    ],
)
def test_known_prefixes(line: str, bare: str) -> None:
    assert Prefixes().bare(line) == bare


def test_prefixes_are_learned_by_their_shape() -> None:
    prefixes = Prefixes()
    prefixes.learn("{job 7, t=12.50} ")
    assert prefixes.bare("{job 7, t=13.75}        65536 16384") == "       65536 16384"
    assert prefixes.bare("{other} x") == "{other} x"
