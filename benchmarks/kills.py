"""Ends commands by signals at random moments and prints what is left of them: `python benchmarks/kills.py`.

    PYTHONPATH=src python benchmarks/kills.py --count 200

Every kind of command (studies and benchmarks, native and emulated) meets every signal (SIGINT, SIGTERM, SIGHUP,
SIGQUIT, SIGKILL). Wanted: 5 s after the end, no process, temporary directory or shared memory is left.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.kills import Killed, end_many

WANTED_S = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=4)
    options = parser.parse_args()
    shared_memory = set(Path("/dev/shm").iterdir())
    groups: dict[tuple[str, str], list[Killed]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        for killed in end_many(options.count, Path(name), seed=options.seed, at_once=options.at_once):
            groups[killed.kind, killed.signal.name].append(killed)
    print(f"{'command':32} {'signal':8} {'ended':>5} {'left something':>15} {'slowest gone':>13}")
    late = 0
    for (kind, signal_name), ended in sorted(groups.items()):
        slowest_s = max(killed.gone_after_s for killed in ended)
        leaked = sum(bool(killed.left) for killed in ended)
        late += sum(killed.gone_after_s > WANTED_S for killed in ended)
        print(f"{kind:32} {signal_name:8} {len(ended):5} {leaked:15} {slowest_s:11.1f} s")
    new = sorted(set(Path("/dev/shm").iterdir()) - shared_memory)
    print(f"{options.count} ended, {late} not gone within {WANTED_S:.0f} s, {len(new)} files left in /dev/shm")
    return 1 if late or new else 0


if __name__ == "__main__":
    sys.exit(main())
