"""A Slurm of one or more nodes for a test: its daemons, in the foreground, in a folder of their own."""

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

# Several jobs share the node's cores, so that no test waits for another's end. A job that is queued again waits
# until its credential has expired, which is two minutes by default.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/finished-jobs
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
MinJobAge=300
KillWait=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
TreeWidth=16
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE
"""


@contextmanager
def slurm(nodes: int = 1) -> Iterator[dict[str, str]]:
    """Yields the environment in which `srun`, `sbatch` and `scancel` find it. All nodes are this machine."""
    with ExitStack() as undo:
        # Not pytest's folder: a socket's path has at most 107 bytes.
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        (folder / "state").mkdir()
        host = socket.gethostname().partition(".")[0]
        names = [host] if nodes == 1 else [f"node{number}" for number in range(1, nodes + 1)]
        for name in names:
            (folder / f"spool-{name}").mkdir()
        configuration = folder / "slurm.conf"
        configuration.write_text(
            CONFIGURATION.format(
                host=host,
                controller_port=free_port(),
                folder=folder,
                nodes="\n".join(
                    f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} "
                    f"CPUs={max(4, os.cpu_count() or 1)}"
                    for name in names
                ),
            )
        )
        environment = os.environ | {"SLURM_CONF": str(configuration), "PATH": SEARCH}
        munged = ["munged", "--foreground", "--force", f"--key-file={key}"]  # forced: /tmp is everybody's
        munged += [f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
        daemons = [["slurmd", "-D", "-N", name] for name in names]
        for number, command in enumerate((munged, ["slurmctld", "-D", "-i"], *daemons)):
            undo.enter_context(_running(command, environment, folder / f"{command[0]}-{number}.out"))
            if command is munged:
                _wait(folder, (folder / "munge.socket").exists)
        _wait(folder, lambda: _states(environment) == ["idle"] * nodes)
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


def _states(environment: dict[str, str]) -> list[str]:
    command = ["sinfo", "-h", "-N", "-o", "%t"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return run.stdout.split()


def _wait(folder: Path, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not ready():
        if time.monotonic() > deadline:
            said = "\n".join(f"{p.name}: {p.read_text(errors='replace')[-2000:]}" for p in folder.glob("*.[lo]*"))
            raise RuntimeError(f"Slurm did not start within {START_S:g} s\n{said}")
        time.sleep(0.1)
