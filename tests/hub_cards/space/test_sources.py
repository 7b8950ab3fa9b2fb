"""Documents from typed text, files and collections, and what is said about those that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pypdf", reason="pypdf is not installed: pip install '.[space]'")

from support.collections import make_small_collection
from support.space import write_pdf

from docparade.hub_cards.space import sources
from docparade.hub_cards.space.sources import (
    EXAMPLE_QUERY,
    FirstStageSource,
    SourceDocument,
    check_query,
    example_documents,
    read_files,
    split_typed,
)
from docparade.reranking import document_files
from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.collections.pdf_process import PdfLimits
from docparade.retrieval.errors import InputError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_typed_documents_are_separated_by_dashes() -> None:
    documents = split_typed("# Rain\n\nIt rains -- a lot.\n\n-----\n---\nSun\nIt shines.\n")
    assert documents == [
        SourceDocument("Rain", "It rains -- a lot.", title="Rain"),
        SourceDocument("Sun", "Sun\nIt shines."),
    ]


def test_a_heading_alone_is_a_document() -> None:
    assert split_typed("# Rain") == [SourceDocument("# Rain", "# Rain")]


@pytest.mark.parametrize("text", ["", None, "  \n ", "---\n---"])
def test_no_typed_document(text: str | None) -> None:
    with pytest.raises(InputError, match="at least one document"):
        split_typed(text)


@pytest.mark.parametrize("query", ["", None, " \n"])
def test_no_query(query: str | None) -> None:
    with pytest.raises(InputError, match="Type a query"):
        check_query(query)


def test_a_long_query() -> None:
    with pytest.raises(InputError, match=r"1,001 .*1,000"):
        check_query("x" * 1001)


def test_the_examples_are_long_and_have_titles() -> None:
    documents = example_documents()
    assert len(documents) == 4 and EXAMPLE_QUERY
    assert all(document.title and len(document.text.split()) > 600 for document in documents)
    assert len({document.title for document in documents}) == 4


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "\ufeffIt rains.\r\nAgain.", SourceDocument("a", "It rains.\nAgain.", origin="a.txt")),
        ("a.txt", "Größe".encode("utf-16"), SourceDocument("a", "Größe", origin="a.txt")),
        ("a.MD", "# Rain #\nIt rains.", SourceDocument("Rain", "It rains.", "Rain", "a.MD")),
        (
            "a.html",
            "<title>Rain &amp; sun</title><style>p {}</style><p>It <b>rai</b>ns.<br>1 &lt; 2</p><script>1<2</script>Go",
            SourceDocument("Rain & sun", "Rain & sun\nIt rains.\n1 < 2\nGo", "Rain & sun", "a.html"),
        ),
        (
            "a.jsonl",
            '{"text": "It\u2028rains.", "id": 7}\n\n',
            SourceDocument("7", "It\u2028rains.", origin="a.jsonl, line 1"),
        ),
        (
            "a.jsonl",
            '{"text": "It rains.", "title": "Rain", "_id": "d1"}',
            SourceDocument("Rain", "It rains.", "Rain", "a.jsonl, line 1"),
        ),
    ],
)
def test_files(name: str, content: str | bytes, expected: SourceDocument, tmp_path: Path) -> None:
    assert read_files([write(tmp_path / name, content)]) == [expected]


def test_a_pdf_file(tmp_path: Path) -> None:
    [document] = read_files([write_pdf(tmp_path / "rain.pdf", "It rains.")])
    assert document == SourceDocument("rain", "It rains.", origin="rain.pdf")


def test_a_pdf_file_that_opens_without_a_password(tmp_path: Path) -> None:
    [document] = read_files([write_pdf(tmp_path / "rain.pdf", "It rains.", password="")])
    assert document.text == "It rains."


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "It rains."}\n{"text": ', "a.jsonl, line 2: .*JSON"),
        ("a.jsonl", '["text"]', 'a.jsonl, line 1: .*"text"'),
        ("a.jsonl", '{"text": 3}', 'a.jsonl, line 1: .*"text"'),
        ("a.jsonl", "[" * 100_000, "a.jsonl, line 1: .*JSON"),
        ("a.jsonl", "\n", "a.jsonl has no text"),
        ("a.txt", b"\x89PNG\r\n\x00\x00", "a.txt .*UTF-8"),
        ("a.md", "Größe".encode("latin-1"), "a.md .*UTF-8"),
        ("a.txt", b"\xff\xfea", "a.txt .*UTF-8"),
        ("a.txt", " \n", "a.txt has no text"),
        ("a.html", "<p></p><script>1</script>", "a.html has no text"),
        ("a.docx", "x", r"a\.docx: .*\.txt, \.md, \.html"),
        ("a", "x", "^a: "),
        ("a.pdf", "no PDF", "a.pdf cannot be read as PDF"),
        ("a.pdf", b"%PDF-1.7\ntrailer << /Root 1 0 R >>\n%%EOF", "a.pdf cannot be read as PDF"),
        ("a.pdf", "", "a.pdf cannot be read as PDF"),
    ],
)
def test_bad_files(name: str, content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_files([write(tmp_path / name, content)])
    assert "\n" not in str(caught.value)


def test_encrypted_and_scanned_pdf_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.pdf is encrypted"):
        read_files([write_pdf(tmp_path / "a.pdf", "It rains.", password="secret")])
    with pytest.raises(InputError, match=r"b\.pdf has no text"):
        read_files([write_pdf(tmp_path / "b.pdf", "")])


def test_no_file() -> None:
    with pytest.raises(InputError, match=r"\.txt"):
        read_files(None)


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="51 documents; 50"):
        split_typed("It rains.\n---\n" * 51)
    with pytest.raises(InputError, match=r"500,001 .*500,000"):
        read_files([write(tmp_path / "a.txt", "x" * 500_001)])
    with pytest.raises(InputError, match="51 documents"):
        read_files([write(tmp_path / "a.jsonl", '{"text": "It rains."}\n' * 1000)])


def test_limits_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_FILE_BYTES", 2**20)
    monkeypatch.setattr(sources, "MAX_BYTES", 2**21)
    large = write(tmp_path / "b.txt", "x" * 1_572_864)
    with pytest.raises(InputError, match=r"b\.txt has 1\.5 MB; 1 MB"):
        read_files([large])
    with pytest.raises(InputError, match=r"3\.0 MB in all; 2 MB"):
        read_files([write(tmp_path / f"{i}.txt", "x" * 2**20) for i in range(3)])
    with pytest.raises(InputError, match="51 files; 50"):
        read_files([large] * 51)
    with pytest.raises(InputError, match=r"\.txt.*1 MB"):
        read_files(None)


def test_the_time_is_that_of_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In which PDF files are read, each in a process."""
    monkeypatch.setattr(sources, "PDF_LIMITS", PdfLimits(seconds=10))
    now, given = 0.0, []

    def read(path: Path, limits: PdfLimits, _: int | None) -> tuple[str, str]:
        nonlocal now
        now += 7
        given.append(limits.seconds)
        return "", path.name

    monkeypatch.setattr(sources, "monotonic", lambda: now)
    monkeypatch.setattr(document_files, "read_pdf_in_process", read)
    read_files([write_pdf(tmp_path / f"{i}.pdf", "It rains.") for i in range(3)])
    assert given == [10, 3, 0]


def test_halves_of_surrogate_pairs_are_replaced(tmp_path: Path) -> None:
    lines = write(tmp_path / "a.jsonl", '{"text": "x\\ud83dy", "title": "\\udc00"}\n{"text": "\\ud83d\\ude00"}')
    assert [document.text for document in read_files([lines])] == ["x\ufffdy", "😀"]
    assert read_files([lines])[0].title == "\ufffd"


def test_a_heading_that_can_be_read_in_many_ways() -> None:
    """A pattern with two ways to read its end would try all of them, for hours."""
    line = "#" + " #" * 200_000 + " x"
    assert split_typed(f"# Rain {line}\nIt rains.")[0].title == f"Rain {line}"


def test_a_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collection = load_collection(str(make_small_collection(tmp_path / "small").folder))
    first_stage = FirstStageSource(collection, depth=3)
    found = first_stage.search("speed of heated plates")
    assert [document.origin for document in found] == ["BM25 rank 1", "BM25 rank 2", "BM25 rank 3"]
    assert {document.name for document in found} == {"d2", "d4", "d6"}
    with pytest.raises(InputError, match=r"BM25 finds no document"):
        first_stage.search("unknown vocabulary")
    monkeypatch.setattr(sources, "MAX_CHARACTERS", 120)
    assert len(first_stage.search("speed of heated plates")) == 1
