"""Documents in a JSON Lines file: places, changes, and everything that can be wrong with a line."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from docparade.retrieval.collections.collection import Document
from docparade.retrieval.collections.document_file import DocumentFile
from docparade.retrieval.errors import InputError

characters = st.characters(exclude_categories=["Cs"])
documents = st.builds(
    Document,
    id=st.text(characters, min_size=1).filter(lambda name: name.split() == [name]),
    text=st.text(characters),
    title=st.text(characters),
    headings=st.text(characters),
)


@given(
    st.lists(documents, min_size=1, unique_by=lambda document: document.id),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_is_written_is_read_and_fetched(written: list[Document], escaped: bool, line_end: str) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCPARADE_CACHE", folder)
        path = Path(folder) / "docs.jsonl"
        lines = [json.dumps(vars(document), ensure_ascii=escaped) for document in written]
        path.write_bytes(("\ufeff" + (line_end * 2).join(lines)).encode())
        file = DocumentFile(path)
        assert list(file) == written
        assert len(file) == len(written)
        assert file.get_many(document.id for document in written) == {document.id: document for document in written}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 2: not a JSON object"),
        (b"[1]", "line 2: not a JSON object but list"),
        (b'{"text": "a"}', "line 2: there is no id; add a field doc_id or id or _id"),
        (b'{"doc_id": "a"}', "line 2: the document has no field text"),
        (b'{"doc_id": 7, "text": "a"}', "line 2: doc_id must be a string, and is 7"),
        (b'{"doc_id": "a b", "text": "a"}', "line 2: doc_id is 'a b'; an id is a string without spaces"),
        (b'{"doc_id": "", "text": "a"}', "line 2: doc_id is ''"),
        (b'{"doc_id": "a", "text": ["a"]}', "line 2: text must be a string, and is"),
        (b'{"doc_id": "a", "text": "\\ud800"}', "line 2: text has half a character"),
        (b'{"doc_id": "\xff", "text": "a"}', "line 2: not UTF-8"),
        (b"[" * 100_000, "line 2: not a JSON object"),
    ],
)
def test_a_wrong_line_is_named_by_both_ways_of_reading(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_bytes(b'{"id": "1", "text": "a"}\n' + line + b"\n")
    with pytest.raises(InputError, match=f"docs.jsonl, {message}"):
        list(DocumentFile(path))
    with pytest.raises(InputError, match=f"docs.jsonl, {message}"):
        len(DocumentFile(path))


@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from([b'{"id":"1"', b',"text":"a"}', b"\n", b"}", b"\xff", b"null"])).map(b"".join)
)
def test_any_file_gives_documents_or_one_sentence(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCPARADE_CACHE", folder)
        path = Path(folder) / "docs.jsonl"
        path.write_bytes(content)
        try:
            read = list(DocumentFile(path))
        except InputError as error:
            assert "docs.jsonl, line" in str(error)
            with pytest.raises(InputError):
                len(DocumentFile(path))
        else:
            names = [document.id for document in read]
            if len(set(names)) == len(names):
                assert len(DocumentFile(path)) == len(read)
            else:
                with pytest.raises(InputError, match="must differ"):
                    len(DocumentFile(path))


def test_places_are_kept_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text('{"id": "1", "text": "old"}\n', encoding="utf-8")
    assert DocumentFile(path).get_many(["1"])["1"].text == "old"
    with monkeypatch.context() as patch:
        patch.setattr(DocumentFile, "_write_positions", None)  # not called a second time
        assert DocumentFile(path).get_many(["1"])["1"].text == "old"
    path.write_text('{"id": "0", "text": "new"}\n{"id": "1", "text": "new"}\n', encoding="utf-8")
    assert DocumentFile(path).get_many(["1"])["1"].text == "new"


def test_a_file_that_changes_in_use_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text('{"id": "1", "text": "a"}\n{"id": "2", "text": "b"}\n', encoding="utf-8")
    file = DocumentFile(path)
    assert len(file) == 2
    path.write_text('{"id": "2", "text": "b"}\n{"id": "1", "text": "a"}\n', encoding="utf-8")
    with pytest.raises(InputError, match="changed"):
        file.get_many(["1"])


def test_a_broken_gzip_file_leaves_nothing_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "docs.jsonl.gz"
    path.write_bytes(b"\x1f\x8b\x08\x00 broken")
    with pytest.raises(InputError, match="not a complete gzip file"):
        len(DocumentFile(path))
    assert list((tmp_path / "cache" / "documents").iterdir()) == []


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        len(DocumentFile(tmp_path / "docs.jsonl"))
    assert list(tmp_path.iterdir()) == []
