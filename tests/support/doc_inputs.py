"""Small inputs for the console examples of the documentation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support import corpora, ddp_traces, nccl_tests, tracefiles
from support.doc_examples import ROOT
from support.results import STUDY, invented_store
from wirecost.trace.example import write_example

_LOG = "{host}:1:2 [0] NCCL INFO {text}\n"
_STAGED = [
    "NCCL version 2.21.5+cuda12.4",
    "GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
    "Using network IB",
    "comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 10 commId 0x2f1c9 - Init START",
    "Channel 00/0 : {peer}[0] -> {rank}[0] [receive] via NET/IB/0",
    "Channel 00/0 : {rank}[0] -> {peer}[0] [send] via NET/IB/0",
]
_FAILED = """\
alpha:1:2 [0] NCCL INFO NCCL version 2.27.3+cuda12.4
alpha:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 10 commId 0xc1 - Init START
beta:1:2 [0] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 10 commId 0xc1 - Init START
alpha:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
alpha:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA
beta:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA
beta:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0/GDRDMA
beta:1:9 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.1<4791> with status=12 opcode=0 len=0 vendor err 129
"""
_SEND = """\
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
def receive():
    while peer.recv(1 << 20):
        pass
thread = threading.Thread(target=receive)
thread.start()
for _ in range(50):
    client.sendall(bytes(1 << 20))
client.close()
thread.join()
"""
TABLE = """\
id,model,n_layers,hidden,heads,vocab,seq,framework,gpu,gpus_per_node,n_gpus,tp,pp,mbs,gbs,precision,iter_s
a,gpt-1.7b,24,2304,24,51200,2048,megatron,A100-SXM-80GB,8,8,1,1,4,64,bf16,4.1
b,gpt-1.7b,24,2304,24,51200,2048,megatron,A100-SXM-80GB,8,8,2,1,4,64,bf16,4.4
c,gpt-3.6b,30,3072,32,51200,2048,megatron,A100-SXM-80GB,8,8,2,1,4,64,bf16,8.2
d,gpt-3.6b,30,3072,32,51200,2048,megatron,A100-SXM-80GB,8,16,2,1,4,128,bf16,8.5
e,gpt-7.5b,36,4096,32,51200,2048,megatron,A100-SXM-80GB,8,16,4,1,4,128,bf16,17.0
f,gpt-7.5b,36,4096,32,51200,2048,megatron,A100-SXM-80GB,8,32,4,1,4,256,bf16,17.4
"""


def _traces(name: str, late: int = -1) -> Callable[[Path], object]:
    return lambda folder: tracefiles.write_job(folder / name, 2, 4, kernels=6, late=late)


def _unknown_model(folder: Path) -> None:
    config = folder / "qwen2.5-0.5b" / "config.json"
    config.parent.mkdir()
    config.write_text('{"model_type": "mamba"}')
    study = STUDY[: STUDY.index("workloads:")] + "workloads: [qwen2.5-0.5b/config.json]\n"
    (folder / "q.yaml").write_text(study + STUDY[STUDY.index("networks:") :])


def _logs(folder: Path) -> None:
    logs = folder / "nccl-logs"
    logs.mkdir()
    text = ""
    for rank, host in enumerate(("gpu-a1", "gpu-b1")):
        lines = [_LOG.format(host=host, text=line.format(rank=rank, peer=1 - rank)) for line in _STAGED]
        (logs / f"nccl.{host}.log").write_text("".join(lines))
        text += "".join(lines)
    (folder / "staged.log").write_text(text)


_INPUTS: dict[str, Callable[[Path], object]] = {
    "tests/": lambda folder: (folder / "tests").symlink_to(ROOT / "tests"),
    "traces/": _traces("traces"),
    "ddp-traces/": lambda folder: ddp_traces.write_job(folder / "ddp-traces", ddp_traces.Job(extra_us={1: 200.0})),
    "trace job": lambda folder: write_example(folder / "job"),
    'read_traces("job")': lambda folder: write_example(folder / "job"),
    "before": _traces("before", late=1),
    "after": _traces("after"),
    "nccl-logs": _logs,
    "staged.log": lambda folder: _logs(folder) if not (folder / "staged.log").exists() else None,
    "failed.log": lambda folder: (folder / "failed.log").write_text(_FAILED),
    ".nccl.conf": lambda folder: (folder / ".nccl.conf").write_text("NCCL_IB_DISABLE=true\nNCCL_DEBUG = INFO\n"),
    "send_500_MiB.py": lambda folder: (folder / "send_500_MiB.py").write_text(_SEND),
    "torchrun train.py": lambda folder: (folder / "train.py").write_text("print('trained')\n"),
    "typo.yaml": lambda folder: (folder / "typo.yaml").write_text(STUDY.replace("emulated-1g", "emulated-1gg")),
    "q.yaml": _unknown_model,
    "nccl-tests.log": lambda folder: (folder / "nccl-tests.log").write_text(nccl_tests.table()),
    "my-runs.csv": lambda folder: (folder / "my-runs.csv").write_text(TABLE),
    "measured.csv": lambda folder: (folder / "measured.csv").write_text(TABLE),
    "excerpt.xml.bz2": lambda folder: (folder / "excerpt.xml.bz2").write_bytes(
        corpora.multistream(corpora.articles(200))
    ),
    "wirecost-runs/my-study": lambda folder: invented_store(folder / "wirecost-runs" / "my-study", text=STUDY),
}
"""What makes an input, by the text in a page's commands that needs it."""


def prepare(folder: Path, files: dict[str, str], commands: str) -> None:
    """Makes the inputs that a page's commands name, and the page's own YAML files."""
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    makes_job = "trace.example job" in commands
    for needed, make in _INPUTS.items():
        if needed in commands and not (needed == "trace job" and makes_job):
            make(folder)
