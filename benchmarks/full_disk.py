"""Runs studies on full disks of every size and checks that they stop, record nothing false and can be resumed.

usage: python benchmarks/full_disk.py [--from-kib 100] [--to-kib 2000] [--step-kib 50] [--sizes KIB ...] [--blind]

For each size a small study runs on a tmpfs of that size. If it stops, the tmpfs is enlarged and the study resumed.
Held against: exit code 2 and one line; no experiment recorded that isn't done; after resuming, every experiment
done and every file of it sound. `--blind` leaves out the runner's look at the room that is left, so that ranks and
experiments' processes meet the full disk themselves. Prints a line for each size and the counts as JSON.

Takes root or user namespaces: the file systems are mounted in a mount namespace of the benchmark's own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from wirecost.spec import Study, load
from wirecost.study import Status, Store

STUDY = """\
name: full-disk
workloads:
  - {{name: nano, layers: 1, hidden: 64, heads: 2, vocab_size: 512, sequence_length: 32}}
networks:
  - {{name: capped, emulate: {{rate: 50 Mb/s}}}}
plans: [all-reduce]
hosts: [{hosts}]
scaling: [{{kind: strong, global_batch: 4}}]
iterations: 3
warmup: 1
benchmark: {benchmark}
profile_iterations: {profiled}
periodic: {{checkpoint_every: {every}, validate_every: {every}}}
data: {{corpus: {corpus}}}
"""
ENLARGED_KIB = 64 << 10
RUN = "import sys; from wirecost.cli import main; {first}main()"
BLIND = "import wirecost.study.one_experiment as r; r.check_room = lambda path: None; "


@dataclass
class Counts:
    """Counts over all sizes; `wrong` lists deviations from the expected behaviour."""

    finished: int = 0
    stopped: int = 0
    resumed: int = 0
    stopped_by: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def run(study: Path, out: Path, *options: str, blind: bool) -> subprocess.CompletedProcess[str]:
    code = RUN.format(first=BLIND if blind else "")
    arguments = ["study", "run", str(study), "--out", str(out), *options]
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=300
    )


def try_size(study: Path, where: Path, kib: int, counts: Counts, *, blind: bool) -> str:
    """Tries one size; returns a line on the outcome."""
    wanted = {e.slug for e in load(Study, study).experiments()}
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", str(where)], check=True)
    out = where / "out"
    try:
        first = run(study, out, blind=blind)
        lines = [line for line in first.stderr.splitlines() if line.startswith("wirecost: ")]
        if first.returncode == 0:
            counts.finished += 1
            message = "finished"
        else:
            counts.stopped += 1
            message = lines[-1] if lines else first.stderr[-300:]
            file = re.sub(
                r"_[0-9a-f]{10}|rank-\d+|-[0-9a-f]{12}", "", message.split(": ")[1].removeprefix(str(out))
            )
            counts.stopped_by[re.sub(r"^/experiments/[^/]*", "EXPERIMENT", file) or "the store"] += 1
            if first.returncode != 2 or len(lines) != 1 or "Traceback" in first.stderr:
                counts.wrong.append(f"{kib} KiB: exit code {first.returncode}: {first.stderr[-2000:]}")
            if "No space left" not in message or "--resume" not in message:
                counts.wrong.append(f"{kib} KiB: says {message}")
        if (out / "experiments").is_dir():
            contents = Store(out).contents(every_byte=True)
            false = [r.directory.name for r in contents.results if r.outcome.status is not Status.DONE]
            false += [d.name for d in contents.damaged]
            false += [str(p) for p in out.glob("networks/*/failed.json")]
            counts.wrong += [f"{kib} KiB: published {name}" for name in false]
        subprocess.run(["mount", "-o", f"remount,size={ENLARGED_KIB}k", str(where)], check=True)
        again = run(study, out, "--resume", blind=blind)
        contents = Store(out).contents(every_byte=True)
        done = {r.directory.name for r in contents.results if r.outcome.status is Status.DONE}
        if again.returncode or done != wanted or contents.damaged or list(out.glob("experiments/.*")):
            counts.wrong.append(f"{kib} KiB: after --resume exit code {again.returncode}: {again.stderr[-2000:]}")
        else:
            counts.resumed += 1
    finally:
        subprocess.run(["umount", str(where)], check=True)
        where.rmdir()
    return message


def own_mounts() -> None:
    """Continues in a new mount namespace as root."""
    if os.environ.get("WIRECOST_OWN_MOUNTS"):
        return
    rootless = ["--map-root-user"] if os.geteuid() else []
    command = ["unshare", "--mount", *rootless, sys.executable, *sys.argv]
    os.execvpe(command[0], command, {**os.environ, "WIRECOST_OWN_MOUNTS": "1"})


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--from-kib", type=int, default=100)
    parser.add_argument("--to-kib", type=int, default=2000)
    parser.add_argument("--step-kib", type=int, default=50)
    parser.add_argument("--sizes", type=int, nargs="*", help="in KiB, instead of a range")
    parser.add_argument("--hosts", default="2", help="of the study's experiments, as in '1, 2'")
    parser.add_argument("--benchmark", action="store_true", help="benchmark the network first")
    parser.add_argument("--plain", action="store_true", help="no checkpoints, no validation, no profiled window")
    parser.add_argument("--blind", action="store_true", help="see above")
    options = parser.parse_args()
    own_mounts()
    counts = Counts()
    sizes = options.sizes or range(options.from_kib, options.to_kib + 1, options.step_kib)
    with tempfile.TemporaryDirectory(prefix="wirecost-full-disk-") as name:
        folder = Path(name)
        corpus, study = folder / "corpus.txt", folder / "study.yaml"
        corpus.write_text("The wire costs time, and a full disk costs a night.\n\n" * 400)
        study.write_text(
            STUDY.format(
                hosts=options.hosts,
                benchmark=str(options.benchmark).lower(),
                corpus=corpus,
                every=0 if options.plain else 2,
                profiled=0 if options.plain else 1,
            )
        )
        for kib in sizes:
            message = try_size(study, folder / "disk", kib, counts, blind=options.blind)
            print(f"{kib} KiB: {message}", file=sys.stderr, flush=True)
    print(json.dumps({"sizes": len(list(sizes)), **vars(counts)}, indent=1))
    return 1 if counts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
