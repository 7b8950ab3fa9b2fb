"""Collections of ir_datasets, by their ids."""

import difflib
import errno
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Judgments, Qrels, Run
from docparade.retrieval.storage.files import file_version

from .collection import Collection, Document

_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)


class IrDatasetsCollection(Collection):
    """Any dataset of ir_datasets that has documents.

    ir_datasets keeps its files in `IR_DATASETS_HOME` (or `~/.ir_datasets`), downloads what can be downloaded, and says
    where to put licensed files.

    ```python
    IrDatasetsCollection("msmarco-document-v2/trec-dl-2021").document("msmarco_doc_00_0").headings
    ```
    """

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            self._dataset = load_dataset(name)
        except KeyError:
            if Path(name).is_file():
                raise InputError(f"{name} is a file; a collection is named by its folder or its id.") from None
            near = near_name(name)
            hint = f"; did you mean {near}?" if near else "."
            raise InputError(f"{name} is neither a folder here nor an id that ir_datasets knows{hint}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        # Datasets of ir_datasets cannot be pickled; another process opens its own.
        return type(self), (self.name,)

    def records(self, what: Literal["docs", "qrels"]) -> Iterator[Any]:
        """Documents or judgments as ir_datasets has them, with all of their fields."""
        with self._reading(what):
            yield from getattr(self._dataset, f"{what}_iter")()

    def documents(self) -> Iterator[Document]:
        return map(_to_document, self.records("docs"))

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        wanted = list(dict.fromkeys(ids))
        with self._reading("docs"):
            found = self._store.get_many(wanted)
        for document_id in wanted:
            if document_id not in found:
                raise InputError(f"{self.name} has no document {document_id}.")
        return {document_id: _to_document(found[document_id]) for document_id in wanted}

    def __len__(self) -> int:
        with self._reading("docs"):
            count = self._dataset.docs_count()
        # Some datasets do not know their size before they have been read.
        return sum(1 for _ in self.documents()) if count is None else int(count)

    def queries(self, field: str | None = None) -> dict[str, str]:
        with self._reading("queries"):
            return {query.query_id: self._query_text(query, field) for query in self._dataset.queries_iter()}

    def qrels(self) -> Qrels:
        judgments = Judgments(self.name)
        for record in self.records("qrels"):
            judgments.add(record.query_id, record.doc_id, int(record.relevance))
        return judgments.finish()

    def scored_documents(self) -> Run:
        if not self._dataset.has_scoreddocs():
            return super().scored_documents()
        run: Run = {}
        with self._reading("scoreddocs"):
            for scored in self._dataset.scoreddocs_iter():
                run.setdefault(scored.query_id, {})[scored.doc_id] = float(scored.score)
        return run

    def version(self) -> dict[str, object]:
        import ir_datasets

        with self._reading("docs"):
            # Parts of a dataset (years of topics, splits) with the same documents have the same parent.
            parent = ir_datasets.docs_parent_id(self.name)
        version: dict[str, object] = {
            "ir_datasets": ir_datasets.__version__,
            "id": parent,
            "home": str(ir_datasets.util.home_path().resolve()),
        }
        # Some datasets have a file of documents, others can only be streamed.
        if hasattr(self._dataset, "docs_path"):
            with self._reading("docs"):
                path = Path(self._dataset.docs_path())
            if path.exists():
                version |= file_version(path)
        return version

    @cached_property
    def _store(self) -> Any:
        return self._dataset.docs_store()

    def _query_text(self, query: Any, field: str | None) -> str:
        if field is None:
            return str(query.default_text())
        value = getattr(query, field, None)
        if field == "query_id" or not isinstance(value, str):
            fields = [name for name in query._fields if name != "query_id" and isinstance(getattr(query, name), str)]
            raise InputError(f"queries of {self.name} have no field {field}; they have {', '.join(fields)}.")
        return value

    @contextmanager
    def _reading(self, what: Literal["docs", "queries", "qrels", "scoreddocs"]) -> Iterator[None]:
        """Turn errors of ir_datasets into an `InputError` that says which files it needs, and where."""
        import ir_datasets

        if not getattr(self._dataset, f"has_{what}")():
            raise InputError(f"{self.name} has no {what}; another part of this dataset in ir_datasets may have them.")
        try:
            yield
        except (RuntimeError, OSError) as error:
            home = ir_datasets.util.home_path()
            if isinstance(error, OSError) and error.errno in _WRITE_ERRORS:
                raise _cannot_write(home, error) from error
            # For licensed data, the message of the error is the path where a copy must be put.
            licensed = isinstance(error, FileNotFoundError) and str(error).startswith(str(home))
            place = str(error) if licensed else home / self.name.split("/")[0]
            raise InputError(
                f"{self.name} is not on this machine and could not be downloaded: its {what} must be in {place} "
                f"(ir_datasets keeps its files in IR_DATASETS_HOME, here {home})."
            ) from error


def load_dataset(name: str) -> Any:
    """A dataset of ir_datasets, or a KeyError; its log is reduced to what a user must read, such as terms of use.

    >>> load_dataset("cranfield").docs_count()
    1400
    """
    try:
        import ir_datasets
    except OSError as error:  # importing it makes folders
        raise _cannot_write(error.filename, error) from error
    logging.getLogger("ir_datasets").addFilter(_is_for_the_user)
    return ir_datasets.load(name)


def _cannot_write(place: object, error: OSError) -> InputError:
    return InputError(
        f"ir_datasets cannot write to {place} ({error.strerror}); free some space there, or set IR_DATASETS_HOME to a "
        "folder that can be written."
    )


def near_name(name: str) -> str | None:
    """The known collection or folder whose name is most similar to an unknown one; nothing is downloaded.

    >>> near_name("cranfeild"), near_name("pydocs/tset")
    ('cranfield', 'docparade:pydocs/test')
    """
    import ir_datasets

    from docparade.retrieval.pydocs import pydocs_collection as pydocs

    path = Path(name)
    try:
        beside = [str(other) for other in path.parent.iterdir() if other.is_dir()]
    except OSError:
        beside = []
    ours = (pydocs.NAME, *(f"{pydocs.NAME}/{split}" for split in pydocs.SPLITS))
    names = {
        **{known.lower(): known for known in ir_datasets.registry},
        **{known.removeprefix("docparade:"): known for known in ours},
        **{folder.lower(): folder for folder in beside},
    }
    near = difflib.get_close_matches(str(path).lower(), names, n=1, cutoff=0.75)
    return names[near[0]] if near else None


def _is_for_the_user(record: logging.LogRecord) -> bool:
    """Whether to show a line of ir_datasets' log: not progress, and not a failure that the `InputError` reports.

    Terms of use, requests for a password and where to put a licensed copy have the same level as progress.
    """
    progress = ("[starting]", "[finished]", "[error]", "opening ", "extracted ", "download error", "download failed")
    return not record.getMessage().lower().startswith(progress)


def _to_document(document: Any) -> Document:
    """The document with its title and headings if it has any; its text is `text` or `body`, else the default text."""
    plain = {name: value for name, value in document._asdict().items() if isinstance(value, str)}
    text = plain.get("text", plain.get("body"))
    return Document(
        id=document.doc_id,
        text=document.default_text() if text is None else text,
        title=plain.get("title", ""),
        headings=plain.get("headings", ""),
    )
