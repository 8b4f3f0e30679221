"""Speed and memory of `wirecost data prepare`, beside the libraries alone, and of reading a corpus back.

    PYTHONPATH=src python benchmarks/corpus.py DUMP.xml.bz2 --copies 8

Libraries: mwxml with mwparserfromhell (extraction), and tokenizers with GPT-2's vocabulary (tokenization), each
alone in one process with one thread. Their throughput is in MB of the dump's XML for each second of CPU time. For
the whole command the dump is repeated, with other titles, into a dump of many bzip2 streams.
"""

from __future__ import annotations

import argparse
import bz2
import io
import os
import re
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from wirecost.corpus.encoder import Encoder, single_threaded
from wirecost.corpus.extract import Counts, Options, Part, documents
from wirecost.corpus.prepare import prepare
from wirecost.corpus.prepared import load_windows
from wirecost.corpus.request import Request
from wirecost.corpus.sources import inspect
from wirecost.corpus.tokenize import tokenize
from wirecost.corpus.vocabularies import find_vocabulary

ENWIKI_TEXT_BYTES = 20.4e9
"""Text of the English Wikipedia that the reference study trained on."""


def repeated(path: Path, copies: int, out: Path) -> int:
    """Writes a dump of many streams with the pages of another one several times; returns the size of its XML."""
    xml = bz2.decompress(path.read_bytes())
    first, last = xml.index(b"<page>"), xml.rindex(b"</page>") + len(b"</page>")
    pages = re.findall(rb"<page>.*?</page>", xml[first:last], re.S)
    size = 0
    with out.open("wb") as file:
        file.write(bz2.compress(xml[:first]))
        for copy in range(copies):
            for start in range(0, len(pages), 20):
                part = b"\n".join(pages[start : start + 20]).replace(b"<title>", b"<title>%d " % copy)
                size += len(part)
                file.write(bz2.compress(part))
        file.write(bz2.compress(xml[last:]))
    return size


@contextmanager
def timed(result: dict[str, float]) -> Iterator[None]:
    """Measures passed and CPU time, of ended child processes too."""

    def cpu() -> float:
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(u.ru_utime + u.ru_stime for u in usages)

    wall_s, cpu_s = time.perf_counter(), cpu()
    yield
    result["wall_s"], result["cpu_s"] = time.perf_counter() - wall_s, cpu() - cpu_s


class Memory:
    """The largest memory of this process and its children (proportional set size), sampled ten times a second."""

    def __enter__(self) -> Memory:
        self.peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(0.1):
            total = 0
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            for pid in ["self", *children]:
                try:
                    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                except OSError:
                    continue
                total += int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1]) << 10  # type: ignore[index]
            self.peak_bytes = max(self.peak_bytes, total)


def library_extraction(xml: bytes) -> list[str]:
    import mwparserfromhell
    import mwxml

    texts = []
    for page in mwxml.Dump.from_file(io.BytesIO(xml)):
        for revision in page:
            if page.redirect is None and page.namespace == 0:
                texts.append(str(mwparserfromhell.parse(revision.text or "").strip_code()))
    return texts


def measured(call: Callable[[], object]) -> dict[str, float]:
    result: dict[str, float] = {}
    with timed(result):
        call()
    return result


def libraries(dump: Path, rounds: int) -> None:
    """Prints the speed of the libraries alone and of wirecost in one process. They take turns, so that other
    programs slow all of them down alike."""
    xml = bz2.decompress(dump.read_bytes())
    vocabulary = find_vocabulary("gpt2")
    assert vocabulary is not None
    encoder = Encoder(vocabulary)
    source, part = inspect(dump), Part(0, 0, dump.stat().st_size, last=True)
    texts = [document.text for document in documents(source, part, Options(), Counts())]
    calls: dict[str, Callable[[], object]] = {
        "mwxml and mwparserfromhell alone": lambda: library_extraction(xml),
        "wirecost's extraction": lambda: list(documents(source, part, Options(), Counts())),
        "tokenizers alone": lambda: encoder._tokenizer.encode_batch(texts, add_special_tokens=False),
        "wirecost's tokenization": lambda: list(encoder.encode(texts)),
        "wirecost: bzip2 to token ids": lambda: tokenize(
            source, part, Options(), encoder, sentences=False, end_documents=True
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            seconds[name].append(measured(call)["cpu_s"])
    median = {name: float(np.median(values)) for name, values in seconds.items()}
    for name, value in median.items():
        print(f"{name:34} {len(xml) / 1e6 / value:6.2f} MB/s")
    slower = max(median["mwxml and mwparserfromhell alone"], median["tokenizers alone"])
    print(f"extraction and tokenization, of the slower library alone: "
          f"{100 * slower / median['wirecost: bzip2 to token ids']:.0f} %")  # fmt: skip


def preparation(dump: Path, copies: int, scratch: Path, workers: int) -> Path:
    """Prints the speed and memory of the whole command; returns the prepared corpus."""
    big, small = scratch / "big.xml.bz2", scratch / "small.xml.bz2"
    size = repeated(dump, copies, big)
    small_size = repeated(dump, max(1, copies // 8), small)
    with Memory() as small_memory:
        prepare(Request((small,), "gpt2", scratch / "small", workers=workers))
    whole: dict[str, float] = {}
    with Memory() as memory, timed(whole):
        manifest = prepare(Request((big,), "gpt2", scratch / "big", workers=workers))
    print(f"{workers} processes: {size / 1e6 / whole['cpu_s']:.2f} MB for each second of CPU time, "
          f"{size / 1e6 / whole['wall_s']:.2f} MB/s")  # fmt: skip
    print(f"cores used: {whole['cpu_s'] / whole['wall_s']:.2f} of {os.cpu_count()}, "
          f"with a load of {os.getloadavg()[0]:.1f} on the machine")  # fmt: skip
    print(f"memory: {memory.peak_bytes / 1e6:.0f} MB for {size / 1e6:.0f} MB of XML, "
          f"{small_memory.peak_bytes / 1e6:.0f} MB for {small_size / 1e6:.0f} MB")  # fmt: skip
    cpu_s = whole["cpu_s"] / manifest.counts["characters"] * ENWIKI_TEXT_BYTES
    print(f"the English Wikipedia, 20.4 GB of text: {cpu_s / workers / 3600:.1f} h on {workers} cores alone")
    return scratch / "big"


def forget(folder: Path) -> None:
    """Drops a corpus from the page cache."""
    os.sync()
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def reading(folder: Path, family: str, vocab_size: int, length: int) -> None:
    """Prints how fast one rank gets its micro-batches from a cold and from a warm memory map."""
    from wirecost.spec import Workload
    from wirecost.train.batches import Batches
    from wirecost.train.models import prepared_examples_for

    more = {"decoder_layers": 1, "decoder_sequence_length": 128, "activation": "relu"} if family == "t5" else {}
    workload = Workload.model_validate(
        {"name": "w", "family": family, "layers": 1, "hidden": 64, "heads": 1, "vocab_size": vocab_size,
         "sequence_length": length, **more}
    )  # fmt: skip
    for state in ("cold", "warm"):
        if state == "cold":
            forget(folder)
        windows = load_windows(folder, length)
        examples = prepared_examples_for(workload, windows.corpus.vocabulary)
        batches = Batches(windows, examples, global_batch=16, micro_batch=16, seed=1)
        count = max(1, min(200, len(windows) // (16 * length)))
        batches.share(0, 0, 1)
        taken: list[float] = []
        cpu_s = time.process_time()
        for number in range(1, count + 1):
            begun_s = time.perf_counter()
            batches.share(number, 0, 1)
            taken.append(time.perf_counter() - begun_s)
        cpu_s = (time.process_time() - cpu_s) / count
        tokens = 16 * examples.length
        print(
            f"reading for {family:4}, {length} tokens, {state}: {tokens / np.median(taken) / 1e6:.2f} M tokens/s, "
            f"{tokens / cpu_s / 1e6:6.2f} M tokens for each second of CPU time ({count} batches)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    single_threaded()
    with tempfile.TemporaryDirectory(prefix="wirecost-corpus-") as name:
        scratch = Path(name)
        libraries(arguments.dump, arguments.rounds)
        corpus = preparation(arguments.dump, arguments.copies, scratch, arguments.workers)
        reading(corpus, "gpt", 50304, 1024)
        for tokenizer, family, size, length in (("bert", "bert", 30720, 512), ("t5", "t5", 32256, 512)):
            out = scratch / tokenizer
            prepare(Request((arguments.dump,), tokenizer, out, workers=arguments.workers))
            reading(out, family, size, length)


if __name__ == "__main__":
    main()
