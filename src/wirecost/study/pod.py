"""One pod of a study on Kubernetes: `python -m wirecost.study.pod SHAPE HOST,HOST... OUT`.

The study is in /wirecost/study.yaml. Each pod serves commands to the others. The first one (JOB_COMPLETION_INDEX
0) runs the experiments of the shape over all of them, and ends the others when it has finished.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from wirecost.launch.pods import PORT, end, serve

STUDY = Path("/wirecost/study.yaml")


def main(arguments: Sequence[str]) -> int:
    """Runs this pod, and returns its exit code."""
    shape, names, out = arguments
    hosts = names.split(",")
    server = serve()
    if os.environ.get("JOB_COMPLETION_INDEX", "0") != "0":
        server.serve_forever()
        return 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    remote = f"{sys.executable} -m wirecost.launch.pods at {{host}}"
    command = [sys.executable, "-m", "wirecost", "study", "run", str(STUDY), "--out", out, "--resume"]
    command += ["--launcher", "hosts", "--shape", shape, "--on", names, "--remote", remote]
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        for host in hosts[1:]:
            end(host, PORT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
