"""One function for each kind of input: writes a damaged input into a folder and gives the command that reads it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from support.calibration import bench as write_bench
from support.counters import write_counters
from support.fuzzing import damage
from support.results import invented_breakdown, invented_store
from support.tracefiles import make_job

Kind = Callable[[random.Random, Path], list[str]]


def _packed(draw: random.Random, text: bytes) -> bytes:
    """As it is, or compressed in one of the formats, at times with damage to the stream."""
    how = draw.random()
    if how < 0.7:
        return text
    if how < 0.8:
        packed = gzip.compress(text, 1)
    elif how < 0.9:
        import zstandard

        packed = zstandard.compress(text)
    elif how < 0.95:
        import lzma

        packed = lzma.compress(text, preset=0)
    else:
        import bz2

        packed = bz2.compress(text)
    return damage.text(draw, packed) if draw.random() < 0.3 else packed


@cache
def _jobs() -> list[list[bytes]]:
    return [
        [rank.text for rank in make_job(2, 2, seed=31, kernels=1, layout="compact")],
        [rank.text for rank in make_job(2, 2, seed=32, kernels=1, gpu_steps=True, layout="compact")],
        [rank.text for rank in make_job(1, 3, seed=33, kernels=2, arguments=False, base=None, info=False)],
    ]


def traces(draw: random.Random, folder: Path) -> list[str]:
    ranks = draw.choice(_jobs())
    hurt = draw.randrange(len(ranks))
    # A job is often answered from the ranks that are sound.
    all_hurt = draw.random() < 0.4
    for number, text in enumerate(ranks):
        if number == hurt or all_hurt:
            if draw.random() < 0.5:
                text = damage.text(draw, text)
            else:
                text = damage.json_text(damage.data(draw, json.loads(text)))
        (folder / f"rank{number}.json").write_bytes(_packed(draw, text))
    commands = [
        ["trace", str(folder)],
        ["trace", str(folder), "--format", "json"],
        [
            "trace",
            str(folder),
            "--format",
            "csv",
            "--table",
            draw.choice(["ranks", "calls", "problems", "exposed"]),
        ],
        ["trace", str(folder), "--html", str(folder / "page.html"), "--breakdown", str(folder / "b.out")],
        ["compare", str(folder), str(folder), "--format", "json"],
        ["project", str(folder / f"rank{hurt}.json"), "--gpus", "8", "--efficiency", "0.5"],
    ]
    return draw.choice(commands)


LOG = b"""\
node1:101:102 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
NCCL version 2.21.5+cuda12.4
node1:101:102 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5_0,mlx5_1.
node1:101:102 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
node1:101:102 [0] NCCL INFO Using network IB
node1:101:102 [0] NCCL INFO ncclCommInitRank comm 0x5a10 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1a000 commId 0xab - Init START
node1:101:102 [0] NCCL INFO comm 0x5a10 rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0
node1:101:102 [0] NCCL INFO Channel 00/02 :    0   1   2   3
node1:101:102 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node1:101:102 [0] NCCL INFO Channel 01/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA
node1:101:102 [0] NCCL INFO Channel 01/0 : 0[0] -> 3[1] [send] via NET/IB/0(1)/GDRDMA
node1:101:102 [0] NCCL INFO ncclCommInitRank comm 0x5a10 rank 0 nranks 4 cudaDev 0 busId 1a000 commId 0xab - Init COMPLETE
iteration 1 loss 2.345
node2:201:202 [1] NCCL INFO ncclCommInitRank comm 0x5a11 rank 3 nranks 4 cudaDev 1 busId 2b000 commId 0xab - Init START
node2:201:202 [1] NCCL INFO Channel 01/0 : 3[1] -> 0[0] [send] via NET/Socket/1
node2:201:202 [1] NCCL INFO CollNet 00/0 : 3 [send] via COLLNET/SHARP/0/GDRDMA
node2:201:209 [1] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.2<49152> failed : Connection refused
{"log":"node2:201:202 [1] NCCL INFO Channel 02/0 : 3[1] -\\u003e 2[0] via SHM/direct/direct\\n","stream":"stderr"}
[rank1]: Ring 00 : 2 -> 3 -> 0
"""


def logs(draw: random.Random, folder: Path) -> list[str]:
    text = LOG
    for _ in range(draw.choice((1, 2, 4))):
        text = damage.text(draw, text)
    (folder / "nccl.log").write_bytes(_packed(draw, text))
    where = str(folder if draw.random() < 0.3 else folder / "nccl.log")
    return ["transport", where, *draw.choice([[], ["--format", "json"], ["--expect", "rdma"]])]


MEASURED = {
    "id": "a1", "source": "somebody, Table 1", "gpu": "A100-80GB-SXM", "gpus_per_node": "8", "intra_link": "NVLink3",
    "intra_gbytes_s_per_gpu_uni": "300", "inter_link": "IB HDR 8x200G", "inter_gbit_s_per_node": "1600",
    "n_gpus": "64", "model": "GPT-1.7B", "params_b": "1.7", "n_layers": "24", "hidden": "2304", "heads": "24",
    "kv_heads": "", "ffn": "", "vocab": "51200", "seq": "2048", "framework": "Megatron-LM", "tp": "1", "pp": "1",
    "vpp": "", "dp": "64", "cp": "1", "ep": "", "sharding": "none", "seq_par": "", "act_recompute": "full",
    "mbs": "16", "gas": "1", "gbs": "1024", "precision": "fp16", "metric": "throughput", "value": "137",
    "iter_s": "1.2", "notes": "",
}  # fmt: skip
FRACTIONS = {
    "workload": "GPT-2-Large", "testbed": "pinnacles-a", "protocol": "IPoIB", "scaling": "strong", "gpus": "4", "global_batch": "32",
    "micro_batch": "8", "comm_fraction": "0.5",
}  # fmt: skip
BENCHMARK = {
    "id": "b", "source": "x", "gpu": "A100", "interconnect": "HDR InfiniBand", "collective": "all_reduce",
    "nodes": "2", "n_gpus": "16", "size_bytes": "1073741824", "time_us": "12000",
}  # fmt: skip


def tables(draw: random.Random, folder: Path) -> list[str]:
    base = draw.choice([MEASURED, MEASURED, FRACTIONS, BENCHMARK])
    rows = []
    for number in range(4):
        row = dict(base)
        if base is MEASURED:
            row |= {"id": f"r{number}", "iter_s": str(1.2 + number / 10), "mbs": str(2**number), "gbs": ""}
        rows.append(row)
    for _ in range(draw.choice((1, 2, 5))):
        hostile = damage.value(draw)
        draw.choice(rows)[draw.choice(list(base))] = damage.shown(hostile).replace("\x00", "")
    out = io.StringIO()
    writer = csv.DictWriter(out, list(base))
    writer.writeheader()
    writer.writerows(rows)
    text = out.getvalue().encode("utf-8", "replace")
    if draw.random() < 0.3:
        text = damage.text(draw, text)
    path = folder / "table.csv"
    path.write_bytes(text)
    if draw.random() < 0.04:
        return ["calibrate", str(path), "--folds", "0", "--save", str(folder / "c.yaml")]
    options = draw.choice([["--rows"], ["--format", "json"], ["--by", draw.choice(list(base))], []])
    return ["validate", str(path), *options]


STUDY: dict[str, Any] = {
    "name": "s",
    "workloads": ["gpt-tiny", {"name": "w", "layers": 2, "hidden": 64, "heads": 2, "vocab_size": 512,
                               "sequence_length": 32}],
    "networks": ["emulated-1g", {"name": "slow", "emulate": {"rate": "40 Mb/s", "delay": "1 ms"}}],
    "plans": ["all-reduce", {"name": "p", "data_parallel": "zero1", "precision": "bf16"}],
    "hosts": [1, 2],
    "scaling": [{"kind": "strong", "global_batch": 16}, {"kind": "weak", "micro_batch": 4}],
    "iterations": 3,
    "warmup": 1,
    "data": {"corpus": "python-docs", "tokenizer": "bpe"},
    "timeout": "60 s",
}  # fmt: skip


def _specification(draw: random.Random, base: Any) -> bytes:
    if draw.random() < 0.7:
        text = damage.yaml_text(damage.data(draw, base))
    else:
        import yaml

        text = damage.text(draw, yaml.safe_dump(base, sort_keys=False).encode())
    return text


def studies(draw: random.Random, folder: Path) -> list[str]:
    path = folder / "study.yaml"
    path.write_bytes(_specification(draw, STUDY))
    if draw.random() < 0.5:
        return ["study", "run", str(path), "--dry-run", "--out", str(folder / "out")]
    return ["predict", "--study", str(path), "--cluster", "dgx-h100", "--stack", "generic"]


VALUES = {
    "calibrated_on": ["x.csv"], "rows": 8, "error_fitted": 0.02, "error_held_out": 0.03, "spread": 0.05,
    "values": {"gpu H100-SXM-80GB matrix_efficiency": 0.8, "link nvlink4 efficiency": 0.7,
               "stack fsdp-flash host_forward_s": 0.0004},
}  # fmt: skip


def _preset(kind: str, name: str) -> dict[str, Any]:
    from wirecost.spec.presets import named

    return json.loads(json.dumps({"name": name, **named(kind, name)}, default=str))


def calibrations(draw: random.Random, folder: Path) -> list[str]:
    predict = ["predict", "llama-3-8b", "--gpus", "16", "--data-parallel", "zero3"]
    if draw.random() < 0.5:
        (folder / "c.yaml").write_bytes(_specification(draw, VALUES))
        return [*predict, "--cluster", "dgx-h100", "--calibration", str(folder / "c.yaml")]
    cluster, stack = _preset("cluster", "dgx-h100"), _preset("stack", "fsdp-flash")
    hurt = draw.random() < 0.5
    for name, data, damaged in (("cluster-dgx", cluster, hurt), ("stack-bf16", stack, not hurt)):
        text = _specification(draw, data) if damaged else damage.yaml_text(data)
        (folder / f"{name}.yaml").write_bytes(text)
    if draw.random() < 0.2:
        (folder / "study.yaml").write_bytes(damage.yaml_text(STUDY))
        return ["predict", "--study", str(folder / "study.yaml"), "--calibration", str(folder)]
    return [*predict, "--calibration", str(folder)]


LLAMA = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 2048,
    "hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
}  # fmt: skip


def configs(draw: random.Random, folder: Path) -> list[str]:
    files = {
        "config.json": LLAMA,
        "workload.yaml": _preset("workload", "gpt-tiny"),
        "cluster.yaml": _preset("cluster", "dgx-h100"),
        "plan.yaml": _preset("plan", "zero3"),
        "stack.yaml": _preset("stack", "fsdp-flash"),
    }
    hurt = draw.choice(list(files))
    for name, data in files.items():
        text = damage.yaml_text(data)
        if name == hurt:
            text = (
                _specification(draw, data) if name.endswith("yaml") else damage.json_text(damage.data(draw, data))
            )
            if draw.random() < 0.2:
                text = damage.text(draw, text)
        (folder / name).write_bytes(text)
    workload = str(folder / ("config.json" if hurt == "config.json" else "workload.yaml"))
    rest = ["--cluster", str(folder / "cluster.yaml"), "--plan", str(folder / "plan.yaml"), "--stack",
            str(folder / "stack.yaml"), "--gpus", "16"]  # fmt: skip
    how = draw.random()
    if how < 0.1:
        return ["need", workload, *rest, "--fraction", "0.2"]
    if how < 0.2:
        return ["predict", workload, *rest, "--sweep", "gpus=8..32"]
    return ["predict", workload, *rest, *draw.choice([[], ["--format", "json"]])]


def nsight(draw: random.Random, folder: Path) -> list[str]:
    path = folder / "node.sqlite"
    db = sqlite3.connect(path)
    db.executescript("""
        PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, globalPid, demangledName, shortName);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, streamId, globalPid, bytes, copyKind);
        CREATE TABLE NVTX_EVENTS (start, end, eventType, text, textId, globalTid);
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs, utcTime, localTime);
        INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce_Sum_bf16(args)'), (3, 'step');
        INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1727743122000000000, '', '');
    """)
    for process in range(draw.choice((1, 2, 3))):
        pid = (process + 1) << 24
        for step in range(3):
            at = 1000 * step
            for start, end, name in ((at, at + 400, 1), (at + 300, at + 700, 2)):
                db.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, ?, ?, ?, ?)",
                    (start, end, 6 + name, pid, name, name),
                )
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, 9, ?, 64, 1)", (at + 600, at + 800, pid)
            )
            db.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, 3, ?)", (at, at + 900, pid + 17))
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for _ in range(draw.choice((0, 1, 2, 4))):
        table = draw.choice(tables)
        column = draw.choice([row[1] for row in db.execute(f'PRAGMA table_info("{table}")')])
        hostile = damage.value(draw)
        if isinstance(hostile, list | dict):
            hostile = b"\xff\x00blob"
        elif isinstance(hostile, str):
            hostile = (
                hostile.encode("utf-8", "surrogatepass") if draw.random() < 0.2 else hostile.replace("\ud800", "")
            )
        elif isinstance(hostile, int) and abs(hostile) >= 2**63:
            hostile = float(2**63)
        statement = f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % ? = 0'
        try:
            db.execute(statement, (hostile, draw.choice((1, 2, 5))))
        except sqlite3.IntegrityError:
            continue
    if draw.random() < 0.1:
        db.execute(draw.choice([
            "DROP TABLE StringIds", "ALTER TABLE NVTX_EVENTS RENAME COLUMN start TO begin",
            "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO other",
            "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end)",
        ]))  # fmt: skip
    db.commit()
    db.close()
    if draw.random() < 0.5:
        raw = bytearray(path.read_bytes())
        for _ in range(draw.choice((1, 3, 30))):
            # Headers and cell pointers lie at the beginning of a page.
            page = draw.randrange(len(raw) // 4096) * 4096
            raw[page + draw.randrange(4096 if draw.random() < 0.4 else 120)] = draw.randrange(256)
        path.write_bytes(raw if draw.random() < 0.8 else raw[: draw.randrange(len(raw))])
    return ["trace", str(path), *draw.choice([[], ["--format", "json"], ["--format", "csv"]])]


SMALL = """\
name: invented
workloads: [{name: small, layers: 1, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32}]
networks: [emulated-100m, emulated-1g]
plans: [all-reduce]
hosts: [2]
scaling: [{kind: strong, global_batch: 16}]
"""


@cache
def _store() -> dict[str, bytes]:
    """Returns the files of a store by their path in it."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        invented_store(root / "store", text=SMALL)
        first = next(iter(sorted((root / "store" / "experiments").iterdir())))
        write_counters(first, [5, 0, 5, 5])
        return {
            str(path.relative_to(root / "store")): path.read_bytes()
            for path in sorted((root / "store").rglob("*"))
            if path.is_file()
        }


def stores(draw: random.Random, folder: Path) -> list[str]:
    files = dict(_store())
    for hurt in draw.sample([name for name in files if name != ".lock"], draw.choice((1, 1, 2))):
        how = draw.random()
        if how < 0.1:
            del files[hurt]
        elif how < 0.5 or hurt.endswith("jsonl"):
            files[hurt] = damage.text(draw, files[hurt])
        elif hurt.endswith("yaml"):
            import yaml

            with_values = yaml.safe_load(files[hurt])
            files[hurt] = damage.yaml_text(damage.data(draw, with_values))
        else:
            files[hurt] = damage.json_text(damage.data(draw, json.loads(files[hurt])))
    for name, content in files.items():
        path = folder / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    store = str(folder / "store")
    report = ["report", store, "--no-figures"]
    commands = [
        report, [*report, "--format", "json"], [*report, "--format", "csv"],
        [*report, "--html", str(folder / "page.html")], ["calibrate", store, "--gpu", "A100-SXM-80GB"],
    ]  # fmt: skip
    return draw.choice(commands)


NCCL_TESTS = b"""\
# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid    100 on      nodea device  0 [0000:01:00] NVIDIA A
#  Rank  1 Group  0 Pid    101 on      nodeb device  1 [0000:02:00] NVIDIA A
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    12.50    0.08    0.12       0    11.00    0.09    0.14       0
        2048           512     float     sum      -1    13.00    0.16    0.24       0    12.00    0.17    0.26       0
     1048576        262144     float     sum      -1   113.00    9.28    9.28       0   112.00    9.36    9.36       0
    67108864      16777216     float     sum      -1  6113.00   10.98   10.98       0  6112.00   10.98   10.98     N/A
# Avg bus bandwidth    : 0.19
# Collective test concluded: all_reduce_perf
"""
OSU = b"""\
# OSU MPI Allreduce Latency Test v7.5
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
4                       1.52
1024                    3.10
65536                  45.11
1048576               612.80
"""
NCCL_JSON = {
    "version": 3, "args": ["./build/all_reduce_perf", "-J", "x"],
    "config": {"nthreads": 1, "ngpus": 1, "devices": [{"hostname": "a"}, {"hostname": "b"}]},
    "results": [
        {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": -1,
         "out_of_place": {"time": 10 + size / 1e4, "nwrong": 0}, "in_place": {"time": 9 + size / 1e4, "nwrong": 0}}
        for size in (1024, 65536, 1048576)
    ],
}  # fmt: skip


def benches(draw: random.Random, folder: Path) -> list[str]:
    path = folder / "bench.json"
    how = draw.random()
    if how < 0.3:
        path.write_bytes(damage.text(draw, NCCL_TESTS))
    elif how < 0.5:
        path.write_bytes(damage.text(draw, OSU))
    elif how < 0.7:
        path.write_bytes(damage.json_text(damage.data(draw, NCCL_JSON)))
    else:
        write_bench(path, 2)
        path.write_bytes(damage.json_text(damage.data(draw, json.loads(path.read_text()))))
        if draw.random() < 0.6:
            return ["calibrate", str(path), "--gpu", "A100-SXM-80GB"]
    options = draw.choice([[], ["--format", "json"]])
    return ["bench", "--read", str(path), *draw.choice([[], ["--ranks", "4"]]), *options]


def recordings(draw: random.Random, folder: Path) -> list[str]:
    write_counters(folder, [5, 0, 5, 5])
    path = folder / "counters.jsonl"
    if draw.random() < 0.7:
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        path.write_bytes(b"\n".join(damage.json_text(row) for row in damage.data(draw, lines)) + b"\n")
        if draw.random() < 0.3:
            path.write_bytes(damage.text(draw, path.read_bytes()))
        return ["report", str(path), "--figures", str(folder / "figures")]
    from wirecost.counters.monitor import read_recording
    from wirecost.counters.parquet import ParquetWriter

    table = ParquetWriter(folder / "counters.parquet")
    table.write(read_recording(path))
    table.close()
    (folder / "counters.parquet").write_bytes(damage.text(draw, (folder / "counters.parquet").read_bytes()))
    return ["report", str(folder / "counters.parquet"), "--figures", str(folder / "figures")]


@cache
def _breakdown() -> Any:
    from wirecost.spec import Study, parse_yaml, validate

    study = validate(Study, parse_yaml(damage.yaml_text(STUDY).decode(), "study"), "study")
    slow = next(e for e in study.model_experiments() if e.network.name == "slow" and e.ranks == 2)
    return json.loads(invented_breakdown(slow).model_dump_json())


def breakdowns(draw: random.Random, folder: Path) -> list[str]:
    sound, hurt = folder / "sound.json", folder / "hurt.json"
    sound.write_bytes(damage.json_text(_breakdown()))
    text = damage.json_text(damage.data(draw, _breakdown()))
    hurt.write_bytes(damage.text(draw, text) if draw.random() < 0.3 else text)
    commands = [
        ["compare", str(sound), str(hurt)],
        ["compare", str(hurt), str(sound), "--format", "json"],
        ["project", str(hurt), "--gpus", "64", "--efficiency", "0.7"],
        ["project", str(hurt), "--gpus", "64", "--cluster", "dgx-h100", "--format", "json"],
        [
            "calibrate",
            str(hurt),
            "--workload",
            "gpt-tiny",
            "--plan",
            "all-reduce",
            "--micro-batch",
            "4",
            "--gpu",
            "A40",
        ],
    ]
    return draw.choice(commands)


KINDS: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        traces, logs, tables, studies, calibrations, configs, nsight, stores, benches, recordings, breakdowns,
    )
}  # fmt: skip


def prepare(kind: str, seed: int, folder: Path) -> list[str]:
    """Writes input number `seed` of a kind into `folder`, which is emptied first, and returns the command."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return KINDS[kind](random.Random(f"{kind} {seed}"), folder)
