"""`docparade rank`: rank files for a query, and show the passage of each that answers it best."""

import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from docparade.commands.inputs import at_least_one, name_model
from docparade.commands.output import JsonOption, counted, note, print_json
from docparade.retrieval.errors import InputError

if TYPE_CHECKING:
    from docparade.modeling import DocumentRanker, RankedDocument
    from docparade.reranking.document_files import SourceDocument

BLOCK_CHARACTERS = 100_000
"""Characters of the documents between two signs of progress."""
EXCERPT_WORDS = 50


def rank(
    query: Annotated[str, typer.Argument(help="What to look for, in your own words.")],
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES...", help="Files, and folders with all files below them: .txt, .md, .html, .pdf and .jsonl."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="A ranker, cross-encoder or bi-encoder: a folder, or an id on the Hugging Face Hub. "
            "Default: the ranker that comes with docparade."
        ),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", help="How many documents to show.")] = 5,
    as_json: JsonOption = False,
) -> None:
    r"""Rank files for a query, and show the best passage of each.

    Every file is read whole. Of JSON lines, every line is a document: {"text": …}, and optionally title and id. HTML is
    read as a browser shows it, also in files that are not named .html. Files that cannot be read or have no text are
    skipped with a note. PDF files need pip install pypdf.

    Examples:

        docparade rank "how do I continue after an interruption" docs/
        docparade rank "who may grant a license" LICENSE.txt contracts/ \
            --top-k 3
        docparade rank "heat in thin plates" papers/ --json \
            --model cross-encoder/ms-marco-MiniLM-L6-v2
    """
    if not query.strip():
        raise InputError("the query is empty; say what to look for.")
    at_least_one("--top-k", top_k)
    files = find_files(paths)

    from docparade.reranking.loading import check_source, load_ranker

    named = name_model(model)
    check_source(named, "--model")
    documents = read_documents(files)
    ranked = rank_in_blocks(load_ranker(named, "--model"), query, documents)[:top_k]
    if as_json:
        print_json([_to_dict(found, documents[found.index]) for found in ranked])
        return
    for found in ranked:
        _print(query, found, documents[found.index])
    if len(ranked) < len(documents):
        note(f"the best {len(ranked)} of {counted(len(documents), 'document')}; show more with --top-k.")


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The named files, and the readable files below named folders; hidden ones are left out."""
    from docparade.reranking.document_files import READERS

    files: dict[Path, None] = {}
    others: Counter[str] = Counter()
    for path in paths:
        if not path.exists():
            raise InputError(f"there is no file or folder {path}.")
        if not path.is_dir():
            files[path] = None
            continue
        for file in sorted(path.rglob("*")):
            if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts):
                if file.suffix.lower() in READERS:
                    files[file] = None
                else:
                    others[file.suffix.lower() or file.name] += 1
    if others:
        kinds = ", ".join(sorted(others)[:5]) + (", …" if len(others) > 5 else "")
        note(f"skipped {counted(sum(others.values()), 'file')} of other kinds: {kinds}.")
    return list(files)


def read_documents(files: Sequence[Path]) -> "list[SourceDocument]":
    """The documents of files; what has no text or cannot be read is skipped with a note."""
    from docparade.reranking.document_files import read_file

    documents: list[SourceDocument] = []
    for file in files:
        try:
            found = list(read_file(file))
        except InputError as error:
            note(f"skipped {file}: {error}")
            continue
        except OSError as error:
            note(f"skipped {file}: it cannot be read ({error.strerror}).")
            continue
        documents += [
            replace(document, origin=str(file.parent / document.origin)) for document in found if document.text.strip()
        ]
        if empty := sum(not document.text.strip() for document in found):
            note(f"skipped {counted(empty, 'document')} without text in {file}.")
    if not documents:
        raise InputError("there is nothing to rank; name files with text: .txt, .md, .html, .pdf or .jsonl.")
    return documents


def rank_in_blocks(
    model: "DocumentRanker", query: str, documents: "Sequence[SourceDocument]"
) -> "list[RankedDocument]":
    """Rank documents, and show how far it is; `index` is the position in the given list."""
    from docparade.retrieval.progress import show_progress

    ranked: list[RankedDocument] = []
    with show_progress(desc="ranking", total=len(documents), unit=" documents") as bar:
        for start, stop in _blocks(documents):
            block = model.rank(query, documents[start:stop])
            ranked += [replace(found, index=start + found.index) for found in block]
            bar.update(stop - start)
    return sorted(ranked, key=lambda found: (-found.score, found.index))


def _blocks(documents: "Sequence[SourceDocument]") -> Iterator[tuple[int, int]]:
    start = characters = 0
    for position, document in enumerate(documents):
        if position > start and characters + len(document.text) > BLOCK_CHARACTERS:
            yield start, position
            start, characters = position, 0
        characters += len(document.text)
    yield start, len(documents)


def _to_dict(found: "RankedDocument", source: "SourceDocument") -> dict[str, object]:
    best = found.best_passage
    return {
        "file": source.origin,
        "title": source.title,
        "score": found.score,
        "empty": found.empty,
        "passages": len(found.passages),
        "unread": found.unread,
        "best_passage": {"text": best.text, "start": best.start, "end": best.end, "score": best.score},
    }


def _print(query: str, found: "RankedDocument", source: "SourceDocument") -> None:
    width = min(shutil.get_terminal_size().columns, 100)
    title = " ".join(source.title.split())
    score = "  none" if found.empty else f"{found.score:6.3f}"
    print(f"{score}  {source.origin}  {title}"[:width].rstrip())
    for line in textwrap.wrap(cut_excerpt(found.best_passage.text, query), width - 8):
        print(f"        {line}")


def cut_excerpt(passage: str, query: str, length: int = EXCERPT_WORDS) -> str:
    """The part of a passage that has most of the query's words; short words count less.

    >>> cut_excerpt("It is late. The bread goes stale in the fridge.", "stale bread", 4)
    '… The bread goes stale …'
    """
    words = passage.split()
    wanted = {word: len(word) for word in re.findall(r"\w+", query.lower())}
    worth = [max((wanted.get(part, 0) for part in re.findall(r"\w+", word.lower())), default=0) for word in words]
    starts = range(max(len(words) - length, 0) + 1)
    start = max(starts, key=lambda place: (sum(worth[place : place + length]), -place))
    # The words are in the middle, if there is room.
    end = max((place for place in range(start, min(start + length, len(words))) if worth[place]), default=start)
    start = max(0, start - max(0, min(start + length, len(words)) - 1 - end) // 2)
    before, after = ("… " if start else ""), (" …" if start + length < len(words) else "")
    return before + " ".join(words[start : start + length]) + after
