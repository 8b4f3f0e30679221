"""A worker process that reads trace files, one at a time, as requested (`python -m wirecost.trace.worker`)."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import BinaryIO

from wirecost.text import encodable
from wirecost.trace.file import read_file
from wirecost.trace.source import ForeignFile, TraceError
from wirecost.trace.wire import Done, Failed, Job, Read, receive, send

_REPORT_BYTES = 1 << 23


def serve(jobs: BinaryIO, results: BinaryIO) -> None:
    """Answers each job with `Done` or `Failed`, and `Read` on the way; returns at the end of the jobs."""
    while (job := receive(jobs)) is not None:
        assert isinstance(job, Job)
        pending = 0

        def progress(count: int) -> None:
            nonlocal pending
            pending += count
            if pending >= _REPORT_BYTES:
                send(results, Read(pending))
                pending = 0

        try:
            answer = Done(read_file(Path(os.fsdecode(job.path)), job.options, progress))
        except TraceError as error:
            answer = Failed(encodable(str(error)), isinstance(error, ForeignFile))
        if pending:
            send(results, Read(pending))
        send(results, answer)


if __name__ == "__main__":
    # A worker that is interrupted ends without a message: its parent writes it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    serve(sys.stdin.buffer, sys.stdout.buffer)
