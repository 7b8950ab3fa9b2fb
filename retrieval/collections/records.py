"""Documents, queries and judgments from records: lines of JSON Lines and TSV files, rows of Hugging Face datasets.

Every record comes with its place, such as `queries.jsonl, line 3`, which an `InputError` about it begins with.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import Judgments, Qrels, whole_number
from docparade.retrieval.storage.files import is_text, read_lines

from .collection import Document

Record: TypeAlias = Mapping[str, object]
PlacedRecord: TypeAlias = tuple[str, Record]
"""(place, record)"""

DOCUMENT_ID_FIELDS = ("doc_id", "id", "_id")
QUERY_ID_FIELDS = ("query_id", "_id", "id")
JUDGED_QUERY_FIELDS = ("query-id", "query_id")
JUDGED_DOCUMENT_FIELDS = ("corpus-id", "doc_id")
GRADE_FIELDS = ("score", "relevance")


def to_document(record: Record, place: str) -> Document:
    """The document of a record; `title` and `headings` may be missing, other fields are ignored.

    >>> to_document({"doc_id": "1", "text": "It rains."}, "docs.jsonl, line 1")
    Document(id='1', text='It rains.', title='', headings='')
    """
    if "text" not in record:
        raise InputError(f"{place}: the document has no field text.")
    title, headings, text = (text_field(record, name, place) for name in ("title", "headings", "text"))
    return Document(id_field(record, DOCUMENT_ID_FIELDS, place), text, title, headings)


def queries_from(records: Iterable[PlacedRecord], source: str, field: str | None = None) -> dict[str, str]:
    """Query id -> the query's text, or another `field`; an id occurs once. `source` names all of the records.

    >>> queries_from([("queries.jsonl, line 1", {"_id": "1", "text": "wing"})], "queries.jsonl")
    {'1': 'wing'}
    """
    field = field or "text"
    queries: dict[str, str] = {}
    for place, record in records:
        query_id = id_field(record, QUERY_ID_FIELDS, place)
        if query_id in queries:
            raise InputError(f"{place}: query {query_id} occurs a second time; keep one of them.")
        if field not in record:
            raise InputError(f"{place}: query {query_id} has no field {field}; it has {', '.join(record)}.")
        queries[query_id] = text_field(record, field, place)
    if not queries:
        raise InputError(f"{source} has no queries.")
    return queries


def judgments_from(records: Iterable[PlacedRecord], source: str) -> Qrels:
    """The judgments; a document with several grades for a query has the highest. `source` names all of the records.

    >>> judgments_from([("test.tsv, line 2", {"query-id": "1", "corpus-id": "d7", "score": "2"})], "test.tsv")
    {'1': {'d7': 2}}
    """
    judgments = Judgments(source)
    for place, record in records:
        query_id = id_field(record, JUDGED_QUERY_FIELDS, place)
        document_id = id_field(record, JUDGED_DOCUMENT_FIELDS, place)
        grade = _grade(record, place)
        try:
            judgments.add(query_id, document_id, grade)
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
    if not judgments.qrels:
        raise InputError(f"{source} has no judgments.")
    return judgments.finish()


def read_json_lines(path: Path) -> Iterator[PlacedRecord]:
    """The JSON objects of a file, one a line, with their places.

    ```python
    queries = queries_from(read_json_lines(Path("queries.jsonl")), "queries.jsonl")
    ```
    """
    for number, line in read_lines(path):
        place = f"{path}, line {number}"
        yield place, parse_json_object(line, place)


def parse_json_object(line: str, place: str) -> dict[str, object]:
    """The JSON object on a line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError too
        raise InputError(f"{place}: not a JSON object ({error}).") from None
    if not isinstance(record, dict):
        raise InputError(f"{place}: not a JSON object but {type(record).__name__}.")
    return record


def id_field(record: Record, names: Sequence[str], place: str) -> str:
    """The id in the first of the named fields that the record has."""
    name = next((name for name in names if name in record), None)
    if name is None:
        raise InputError(f"{place}: there is no id; add a field {' or '.join(names)}.")
    value = text_field(record, name, place)
    if not value or value.split() != [value]:
        raise InputError(f"{place}: {name} is {value[:50]!r}; an id is a string without spaces.")
    return value


def text_field(record: Record, name: str, place: str) -> str:
    """The string in a field; empty if the field is missing or null."""
    value = record.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{place}: {name} must be a string, and is {json.dumps(value)[:50]}.")
    if not is_text(value):
        raise InputError(f"{place}: {name} has half a character (a lone surrogate such as \\ud800).")
    return value


def _grade(record: Record, place: str) -> int:
    name = next((name for name in GRADE_FIELDS if name in record), GRADE_FIELDS[0])
    value = record.get(name)
    if isinstance(value, str):
        grade = whole_number(value)
    else:
        grade = int(value) if isinstance(value, int | float) and float(value).is_integer() else None
    if grade is None:
        raise InputError(f"{place}: {name} must be a whole number, and is {str(value)[:50]}.")
    return grade
