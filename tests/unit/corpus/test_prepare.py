from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import zstandard

from support import corpora
from wirecost import decompression
from wirecost.corpus import parts, pool, shards, sources
from wirecost.corpus.estimate import estimate
from wirecost.corpus.extract import Counts, Options, Part
from wirecost.corpus.extract import documents as documents_of
from wirecost.corpus.manifest import Manifest, load_manifest
from wirecost.corpus.prepare import prepare
from wirecost.corpus.prepared import PreparedCorpus
from wirecost.corpus.request import Request, Silent
from wirecost.errors import SpecError, WirecostError

pytest.importorskip("mwxml")
pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a tokenizer whose ids are the bytes of the text, and 256 at the end of a document."""
    import tokenizers

    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE({**{c: n for n, c in enumerate(alphabet)}, "<|endoftext|>": 256}, [])
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    path.write_text(made.to_str())
    return str(path)


@pytest.mark.parametrize("place", ["/proc/corpus", "/dev/null/corpus"])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, place: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("some words\n")
    with pytest.raises(SpecError, match=r"can't be made: .*; choose another --out"):
        prepare(Request((path,), "bpe", Path(place)))


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Tokenizes in this process: starting others takes a second. The tests of the command start them."""

    class Pool(pool.Pool):
        def __init__(self, setup, workers: int, *, record_limit_s: float) -> None:
            from wirecost.corpus.encoder import Encoder

            self.setup, self.encoder = setup, Encoder(setup.vocabulary)
            self._workers = []

        def results(self, parts):
            from wirecost.corpus.tokenize import tokenize

            for part in parts:
                source = self.setup.sources[part.source]
                yield (
                    part,
                    tokenize(
                        source,
                        part,
                        self.setup.options,
                        self.encoder,
                        sentences=self.setup.sentences,
                        end_documents=self.setup.end_documents,
                    ),
                )

    monkeypatch.setattr(shards, "Pool", Pool)


def texts(folder: Path) -> list[str]:
    """Returns the documents of a corpus."""
    import tokenizers

    decoder = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = []
    for shard in PreparedCorpus(folder).shards:
        borders = np.append(shard.pointers // shard.tokens.itemsize, len(shard.tokens))[shard.documents]
        for first, last in itertools.pairwise(borders):
            ids = shard.tokens[first:last].tolist()
            assert ids[-1] == 256
            found.append(decoder.decode(ids[:-1]))
    return found


def made(
    tmp_path: Path, content: bytes | Sequence[bytes], tokenizer: str, name: str = "in", **options: object
) -> tuple[Manifest, list[str]]:
    """Prepares files; returns the manifest and the documents."""
    contents = [content] if isinstance(content, bytes) else content
    paths = [tmp_path / f"{name}-{n}" for n in range(len(contents))]
    for path, data in zip(paths, contents, strict=True):
        path.write_bytes(data)
    out = tmp_path / f"{name}-out"
    manifest = prepare(Request(tuple(paths), tokenizer, out, **options))  # type: ignore[arg-type]
    return manifest, texts(out)


def test_a_dump_becomes_its_articles(tmp_path: Path, tokenizer: str) -> None:
    pages = [
        corpora.page("First", "Some '''text''' {{t|{{u}}}}."),
        corpora.page("Moved", "#REDIRECT [[First]]", redirect="First"),
        corpora.page("Old", "#redirect [[First]]"),
        corpora.page("Diskussion:First", "talk", namespace=1),
        corpora.page("Nothing", "{{only a template}}"),
        corpora.page("First", "The same title again."),
        corpora.page("Ελληνικά", "Η γλώσσα 中文 العربية"),
        corpora.page("<&>", "a &lt;b&gt; & c"),
    ]
    manifest, documents = made(tmp_path, corpora.dump(pages), tokenizer)
    assert documents == [
        "First\n\nSome text .",
        "Ελληνικά\n\nΗ γλώσσα 中文 العربية",
        "<&>\n\na <b> & c",
    ]
    counts = manifest.counts
    assert (counts["pages"], counts["redirects"], counts["other_namespaces"]) == (8, 2, 1)
    assert (counts["empty"], counts["duplicates"]) == (1, 1)
    assert manifest.complete
    assert load_manifest(tmp_path / "in-out") == manifest


def test_a_dump_without_namespaces_and_siteinfo(tmp_path: Path, tokenizer: str) -> None:
    pages = [corpora.page("A", "text", namespace=None), corpora.page("Diskussion:A", "talk", namespace=None)]
    _, documents = made(tmp_path, corpora.dump(pages), tokenizer)
    assert documents == ["A\n\ntext"]
    _, documents = made(tmp_path, f"<mediawiki>{''.join(pages)}</mediawiki>".encode(), tokenizer, "bare")
    assert documents == ["A\n\ntext", "Diskussion:A\n\ntalk"]


def packed(data: bytes, how: str) -> bytes:
    if how == "gzip":
        return gzip.compress(data)
    if how == "xz":
        return lzma.compress(data)
    if how == "zstd":
        return zstandard.compress(data)
    return bz2.compress(data, 1) if how == "bzip2" else data


@pytest.mark.parametrize("how", ["none", "bzip2", "gzip", "xz", "zstd", "multistream"])
def test_compression_and_parts_make_no_difference(
    tmp_path: Path, tokenizer: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_LEAST_CHUNK_BYTES", 1000)
    monkeypatch.setattr(sources, "_CHUNKS", 7)
    monkeypatch.setattr(parts, "_PART_BYTES", 9000)
    pages = corpora.articles(150)
    data = corpora.multistream(pages, 4) if how == "multistream" else packed(corpora.dump(pages), how)
    _, documents = made(tmp_path, data, tokenizer)
    assert [d.split("\n")[0] for d in documents] == [f"Title {n}" for n in range(150)]
    assert all(d.endswith(f"The end of {n}.") for n, d in enumerate(documents))


@pytest.mark.parametrize("how", ["none", "bzip2", "gzip", "multistream"])
@pytest.mark.parametrize("left", [0.3, 0.8])
def test_a_cut_dump_keeps_every_whole_page_and_says_what_was_lost(
    tmp_path: Path, tokenizer: str, how: str, left: float
) -> None:
    pages = corpora.articles(900)
    data = corpora.multistream(pages, 4) if how == "multistream" else packed(corpora.dump(pages), how)
    cut = data[: int(left * len(data))]
    manifest, documents = made(tmp_path, cut, tokenizer)
    assert manifest.sources[0].losses["cut_off"]
    if how == "none":
        whole = cut.count(b"</page>")
    elif how == "gzip":
        whole = len(documents)  # how much can be decompressed depends on the library
        assert 0.5 * left * 900 < whole < 900
    else:
        decompressed = b"".join(b.data or b"" for b in blocks_of(cut))
        whole = decompressed.count(b"</page>")
    assert [d.split("\n")[0] for d in documents] == [f"Title {n}" for n in range(whole)]


def blocks_of(data: bytes):
    import io

    from wirecost.corpus.blocks import blocks

    return blocks(io.BytesIO(data), 0)


def test_a_damaged_block_costs_only_its_pages(tmp_path: Path, tokenizer: str) -> None:
    data = bytearray(bz2.compress(corpora.dump(corpora.articles(900)), 1))
    every = list(blocks_of(bytes(data)))
    assert len(every) > 4
    data[every[2].start + every[2].size // 2] ^= 0x55
    manifest, documents = made(tmp_path, bytes(data), tokenizer)
    losses = manifest.sources[0].losses
    assert (losses["blocks"], losses["places"]) == (1, [every[2].start])
    before = b"".join(b.data or b"" for b in every[:2]).count(b"</page>")
    behind = b"".join(b.data or b"" for b in every[3:]).count(b"<page>")
    titles = [int(d.split("\n")[0].split()[1]) for d in documents]
    assert titles == [*range(before), *range(900 - behind, 900)]


def test_a_page_of_ten_megabytes(tmp_path: Path) -> None:
    long = "\n\n".join(f"[[Paragraph]] {n}: " + "many words " * 90 for n in range(10 * 2**20 // 1000))
    assert len(long) > 10 * 2**20
    path = tmp_path / "dump.xml"
    path.write_bytes(corpora.dump([corpora.page("Long", long), corpora.page("Short", "x")]))
    source, counts = sources.inspect(path), Counts()
    first, second = documents_of(source, Part(0, 0, source.size), Options(), counts)
    assert first.text.split() == ["Long", *long.replace("[[", "").replace("]]", "").split()]
    assert second.text == "Short\n\nx"


def test_invalid_utf8_is_repaired_and_counted(tmp_path: Path, tokenizer: str) -> None:
    data = corpora.dump([corpora.page("A", "caf@ society"), corpora.page("B", "b")]).replace(b"@", b"\xe9")
    manifest, documents = made(tmp_path, data, tokenizer)
    assert documents == ["A\n\ncaf\N{REPLACEMENT CHARACTER} society", "B\n\nb"]
    assert manifest.counts["invalid_utf8"] == 1


def test_a_page_that_is_no_xml_costs_only_itself(tmp_path: Path, tokenizer: str) -> None:
    broken = corpora.page("A", "a").replace("<revision>", "<revision")
    control = corpora.page("C", "c\x01d")
    entity = corpora.page("E", "e").replace(">e<", ">&undefined;<")
    manifest, documents = made(
        tmp_path, corpora.dump([broken, control, entity, corpora.page("B", "b")]), tokenizer
    )
    assert documents == ["C\n\nc d", "B\n\nb"]
    assert manifest.counts["unreadable"] == 2


def test_json_lines(tmp_path: Path, tokenizer: str) -> None:
    rows = [
        '{"text": "one", "id": 1}',
        "",
        '{"text": "zwei ü\\ud83d"}',
        '{"other": 1}',
        "{broken",
        '{"text": 5}',
        '{"text": ""}',
        "[1]",
    ]
    manifest, documents = made(tmp_path, ("\r\n".join(rows) + '\n{"text": "last"}').encode(), tokenizer)
    assert documents == ["one", "zwei ü?", "last"]
    assert manifest.counts["unreadable"] == 4
    _, documents = made(tmp_path, b'{"body": "x"}\n', tokenizer, "key", options=Options(text_key="body"))
    assert documents == ["x"]


@pytest.mark.parametrize(
    ("what", "documents"),
    [
        ("file", ["a\nb\n\nc\n \n\nd\n"]),
        ("blank-line", ["a\nb", "c", "d"]),
        ("line", ["a", "b", "c", "d"]),
    ],
)
def test_text(tmp_path: Path, tokenizer: str, what: str, documents: list[str]) -> None:
    assert made(tmp_path, b"a\nb\n\nc\n \n\nd\n", tokenizer, options=Options(text_documents=what))[1] == documents


@pytest.mark.parametrize("how", ["none", "bzip2", "gzip"])
def test_each_text_file_is_one_document(
    tmp_path: Path, tokenizer: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_LEAST_CHUNK_BYTES", 1000)
    monkeypatch.setattr(parts, "_PART_BYTES", 1000)
    contents = ["".join(f"line {n} of file {m}\n" for n in range(700)) for m in range(2)]
    _, documents = made(tmp_path, [packed(c.encode(), how) for c in contents], tokenizer)
    assert documents == contents


def test_parquet(tmp_path: Path, tokenizer: str) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    rows = [None if n == 3 else f"row {n} ü" for n in range(500)]
    pq.write_table(pa.table({"text": rows, "id": list(range(500))}), path, row_group_size=64)
    _, documents = made(tmp_path, path.read_bytes(), tokenizer)
    assert documents == [row for row in rows if row]
    for key, message in (
        ("nothing", "has no column 'nothing'; its columns are text, id"),
        ("id", "contains int64"),
    ):
        with pytest.raises(SpecError, match=message):
            made(tmp_path, path.read_bytes(), tokenizer, key, options=Options(text_key=key))
    with pytest.raises(SpecError, match="can't be read as Parquet"):
        made(tmp_path, path.read_bytes()[:3000], tokenizer, "cut")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "contains no text"),
        (b"a\0b", "is binary"),
        ("text".encode("utf-16"), "is UTF-16"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(50), "is a 7z archive"),
        (b"PK\x03\x04" + bytes(50), "is a ZIP archive"),
        (b"<?xml version='1.0'?><rss></rss>", "no MediaWiki dump"),
        (b'[{"text": "a"}]', "is one JSON array"),
        (b"BZh91AY&SY" + bytes(50), "nothing can be decompressed"),
        (
            corpora.dump([corpora.page("A", "x", namespace=1)]),
            "no text was found in it .1 other namespaces, 1 pages.",
        ),
        (b'{"a": 1}\n', "no text was found"),
    ],
)
def test_what_is_no_corpus_is_refused_in_one_line(
    tmp_path: Path, tokenizer: str, content: bytes, message: str
) -> None:
    with pytest.raises(SpecError, match=message) as error:
        made(tmp_path, content, tokenizer)
    assert "\n" not in str(error.value)


def test_a_bomb_is_refused(tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "FREE_BYTES", 1 << 20)
    with pytest.raises(SpecError, match="times as much: refused"):
        made(tmp_path, bz2.compress(b"a" * (8 << 20)), tokenizer)
    with pytest.raises(SpecError, match="times as much: refused"):
        made(tmp_path, zstandard.compress(b"a" * (8 << 20)), tokenizer, "zstd")


def test_shards_end_alike_and_an_interrupted_run_is_resumed(
    tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_LEAST_CHUNK_BYTES", 2000)
    pages = [*corpora.articles(200), corpora.page("Title 3", "again")]
    whole, documents = made(tmp_path, corpora.multistream(pages), tokenizer, "whole", shard_tokens=20_000)
    assert len(whole.shards) > 3
    assert len(documents) == 200
    path = tmp_path / "whole-0"
    request = Request((path,), tokenizer, tmp_path / "out", shard_tokens=20_000)

    class Interrupted(Exception):
        pass

    class Interrupting(Silent):
        calls = 0

        def advanced(self, done: int, total: int, documents: int, tokens: int, left_s: float | None) -> None:
            self.calls += 1
            if self.calls == 7:
                raise Interrupted

    runs = 0
    while True:
        runs += 1
        try:
            resumed = prepare(Request(**{**vars(request), "resume": runs > 1}), Interrupting())
            break
        except Interrupted:
            assert not load_manifest(request.out).complete
            with pytest.raises(SpecError, match="isn't complete"):
                PreparedCorpus(request.out)
    assert runs > 2
    assert [s.sha256 for s in resumed.shards] == [s.sha256 for s in whole.shards]
    assert resumed.counts == whole.counts
    assert {p.name for p in request.out.iterdir()} == {p.name for p in (tmp_path / "whole-out").iterdir()}
    assert prepare(Request(**{**vars(request), "resume": True})) == resumed


def test_a_folder_in_use_is_kept(tmp_path: Path, tokenizer: str) -> None:
    made(tmp_path, b"text", tokenizer)
    path, out = tmp_path / "in-0", tmp_path / "in-out"
    with pytest.raises(SpecError, match="holds a corpus already; go on with --resume"):
        prepare(Request((path,), tokenizer, out))
    path.write_bytes(b"other")
    with pytest.raises(SpecError, match="was begun with other files"):
        prepare(Request((path,), tokenizer, out, resume=True))
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("x")
    with pytest.raises(SpecError, match="contains other files"):
        prepare(Request((path,), tokenizer, other))
    assert [p.name for p in other.iterdir()] == ["thesis.tex"]


def test_a_damaged_shard_is_refused(tmp_path: Path, tokenizer: str) -> None:
    made(tmp_path, b"some text", tokenizer)
    path = tmp_path / "in-out" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["shards"][0]["tokens"] += 1
    path.write_text(json.dumps(manifest))
    with pytest.raises(SpecError, match="damaged; prepare the corpus again"):
        PreparedCorpus(tmp_path / "in-out")
    manifest["shards"][0]["name"] = "../../etc/passwd"
    path.write_text(json.dumps(manifest))
    with pytest.raises(SpecError, match="names a file outside its folder"):
        PreparedCorpus(tmp_path / "in-out")


def test_the_time_is_estimated_from_a_sample(
    tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wirecost.corpus import estimate as estimating

    monkeypatch.setattr(estimating, "Pool", vars(shards)["Pool"])
    path = tmp_path / "d"
    path.write_bytes(corpora.dump(corpora.articles(300)))
    result = estimate(Request((path,), tokenizer, tmp_path / "out"))
    assert result.bytes == path.stat().st_size
    assert 0 <= result.least_s <= result.seconds <= result.most_s
    assert result.tokens > 0
    assert not (tmp_path / "out").exists()


def test_no_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("text")
    for name, message in (("nothing", "no such name, file or folder"), (str(tmp_path), "contains no tokenizer")):
        with pytest.raises(WirecostError, match=message):
            prepare(Request((tmp_path / "in",), name, tmp_path / "out"))
    assert not (tmp_path / "out").exists()
