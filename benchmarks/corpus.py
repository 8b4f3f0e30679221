"""Speed and memory of `wirecost data prepare`, beside the libraries alone, and of reading a corpus back.

    PYTHONPATH=src python benchmarks/corpus.py DUMP.xml.bz2 --copies 8

The dump is repeated with other titles into one of several bzip2 streams. Libraries: mwxml with mwparserfromhell
(extraction), and tokenizers with GPT-2's vocabulary (tokenization), each alone in one process with one thread.
Throughput is in MB of the dump's XML for each second of CPU time, which other programs on the machine change little,
and in MB for each second that passes.
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


def rate(size: int, result: dict[str, float]) -> str:
    return f"{size / 1e6 / result['cpu_s']:6.2f} MB per CPU second, {size / 1e6 / result['wall_s']:6.2f} MB/s"


def measured(call: Callable[[], object]) -> dict[str, float]:
    result: dict[str, float] = {}
    with timed(result):
        call()
    return result


def preparation(dump: Path, copies: int, scratch: Path, workers: int) -> Path:
    """Prints the speed of the libraries alone and of the whole; returns the prepared corpus."""
    xml = bz2.decompress(dump.read_bytes())
    vocabulary = find_vocabulary("gpt2")
    assert vocabulary is not None
    encoder = Encoder(vocabulary)
    extraction = measured(lambda: library_extraction(xml))
    source = inspect(dump)
    texts: list[str] = []
    part = Part(0, 0, source.size)
    own = measured(lambda: texts.extend(d.text for d in documents(source, part, Options(), Counts())))
    tokenizer = encoder._tokenizer
    tokenization = measured(lambda: tokenizer.encode_batch(texts, add_special_tokens=False))
    own_tokenization = measured(lambda: list(encoder.encode(texts)))
    print(f"mwxml and mwparserfromhell alone      {rate(len(xml), extraction)}")
    print(f"wirecost's extraction                 {rate(len(xml), own)}")
    print(f"tokenizers alone, on the text         {rate(len(xml), tokenization)}")
    print(f"wirecost's tokenization               {rate(len(xml), own_tokenization)}")
    big, small = scratch / "big.xml.bz2", scratch / "small.xml.bz2"
    size = repeated(dump, copies, big)
    small_size = repeated(dump, max(1, copies // 8), small)
    with Memory() as small_memory:
        prepare(Request((small,), "gpt2", scratch / "small", workers=workers))
    whole: dict[str, float] = {}
    with Memory() as memory, timed(whole):
        manifest = prepare(Request((big,), "gpt2", scratch / "big", workers=workers))
    print(f"wirecost data prepare, {workers} processes     {rate(size, whole)}")
    slower = max(extraction["cpu_s"], tokenization["cpu_s"]) / len(xml)
    print(f"of the slower library alone, for each CPU second: {100 * slower * size / whole['cpu_s']:.0f} %")
    alone_s = max(extraction["wall_s"], tokenization["wall_s"]) / len(xml)
    print(f"of the slower library alone, in passed time:      {100 * alone_s * size / whole['wall_s']:.0f} %")
    print(f"cores used: {whole['cpu_s'] / whole['wall_s']:.2f} of {os.cpu_count()}")
    print(f"memory: {memory.peak_bytes / 1e6:.0f} MB for {size / 1e6:.0f} MB of XML, "
          f"{small_memory.peak_bytes / 1e6:.0f} MB for {small_size / 1e6:.0f} MB")  # fmt: skip
    cpu_s = whole["cpu_s"] / manifest.counts["characters"] * ENWIKI_TEXT_BYTES
    print(f"the English Wikipedia, 20.4 GB of text: {cpu_s / workers / 3600:.1f} h on {workers} idle cores")
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
        taken = [measured(lambda n=n: batches.share(n, 0, 1))["wall_s"] for n in range(1, count + 1)]
        tokens = 16 * examples.length
        print(f"reading for {family:4}, {state}: {tokens * count / sum(taken) / 1e6:6.2f} M tokens/s, "
              f"median {tokens / np.median(taken) / 1e6:6.2f} M tokens/s")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    single_threaded()
    with tempfile.TemporaryDirectory(prefix="wirecost-corpus-") as name:
        scratch = Path(name)
        corpus = preparation(arguments.dump, arguments.copies, scratch, arguments.workers)
        reading(corpus, "gpt", 50304, 1024)
        for tokenizer, family, size, length in (("bert", "bert", 30720, 512), ("t5", "t5", 32256, 512)):
            out = scratch / tokenizer
            prepare(Request((arguments.dump,), tokenizer, out, workers=arguments.workers))
            reading(out, family, size, length)


if __name__ == "__main__":
    main()
