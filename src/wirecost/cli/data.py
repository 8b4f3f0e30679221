"""`wirecost data`: prepares text to train on, and shows what a prepared corpus contains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wirecost.cli.output import FORMAT, check_format

if TYPE_CHECKING:
    from wirecost.corpus.manifest import Manifest
    from wirecost.corpus.request import Estimate

app = typer.Typer(
    help="Prepare text to train on, such as a Wikipedia dump.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _group() -> None:
    pass


@app.command("prepare")
def prepare(
    source: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE",
            help="Files or folders: a Wikipedia dump (XML), text, JSON lines, Parquet. All but Parquet may be "
            "compressed with bzip2, gzip, zstd or xz.",
        ),
    ],
    *,
    tokenizer: Annotated[
        str,
        typer.Option(
            help="gpt2, bert, t5; bpe, wordpiece, unigram (trained on the corpus); a file (tokenizer.json, "
            "vocab.txt, SentencePiece .model) or a folder of Hugging Face.",
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder of the corpus.  [required without --dry-run]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an earlier run stopped.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read a sample, estimate time and size, write nothing.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Processes.  [default: one for each core]")
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(min=1, max=10_000_000, help="Tokens of a tokenizer that is trained.")
    ] = None,
    sentences: Annotated[
        bool | None,
        typer.Option(
            "--sentences/--no-sentences",
            help="Keep the borders of sentences, which BERT's pairs need.  [default: if the tokenizer has [MASK]]",
            show_default=False,
        ),
    ] = None,
    append_eod: Annotated[
        bool,
        typer.Option("--append-eod/--no-append-eod", help="End each document with the tokenizer's end token."),
    ] = True,
    documents: Annotated[
        str,
        typer.Option(
            metavar="file|blank-line|line", help="What a document is in a text file: all of it, or what ends so."
        ),
    ] = "file",
    text_key: Annotated[str, typer.Option(help="Key or column of the text in JSON lines and Parquet.")] = "text",
    namespace: Annotated[
        list[int] | None,
        typer.Option(help="Namespace of a dump whose pages are read. Repeatable.  [default: 0, articles]"),
    ] = None,
    shard_tokens: Annotated[int, typer.Option(min=1, help="Tokens after which a shard ends.")] = 64 << 20,
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Turn a dump or text into token ids for training: Megatron's indexed data sets, with a manifest.

    The tokens don't depend on the number of processes, nor on interruptions.
    """
    import os

    from wirecost.cli.progress import CorpusProgress
    from wirecost.corpus.estimate import estimate
    from wirecost.corpus.extract import Options
    from wirecost.corpus.prepare import prepare as run
    from wirecost.corpus.request import Request
    from wirecost.errors import SpecError, one_of

    format = check_format(format)
    if documents not in ("file", "blank-line", "line"):
        raise SpecError(one_of("--documents", documents, ("file", "blank-line", "line")))
    if out is None and not dry_run:
        raise SpecError("--out is missing: name the folder of the corpus (or --dry-run for an estimate)")
    request = Request(
        paths=tuple(source),
        tokenizer=tokenizer,
        out=out or Path(),
        options=Options(tuple(sorted(set(namespace or [0]))), documents, text_key),
        vocab_size=vocab_size,
        sentences=sentences,
        end_documents=append_eod,
        shard_tokens=shard_tokens,
        workers=workers or len(os.sched_getaffinity(0)),
        resume=resume,
    )
    with CorpusProgress() as progress:
        if dry_run:
            _print_estimate(estimate(request, progress), request.workers, format)
            return
        manifest = run(request, progress)
    _print_manifest(request.out, manifest, format)


@app.command("show")
def show(
    corpus: Annotated[Path, typer.Argument(help="Folder of a prepared corpus.")],
    *,
    text: Annotated[int, typer.Option(min=0, max=10_000, help="Also print so many tokens as text.")] = 0,
    format: Annotated[str, FORMAT] = "text",
) -> None:
    """Show what a prepared corpus contains."""
    from wirecost.corpus.manifest import load_manifest
    from wirecost.text import printable

    format = check_format(format)
    manifest = load_manifest(corpus)
    _print_manifest(corpus, manifest, format)
    if text and format == "text":
        from wirecost.corpus.decode import decode_start

        for line in decode_start(corpus, manifest, text).split("\n"):
            typer.echo(printable(line))


def _rows(manifest: Manifest) -> list[tuple[str, str]]:
    from wirecost.units import format_size_bytes

    counts = manifest.counts
    names = {
        "pages": "pages",
        "redirects": "redirects, left out",
        "other_namespaces": "pages of other namespaces, left out",
        "duplicates": "pages with the title of an earlier one, left out",
        "empty": "empty documents, left out",
        "unreadable": "unreadable records, left out",
        "invalid_utf8": "records with invalid UTF-8, repaired",
    }
    rows = [
        ("documents", f"{sum(shard.documents for shard in manifest.shards):,}"),
        ("characters", f"{counts.get('characters', 0):,}"),
        ("tokens", f"{manifest.tokens:,}"),
        ("sequences", f"{sum(shard.sequences for shard in manifest.shards):,}"),
        ("shards", f"{len(manifest.shards)}"),
        ("size", format_size_bytes(manifest.tokens * (2 if manifest.dtype == "uint16" else 4))),
        ("tokenizer", f"{manifest.tokenizer.name}: {manifest.tokenizer.origin}"),
        ("token ids", f"{manifest.tokenizer.size:,}"),
        ("id at the end of a document", _end(manifest)),
        *((name, f"{counts[key]:,}") for key, name in names.items() if counts.get(key)),
    ]
    return rows if manifest.complete else [("state", "incomplete: go on with --resume"), *rows]


def _end(manifest: Manifest) -> str:
    if not manifest.settings.get("end_documents"):
        return "none (--no-append-eod)"
    end = manifest.tokenizer.end
    return f"{end:,}" if end is not None else "none: the tokenizer has no end token"


def _lost(manifest: Manifest) -> list[str]:
    """Returns a line for each file that couldn't be read whole."""
    lines = []
    for source in manifest.sources:
        losses = source.losses
        found = []
        if losses.get("cut_off"):
            found.append("the file is cut off")
        if losses.get("blocks"):
            places = ", ".join(str(place) for place in losses["places"])
            found.append(f"{losses['blocks']} damaged blocks ({losses['bytes']:,} bytes) at byte {places}")
        if losses.get("records"):
            found.append(f"{losses['records']} incomplete records")
        if losses.get("too_long"):
            found.append(f"{losses['too_long']} records of more than 32 MiB")
        if found:
            lines.append(f"{source.path}: lost: {'; '.join(found)}")
    return lines


def _print_manifest(folder: Path, manifest: Manifest, format: str) -> None:
    import msgspec

    from wirecost.cli.output import console, print_csv, table
    from wirecost.text import printable

    if format == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(manifest), indent=1).decode())
        return
    rows = _rows(manifest)
    lost = _lost(manifest)
    if format == "csv":
        print_csv([{"name": name, "value": value} for name, value in rows])
    else:
        out = console(format)
        out.print(table(f"corpus {folder}", ("property", "value"), rows))
    for line in lost:
        typer.echo(f"wirecost: {printable(line)}", err=True)


def _print_estimate(estimate: Estimate, workers: int, format: str) -> None:
    import json

    from wirecost.cli.output import console, print_csv, table
    from wirecost.units import format_duration_s, format_size_bytes

    numbers = {
        "source_bytes": estimate.bytes,
        "sampled_bytes": estimate.sampled_bytes,
        "seconds": estimate.seconds,
        "least_seconds": estimate.least_s,
        "most_seconds": estimate.most_s,
        "tokens": estimate.tokens,
        "characters": estimate.characters,
    }
    if format == "json":
        typer.echo(json.dumps(numbers, indent=1))
        return
    if format == "csv":
        print_csv([numbers])
        return
    rows = [
        ("files", format_size_bytes(estimate.bytes)),
        ("sample", format_size_bytes(estimate.sampled_bytes)),
        (f"time with {workers} processes", format_duration_s(estimate.seconds)),
        ("90 % interval", f"{format_duration_s(estimate.least_s)} to {format_duration_s(estimate.most_s)}"),
        ("characters", f"about {estimate.characters:,.0f}"),
        ("tokens", f"about {estimate.tokens:,.0f}"),
    ]
    console(format).print(table("estimate", ("property", "value"), rows))
