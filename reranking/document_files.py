"""Documents from files: text, Markdown, HTML, PDF and JSON lines, for the command line and for the web page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from docparade.modeling.documents import replace_surrogates
from docparade.modeling.markup import is_html, make_readable, read_page
from docparade.retrieval.collections.pdf_file import read_pdf_text
from docparade.retrieval.collections.pdf_process import PdfLimits, read_pdf_in_process
from docparade.retrieval.errors import InputError


@dataclass(frozen=True)
class SourceDocument:
    """A document to rank; the model reads `title` and `text`."""

    name: str
    """What the page calls it."""
    text: str
    title: str = ""
    origin: str = ""
    """Where it comes from: a file, or its rank in the first stage."""


def read_file(
    path: Path, max_characters: int | None = None, pdf_limits: PdfLimits | None = None
) -> Iterator[SourceDocument]:
    """The documents of one file: every line of JSON lines is one, any other file is one.

    Args:
        path: The file; what is wrong with it is an `InputError`.
        max_characters: Of a PDF file, no further pages are read once there are more characters than this.
        pdf_limits: For files from strangers: PDF files are read in a process with these limits.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path.name}: files of this kind cannot be read; choose {', '.join(READERS)}.")
    if reader is read_pdf:
        reader = partial(read_pdf, max_characters=max_characters, limits=pdf_limits)
    has_text = False
    for document in reader(path):
        has_text = has_text or bool(document.text.strip())
        # JSON and PDF files can have halves of surrogate pairs, which cannot be written.
        yield SourceDocument(*map(replace_surrogates, astuple(document)))
    if not has_text:
        raise InputError(f"{path.name} has no text.")


def from_text(text: str, fallback: str, origin: str = "") -> SourceDocument:
    """A document of a text, of which HTML is read as a browser shows it.

    A Markdown heading at its beginning is its title, otherwise its first line is its name.

    >>> from_text("# Rain\\n\\nIt rains.", "Untitled")
    SourceDocument(name='Rain', text='It rains.', title='Rain', origin='')
    """
    if is_html(text):
        return from_html(text, fallback, origin)
    heading = re.match(r"\s*#{1,6}[ \t]+(.*)", text)
    title = heading[1].rstrip(" \t#") if heading else ""
    if heading and title and (rest := text[heading.end() :].strip()):
        return SourceDocument(_cut(title), rest, title, origin)
    return SourceDocument(find_name(text, fallback), text, origin=origin)


def from_html(text: str, fallback: str, origin: str = "") -> SourceDocument:
    """A document of HTML, as a browser shows it; its name is the page's title."""
    page = read_page(text)
    return SourceDocument(_cut(page.title) or fallback, page.text, page.title, origin)


def find_name(text: str, fallback: str) -> str:
    """The first line with words in it, cut to 80 characters.

    >>> find_name("\\n***\\nOnce upon a time\\nthere was", "Untitled")
    'Once upon a time'
    """
    lines = (line.strip() for line in text.splitlines())
    return _cut(next((line for line in lines if any(map(str.isalnum, line))), fallback))


def _cut(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:79].rstrip()}…"


def read_plain(path: Path) -> Iterable[SourceDocument]:
    """A text or Markdown file."""
    text = decode(path)
    if path.suffix.lower() == ".md" or is_html(text):
        return [from_text(text, path.stem, path.name)]
    return [SourceDocument(path.stem, text, origin=path.name)]


def decode(path: Path) -> str:
    """A file's text, which is UTF-8, or UTF-16 with a byte order mark."""
    content = path.read_bytes()
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InputError(f"{path.name} is not a text file in UTF-8; save it as one, or as PDF.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_html(path: Path) -> Iterable[SourceDocument]:
    """A web page."""
    return [from_html(decode(path), path.stem, path.name)]


def read_json_lines(path: Path) -> Iterable[SourceDocument]:
    """JSON lines: objects with `text`, and optionally `title` and `id` (or `_id`, `doc_id`)."""
    for number, line in enumerate(decode(path).split("\n"), start=1):
        if line.strip():
            place = f"{path.name}, line {number}"
            fields = _read_object(line, place)
            key = next((str(fields[name]) for name in ("id", "_id", "doc_id") if fields.get(name) is not None), None)
            page = make_readable(fields["text"], "html")
            title = str(fields.get("title") or "") or page.title
            yield SourceDocument(title or key or find_name(page.text, f"Line {number}"), page.text, title, place)


def _read_object(line: str, place: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f'{place}: this is not JSON; write one object a line, such as {{"text": "…"}}.') from None
    if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
        raise InputError(f'{place}: there is no "text"; write one object a line, such as {{"text": "…"}}.')
    return fields


def read_pdf(
    path: Path, max_characters: int | None = None, limits: PdfLimits | None = None
) -> Iterable[SourceDocument]:
    """The text of a PDF file."""
    if limits is None:
        title, text = read_pdf_text(path, max_characters)
    else:
        title, text = read_pdf_in_process(path, limits, max_characters)
    return [SourceDocument(title or path.stem, text, origin=path.name)]


READERS: dict[str, Callable[[Path], Iterable[SourceDocument]]] = {
    ".txt": read_plain,
    ".md": read_plain,
    ".html": read_html,
    ".htm": read_html,
    ".jsonl": read_json_lines,
    ".pdf": read_pdf,
}
"""How files are read, by the ends of their names."""
