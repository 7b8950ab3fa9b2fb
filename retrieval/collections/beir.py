"""A collection in BEIR's format: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv."""

from collections.abc import Iterator
from pathlib import Path

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels
from docparade.retrieval.storage.files import read_columns

from .jsonl_folder import FolderCollection, file_in
from .records import PlacedRecord, judgments_from, queries_from, read_json_lines

COLUMNS = ("query-id", "corpus-id", "score")


class BeirCollection(FolderCollection):
    """A folder as BEIR distributes it; the judgments are from the test split, or from the given file.

    Only queries with judgments in this split count, as in BEIR's own evaluation; without a folder `qrels`, all do.

    ```python
    BeirCollection(Path("scifact"), judgments=Path("scifact/qrels/train.tsv")).queries()
    ```
    """

    def __init__(self, folder: Path, judgments: Path | None = None) -> None:
        super().__init__(folder, "corpus.jsonl")
        self.name = str(judgments or folder)
        self._judgments = judgments

    def queries(self, field: str | None = None) -> dict[str, str]:
        path = file_in(self._folder, "queries.jsonl")
        queries = queries_from(read_json_lines(path), str(path), field)
        if self._judgments is None and not (self._folder / "qrels").is_dir():
            return queries
        qrels = self.qrels()
        if missing := qrels.keys() - queries.keys():
            raise InputError(f"{self.name}: query {min(missing)} has judgments, but is not in queries.jsonl.")
        return {query_id: text for query_id, text in queries.items() if query_id in qrels}

    def qrels(self) -> Qrels:
        path = self._judgments or self._folder / "qrels" / "test.tsv"
        if not path.is_file():
            splits = ", ".join(str(split) for split in sorted((self._folder / "qrels").glob("*.tsv")))
            raise InputError(f"{path} does not exist; the judgment files are: {splits or 'none'}.")
        return read_beir_judgments(path)


def read_beir_judgments(path: Path) -> Qrels:
    """Read lines of `query-id<tab>corpus-id<tab>score`; the first line may be a header.

    ```python
    read_beir_judgments(Path("scifact/qrels/test.tsv"))
    ```
    """
    return judgments_from(_judgment_records(path), str(path))


def _judgment_records(path: Path) -> Iterator[PlacedRecord]:
    for number, fields in read_columns(path, " ".join(COLUMNS), separator="\t"):
        if number > 1 or fields[-1] != COLUMNS[-1]:
            yield f"{path}, line {number}", dict(zip(COLUMNS, fields, strict=True))
