"""Collections of Hugging Face datasets: a corpus, queries, and judgments (qrels).

Columns have the names of the BEIR and MTEB repositories: `_id`, `title`, `text` for documents, `_id`, `text` for
queries, `query-id`, `corpus-id`, `score` for judgments. `doc_id` and `query_id` are accepted as well.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from docparade.retrieval.errors import InputError
from docparade.retrieval.progress import show_progress
from docparade.retrieval.runs import Qrels
from docparade.retrieval.storage.cache import build_once
from docparade.retrieval.storage.string_table import StringTable, StringTableWriter

from .collection import Collection, Document
from .records import DOCUMENT_ID_FIELDS, PlacedRecord, id_field, judgments_from, queries_from, to_document

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

Part: TypeAlias = Literal["corpus", "queries", "qrels"]

FORMAT = 1
"""Incremented when the format of the cached files changes."""


class HuggingFaceCollection(Collection):
    """A collection of datasets, which `datasets` memory-maps.

    `load` returns the dataset `corpus`, `queries` or `qrels`; it is called when that part is first needed.

    ```python
    parts = {"corpus": corpus, "queries": queries, "qrels": qrels}
    HuggingFaceCollection("mine", parts.__getitem__).document("doc-17")
    ```
    """

    def __init__(self, name: str, load: "Callable[[Part], Dataset]") -> None:
        self.name = name
        self._load = load
        self._part = cache(load)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process loads the datasets itself instead of getting a copy.
        return type(self), (self.name, self._load)

    def documents(self) -> Iterator[Document]:
        for place, record in self._records("corpus"):
            yield to_document(record, place)

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        return {document_id: self._fetch(document_id) for document_id in ids}

    def __len__(self) -> int:
        return len(self._part("corpus"))

    def queries(self, field: str | None = None) -> dict[str, str]:
        return queries_from(self._records("queries"), f"the dataset queries of {self.name}", field)

    def qrels(self) -> Qrels:
        return judgments_from(self._records("qrels"), f"the dataset qrels of {self.name}")

    def version(self) -> dict[str, object]:
        corpus = self._part("corpus")
        return {"fingerprint": corpus._fingerprint, "documents": len(corpus)}

    def _records(self, part: Part) -> Iterator[PlacedRecord]:
        for number, record in enumerate(self._part(part)):
            yield f"{self.name}, {part}, row {number}", record

    def _fetch(self, document_id: str) -> Document:
        row = self._ids.find(document_id)
        if row is None:
            raise InputError(f"{self.name} has no document {document_id}.")
        return to_document(self._part("corpus")[row], f"{self.name}, corpus, row {row}")

    @cached_property
    def _ids(self) -> StringTable:
        key = {"documents": self.version(), "format": FORMAT}
        return StringTable(build_once("documents", self.name, key, self._write_ids), "ids")

    def _write_ids(self, folder: Path) -> None:
        corpus = self._part("corpus")
        named = [name for name in DOCUMENT_ID_FIELDS if name in corpus.column_names]
        ids = corpus.select_columns(named[:1]) if named else corpus
        with StringTableWriter(folder / "ids", of=f"document ids of {self.name}") as table:
            for number, record in enumerate(show_progress(ids, f"reading the document ids of {self.name}")):
                table.append(id_field(record, DOCUMENT_ID_FIELDS, f"{self.name}, corpus, row {number}"))


def load_saved(folder: Path) -> HuggingFaceCollection:
    """A folder with datasets written by `save_to_disk`: `corpus`, and optionally `queries` and `qrels`.

    ```python
    corpus.save_to_disk("mine/corpus"); queries.save_to_disk("mine/queries")
    load_saved(Path("mine"))
    ```
    """
    return HuggingFaceCollection(str(folder), partial(_load_saved_part, folder))


def _load_saved_part(folder: Path, part: Part) -> "Dataset":
    import datasets

    if not (folder / part).is_dir():
        raise InputError(f"the collection {folder} has no {part}; save that dataset there.")
    try:
        return _one_split(datasets.load_from_disk(str(folder / part)), part, folder)
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / part} is not a dataset written by save_to_disk ({error}).") from error


def load_hugging_face(name: str) -> HuggingFaceCollection:
    """`hf:` and the name of a dataset with configurations `corpus`, `queries` and `qrels` (or `default`), as in MTEB.

    ```python
    load_hugging_face("hf:mteb/scifact").queries()
    ```
    """
    return HuggingFaceCollection(name, partial(_load_hub_part, name))


def _load_hub_part(name: str, part: Part) -> "Dataset":
    import datasets

    repository = name.removeprefix("hf:")
    try:
        configurations = datasets.get_dataset_config_names(repository)
        # In MTEB, the judgments are the configuration `default`.
        chosen = part if part in configurations or part != "qrels" else "default"
        return _one_split(datasets.load_dataset(repository, chosen), part, name)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"the {part} of {name} cannot be read, neither from the Hugging Face cache (HF_HOME) nor from the Hub: "
            f"{' '.join(str(error).split())}"
        ) from error


def _one_split(dataset: "Dataset | DatasetDict", part: Part, where: object) -> "Dataset":
    """The dataset, or one of its splits: the split named like the part, or `test`, or the only one."""
    if not isinstance(dataset, dict):
        return dataset
    for split in (part, "test"):
        if split in dataset:
            return dataset[split]
    if len(dataset) == 1:
        return next(iter(dataset.values()))
    raise InputError(f"the {part} of {where} has splits {', '.join(dataset)}, and none is called {part} or test.")


def check_hub_name(name: str) -> None:
    """Refuse a name that is not `hf:` and a dataset on the Hub.

    `datasets` would read a local folder of that name, and search all of a folder such as `..` for data.

    >>> check_hub_name("hf:mteb/scifact")
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    repository = name.removeprefix("hf:")
    try:
        validate_repo_id(repository)
    except HFValidationError:
        raise InputError(
            f"{name[:200]} does not name a dataset of the Hugging Face Hub, such as hf:mteb/scifact; "
            "name a folder by its path, without hf:."
        ) from None
    if Path(repository).exists():
        raise InputError(
            f"{name} would be read from {Path(repository).resolve()} and not from the Hub; start in another folder."
        )
