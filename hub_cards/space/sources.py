"""Where the documents come from: typed text, uploaded files, a collection's first stage, or the examples."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.errors import InputError
from docparade.retrieval.index.inverted_index import open_index
from docparade.retrieval.index.searcher import Searcher
from docparade.retrieval.index.similarity import BM25

MAX_DOCUMENTS = 50
MAX_CHARACTERS = 500_000
"""Of all documents of a ranking together."""
MEGABYTE = 2**20  # as Gradio counts them
MAX_FILE_BYTES = 10 * MEGABYTE
MAX_QUERY_CHARACTERS = 1_000
LIMITS = (
    f"At most {MAX_DOCUMENTS} documents with {MAX_CHARACTERS:,} characters in all; "
    f"files of at most {MAX_FILE_BYTES // MEGABYTE} MB."
)

EXAMPLE_QUERY = "Why does bread go stale faster in the fridge?"


@dataclass(frozen=True)
class SourceDocument:
    """A document to rank; the model reads `title` and `text`."""

    name: str
    """What the page calls it."""
    text: str
    title: str = ""
    origin: str = ""
    """Where it comes from: a file, or its rank in the first stage."""


def check_query(query: str | None) -> str:
    """The query without white space around it; an empty or a very long one is an `InputError`."""
    query = (query or "").strip()
    if not query:
        raise InputError("Type a query: what should the documents be ranked for?")
    if len(query) > MAX_QUERY_CHARACTERS:
        raise InputError(f"The query has {len(query):,} characters; {MAX_QUERY_CHARACTERS:,} is the limit.")
    return query


def check_size(documents: Sequence[SourceDocument]) -> list[SourceDocument]:
    """Refuse more documents or text than one ranking may have."""
    characters = sum(len(document.text) for document in documents)
    if len(documents) > MAX_DOCUMENTS:
        raise InputError(f"There are {len(documents):,} documents; {MAX_DOCUMENTS} is the limit.")
    if characters > MAX_CHARACTERS:
        raise InputError(f"The documents have {characters:,} characters in all; {MAX_CHARACTERS:,} is the limit.")
    return list(documents)


# --- Examples and typed text -----------------------------------------------------------------------------------------


def example_documents() -> list[SourceDocument]:
    """Four articles: one answers `EXAMPLE_QUERY` deep inside, another only seems to, at its beginning."""
    folder = files("docparade.hub_cards.space") / "examples"
    texts = (file.read_text(encoding="utf-8") for file in sorted(folder.iterdir(), key=lambda file: file.name))
    return [from_text(text, "Example") for text in texts]


def split_typed(text: str | None) -> list[SourceDocument]:
    """The documents of a text box, which are separated by lines of three or more dashes.

    >>> [document.name for document in split_typed("# Rain\\nIt rains.\\n---\\nThe sun shines.")]
    ['Rain', 'The sun shines.']
    """
    parts = [part.strip() for part in re.split(r"^[ \t]*-{3,}[ \t]*$", text or "", flags=re.MULTILINE)]
    documents = [from_text(part, "Untitled") for part in parts if part]
    if not documents:
        raise InputError("Type or paste at least one document, or choose the examples.")
    return check_size(documents)


def from_text(text: str, fallback: str, origin: str = "") -> SourceDocument:
    """A document of a text; a Markdown heading at its beginning is its title, otherwise its first line is its name.

    >>> from_text("# Rain\\n\\nIt rains.", "Untitled")
    SourceDocument(name='Rain', text='It rains.', title='Rain', origin='')
    """
    heading = re.match(r"\s*#{1,6}[ \t]+(.*?)[ \t#]*(?:\n|$)", text)
    if heading and heading[1] and (rest := text[heading.end() :].strip()):
        return SourceDocument(_cut(heading[1]), rest, heading[1], origin)
    return SourceDocument(find_name(text, fallback), text, origin=origin)


def find_name(text: str, fallback: str) -> str:
    """The first line with words in it, cut to 80 characters.

    >>> find_name("\\n***\\nOnce upon a time\\nthere was", "Untitled")
    'Once upon a time'
    """
    lines = (line.strip() for line in text.splitlines())
    return _cut(next((line for line in lines if any(map(str.isalnum, line))), fallback))


def _cut(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:79].rstrip()}…"


# --- Files -----------------------------------------------------------------------------------------------------------


def read_files(paths: Sequence[str | Path] | None) -> list[SourceDocument]:
    """The documents of uploaded files; a file that cannot be read is an `InputError`."""
    if not paths:
        raise InputError(f"Choose files to rank: {', '.join(READERS)}.")
    return check_size([document for path in paths for document in read_file(Path(path))])


def read_file(path: Path) -> list[SourceDocument]:
    """The documents of one file: every line of JSON lines is one, any other file is one."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path.name}: files of this kind cannot be read; choose {', '.join(READERS)}.")
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise InputError(f"{path.name} has {size / MEGABYTE:.1f} MB; {MAX_FILE_BYTES // MEGABYTE} MB is the limit.")
    documents = reader(path)
    if not any(document.text.strip() for document in documents):
        raise InputError(f"{path.name} has no text.")
    return documents


def read_plain(path: Path) -> list[SourceDocument]:
    """A text or Markdown file."""
    text = decode(path)
    if path.suffix.lower() == ".md":
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


def read_html(path: Path) -> list[SourceDocument]:
    """The visible text of a web page."""
    parser = _TextOfPage()
    parser.feed(decode(path))
    parser.close()
    title = " ".join("".join(parser.title).split())
    return [SourceDocument(title or path.stem, parser.text(), title, origin=path.name)]


class _TextOfPage(HTMLParser):
    """Collects the text of a page, one line for each block, without scripts and styles."""

    HIDDEN = frozenset({"script", "style", "noscript", "template", "svg"})
    # fmt: off
    INLINE = frozenset({
        "a", "abbr", "b", "bdi", "bdo", "cite", "code", "del", "dfn", "em", "i", "ins", "kbd", "mark", "q", "s", "samp",
        "small", "span", "strong", "sub", "sup", "u",
    })
    # fmt: on

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.parts: list[str] = []
        self.inside: list[str] = []
        """The elements that are open and whose text is not part of the page's."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.HIDDEN or (tag == "title" and not self.title):
            self.inside.append(tag)
        elif tag not in self.INLINE:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()
        elif tag not in self.INLINE:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.parts.append(data)
        elif self.inside[-1] == "title":
            self.title.append(data)

    def text(self) -> str:
        lines = (" ".join(line.split()) for line in "".join(self.parts).splitlines())
        return "\n".join(line for line in lines if line)


def read_json_lines(path: Path) -> list[SourceDocument]:
    """JSON lines: objects with `text`, and optionally `title` and `id` (or `_id`, `doc_id`)."""
    documents = []
    for number, line in enumerate(decode(path).split("\n"), start=1):
        if line.strip():
            fields = _read_object(line, f"{path.name}, line {number}")
            title = str(fields.get("title") or "")
            key = next((str(fields[name]) for name in ("id", "_id", "doc_id") if fields.get(name) is not None), None)
            name = title or key or find_name(fields["text"], f"Line {number}")
            documents.append(SourceDocument(name, fields["text"], title, origin=f"{path.name}, line {number}"))
            # So that a large file is refused before all of it is read.
            check_size(documents)
    return documents


def _read_object(line: str, place: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f'{place}: this is not JSON; write one object a line, such as {{"text": "…"}}.') from None
    if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
        raise InputError(f'{place}: there is no "text"; write one object a line, such as {{"text": "…"}}.')
    return fields


def read_pdf(path: Path) -> list[SourceDocument]:
    """The text of a PDF file."""
    from pypdf import PdfReader

    try:
        reader = PdfReader(path)
        # Many files are encrypted with an empty password, and open in every viewer.
        if reader.is_encrypted and not reader.decrypt(""):
            raise InputError(f"{path.name} is encrypted; upload a copy without a password.")
        text = _join_pages(reader)
        title = str((reader.metadata and reader.metadata.title) or "").strip()
    except InputError:
        raise
    except Exception as error:  # pypdf raises exceptions of many kinds on damaged files
        if "crypt" in f"{type(error).__name__} {error}".lower():
            raise InputError(f"{path.name} is encrypted; upload a copy without a password.") from error
        raise InputError(f"{path.name} cannot be read as PDF; it may be damaged.") from error
    if not text.strip():
        raise InputError(f"{path.name} has no text, only images; upload a file with text.")
    return [SourceDocument(title or path.stem, text, origin=path.name)]


def _join_pages(reader: Any) -> str:
    pages: list[str] = []
    for page in reader.pages:
        pages.append(page.extract_text())
        if sum(map(len, pages)) > MAX_CHARACTERS:  # it is refused in any case
            break
    return "\n\n".join(pages)


READERS: dict[str, Callable[[Path], list[SourceDocument]]] = {
    ".txt": read_plain,
    ".md": read_plain,
    ".html": read_html,
    ".htm": read_html,
    ".jsonl": read_json_lines,
    ".pdf": read_pdf,
}


# --- A collection ----------------------------------------------------------------------------------------------------


class FirstStageSource:
    """The documents of a collection that BM25 finds for a query.

    ```python
    FirstStageSource(load_collection("cranfield"), depth=20).search("heat transfer")
    ```
    """

    def __init__(self, collection: Collection, depth: int) -> None:
        self.collection = collection
        self.depth = depth
        self.searcher = Searcher(open_index(collection), BM25())

    def search(self, query: str) -> list[SourceDocument]:
        """The best documents, as many as the limit of characters permits."""
        found = self.searcher.search(query, self.depth)
        if not found:
            raise InputError(f"BM25 finds no document of {self.collection.name} for this query; use other words.")
        documents: list[SourceDocument] = []
        characters = 0
        texts = self.collection.get_many(found)
        for rank, identifier in enumerate(found, start=1):
            document = texts[identifier]
            characters += len(document.text)
            if documents and characters > MAX_CHARACTERS:
                break
            documents.append(
                SourceDocument(document.title or identifier, document.text, document.title, f"BM25 rank {rank}")
            )
        return documents
