"""`wirecost data` with real processes, on the excerpt of Wikipedia and on hostile dumps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import corpora
from support.commands import wirecost_here
from support.doc_examples import ROOT

pytest.importorskip("mwxml")
pytest.importorskip("tokenizers")


def command(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "wirecost", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}/src", "COLUMNS": "120"} | environment,
        start_new_session=True,
    )


def run(*arguments: object, code: int = 0, **environment: str) -> tuple[str, str]:
    with command(*arguments, **environment) as process:
        out, err = process.communicate(timeout=280)
    assert process.returncode == code, err
    return out, err


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dump that takes some seconds in many parts."""
    path = tmp_path_factory.mktemp("large") / "dump.xml"
    path.write_bytes(corpora.dump(corpora.articles(2000, 200)))
    return path


def preparing(source: Path, out: Path) -> tuple[object, ...]:
    """Returns the arguments that prepare a corpus in several shards."""
    options = ("--tokenizer", "bpe", "--vocab-size", 400, "--shard-tokens", 200_000)
    return ("data", "prepare", source, *options, "--out", out)


@pytest.fixture(scope="module")
def whole(large: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "corpus"
    run(*preparing(large, out))
    return out


def test_the_excerpt_of_wikipedia(tmp_path: Path) -> None:
    path, out = corpora.excerpt(), tmp_path / "corpus"
    printed, _ = run(
        "data", "prepare", path, "--tokenizer", "bpe", "--vocab-size", 2048, "--out", out, "--format", "json"
    )
    made = json.loads(printed)
    assert made == manifest(out)
    # Counted with other programs: 206 pages, 99 of them redirects, one a page of the project.
    assert made["counts"]["pages"] == 206
    assert made["counts"]["redirects"] == 99
    assert sum(shard["documents"] for shard in made["shards"]) == 106
    assert 2_600_000 < made["counts"]["characters"] < 3_100_000
    printed, _ = run("data", "show", out, "--text", 30)
    assert "Anarchism is a political philosophy" in printed
    printed, _ = run("data", "prepare", path, "--tokenizer", "bpe", "--dry-run", "--format", "json")
    assert json.loads(printed)["source_bytes"] == path.stat().st_size


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_run_is_resumed(tmp_path: Path, large: Path, whole: Path, number: signal.Signals) -> None:
    out = tmp_path / "corpus"
    arguments = preparing(large, out)
    with command(*arguments, "--workers", 1) as process:
        while process.poll() is None and not (out / "text-00000.idx").exists():
            time.sleep(0.02)
        # The whole group gets Ctrl-C, as from a terminal.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number), err
        wait_for_end_of_group(process.pid)
    assert not manifest(out)["complete"]
    if number != signal.SIGKILL:
        assert len(err.splitlines()) == 1
        assert not list(out.glob(".*.partial"))
    _, err = run(*arguments, code=2)
    assert "go on with --resume" in err
    run(*arguments, "--resume", "--workers", 2)
    same = {p.name: p.read_bytes() for p in whole.iterdir() if p.suffix in (".bin", ".idx")}
    assert {p.name: p.read_bytes() for p in out.iterdir() if p.suffix in (".bin", ".idx")} == same
    assert len(same) >= 4
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in whole.iterdir())


def wait_for_end_of_group(group: int) -> None:
    """Waits until no process of a group is left."""
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("processes are left behind")


def test_a_page_that_takes_too_long_or_ends_its_process_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    pages = corpora.articles(5)
    pages[2] = corpora.page("Hangs", "HANG")
    pages[4] = corpora.page("Crashes", "CRASH")
    path.write_bytes(corpora.dump(pages))
    # A site module makes the parser hang or crash.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\nimport mwparserfromhell as m\nparse = m.parse\n"
        "def hostile(text, *a, **k):\n"
        "    if 'HANG' in text: time.sleep(1000)\n"
        "    if 'CRASH' in text: os.abort()\n"
        "    return parse(text, *a, **k)\n"
        "m.parse = hostile\n"
        "import wirecost.corpus.pool as p\np.RECORD_LIMIT_S = 3.0\nimport wirecost.corpus.request as r\n"
        "r.Request.__init__.__defaults__ = tuple(3.0 if d == 120.0 else d for d in r.Request.__init__.__defaults__)\n"
    )
    out = tmp_path / "corpus"
    run(
        "data", "prepare", path, "--tokenizer", "bpe", "--vocab-size", 300, "--out", out,
        PYTHONPATH=f"{tmp_path}:{ROOT}/src",
    )  # fmt: skip
    assert manifest(out)["counts"]["unreadable"] == 2
    assert manifest(out)["shards"][0]["documents"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.xml", "--tokenizer", "bpe", "--out", "o"), "nothing.xml: no such file"),
        (("text", "--tokenizer", "gpt3", "--out", "o"), "--tokenizer gpt3: no such name, file or folder"),
        (("text", "--tokenizer", "bpe"), "--out is missing"),
        (("text", "--tokenizer", "bpe", "--out", "o", "--documents", "page"), "unknown --documents 'page'"),
        (("text", "--tokenizer", "bpe", "--out", "text"), "is a file; --out names a folder"),
        (("text", "text", "--tokenizer", "bpe", "--out", "o"), "is named twice"),
        (("/dev/zero", "--tokenizer", "bpe", "--out", "o"), "is a device"),
    ],
)
def test_a_mistake_gets_one_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "text").write_text("Some words. " * 50)
    refused = wirecost_here("data", "prepare", *arguments, cwd=tmp_path)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "o").exists()


STUDY = """\
name: trained
workloads:
  - {{name: gpt, layers: 1, hidden: 32, heads: 2, vocab_size: {size}, sequence_length: 32}}
  - {{name: bert, family: bert, layers: 1, hidden: 32, heads: 2, vocab_size: 640, sequence_length: 32}}
  - {{name: t5, family: t5, layers: 1, decoder_layers: 1, hidden: 32, heads: 2, vocab_size: 640, sequence_length: 32,
     activation: relu, norm: rmsnorm, positions: relative, biases: false}}
networks: [loopback]
plans: [ddp]
hosts: [1]
scaling: [{{kind: strong, global_batch: 4}}]
iterations: 2
warmup: 1
data: {{corpus: {corpus}}}
periodic: {{validate_every: 2}}
"""


def test_a_study_trains_on_a_corpus(tmp_path: Path, whole: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.format(size=128, corpus=whole))
    _, err = run("study", "run", study, "--dry-run", code=2)
    assert (
        "its token ids need a vocab_size of at least 400, and workload 'gpt' has 128; set vocab_size: 512" in err
    )
    study.write_text(STUDY.format(size=512, corpus=whole))
    run("study", "run", study, "--out", tmp_path / "out")
    samples = list((tmp_path / "out" / "experiments").glob("*/samples/rank-0.jsonl"))
    assert len(samples) == 3
    for path in samples:
        assert all(json.loads(line)["loss"] > 0 for line in path.read_text().splitlines())
    study.write_text(STUDY.format(size=512, corpus=whole / "text-00000"))
    _, err = run("study", "run", study, "--dry-run")
    assert not err.startswith("wirecost:")
