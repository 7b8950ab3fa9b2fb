"""A collection of BEIR's form: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv."""

from collections.abc import Iterator
from pathlib import Path

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Qrels, add_judgment, whole_number
from docparade.retrieval.storage.files import read_lines

from .document_file import id_field, parse_object, text_field
from .local import FolderCollection, file_in


class BeirCollection(FolderCollection):
    """A folder as BEIR distributes them; the judgments are those of the test split unless another file is named.

    Queries are those with judgments in that split, as BEIR's own evaluation takes them; without any judgments, all.

    ```python
    BeirCollection(Path("scifact"), judgments=Path("scifact/qrels/train.tsv")).queries()
    ```
    """

    def __init__(self, folder: Path, judgments: Path | None = None) -> None:
        super().__init__(folder, "corpus.jsonl")
        self.name = str(judgments or folder)
        self._judgments = judgments

    def queries(self, field: str | None = None) -> dict[str, str]:
        queries = dict(_read_queries(file_in(self._folder, "queries.jsonl"), field or "text"))
        if self._judgments is None and not (self._folder / "qrels").is_dir():
            return queries
        qrels = self.qrels()
        if missing := qrels.keys() - queries.keys():
            raise InputError(f"{self.name}: query {min(missing)} has judgments, and is not in queries.jsonl.")
        return {query_id: text for query_id, text in queries.items() if query_id in qrels}

    def qrels(self) -> Qrels:
        path = self._judgments or self._folder / "qrels" / "test.tsv"
        if not path.is_file():
            splits = ", ".join(str(split) for split in sorted((self._folder / "qrels").glob("*.tsv")))
            raise InputError(f"{path} does not exist; name one of the judgment files: {splits or 'there are none'}.")
        return _read_judgments(path)


def _read_queries(path: Path, field: str) -> Iterator[tuple[str, str]]:
    seen = set()
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        record = parse_object(line, where)
        query_id = id_field(record, ("_id",), where)
        if query_id in seen:
            raise InputError(f"{where}: query {query_id} stands a second time; keep one of the lines.")
        if field not in record:
            raise InputError(f"{where}: query {query_id} has no field {field}; it has {', '.join(record)}.")
        seen.add(query_id)
        yield query_id, text_field(record, field, where)


def _read_judgments(path: Path) -> Qrels:
    """Lines of `query-id<tab>corpus-id<tab>score`, the first line a header."""
    qrels: Qrels = {}
    for number, line in read_lines(path):
        fields = line.split("\t")
        if len(fields) != 3:
            raise InputError(
                f"{path}, line {number}: a line has 3 columns, query-id, corpus-id and score, with tabs between them, "
                f"and this one has {len(fields)}."
            )
        query_id, document_id, score = fields
        if number == 1 and score == "score":
            continue
        grade = whole_number(score)
        if grade is None:
            raise InputError(f"{path}, line {number}: the score {score[:50]!r} is not a whole number.")
        try:
            add_judgment(qrels, query_id, document_id, grade)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
    if not qrels:
        raise InputError(f"{path} holds no judgments.")
    return qrels
