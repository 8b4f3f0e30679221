"""A Slurm of one node for a test: its daemons, in the foreground, in a folder of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from wirecost.launch.ports import free_port

SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin"
NO_SLURM = (
    None
    if all(shutil.which(program, path=SEARCH) for program in ("munged", "slurmctld", "slurmd", "srun"))
    else "no Slurm here (Debian's slurm-wlm and munge)"
)
START_S = 60.0

# Several jobs share the node's cores, so that no test waits for another's end.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus}
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE
"""


@contextmanager
def slurm() -> Iterator[dict[str, str]]:
    """Yields the environment in which `srun` and `scancel` find it."""
    with ExitStack() as undo:
        # Not pytest's folder: a socket's path has at most 107 bytes.
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        configuration = folder / "slurm.conf"
        configuration.write_text(
            CONFIGURATION.format(
                host=socket.gethostname().partition(".")[0],
                controller_port=free_port(),
                node_port=free_port(),
                folder=folder,
                cpus=os.cpu_count(),
            )
        )
        environment = os.environ | {"SLURM_CONF": str(configuration), "PATH": SEARCH}
        munged = ["munged", "--foreground", "--force", f"--key-file={key}"]  # forced: /tmp is everybody's
        munged += [f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
        for command in (munged, ["slurmctld", "-D", "-i"], ["slurmd", "-D"]):
            undo.enter_context(_running(command, environment, folder / f"{command[0]}.out"))
            if command is munged:
                _wait(folder, (folder / "munge.socket").exists)
        _wait(folder, lambda: _node(environment) == "idle")
        yield environment


@contextmanager
def _running(command: list[str], environment: dict[str, str], output: Path) -> Iterator[None]:
    with (
        output.open("wb") as file,
        subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def _node(environment: dict[str, str]) -> str:
    run = subprocess.run(["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True, text=True, check=False)
    return run.stdout.strip()


def _wait(folder: Path, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not ready():
        if time.monotonic() > deadline:
            said = "\n".join(f"{p.name}: {p.read_text(errors='replace')[-2000:]}" for p in folder.glob("*.[lo]*"))
            raise RuntimeError(f"Slurm did not start within {START_S:g} s\n{said}")
        time.sleep(0.1)
