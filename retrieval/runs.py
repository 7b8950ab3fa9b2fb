"""Runs and judgments: read and write TREC files; rank, cut, merge and compare runs.

`ranking` is the one rule of order, as in trec_eval 9.0.4: scores are compared as 32-bit floats, higher scores come
first, and among equal scores the document id that is later in the alphabet (by code point). `model.rank`
(modeling/engine.py) and Birch (birch.py) follow the same rule. The rank column of a run file is checked and otherwise
ignored, as in trec_eval.
"""

import logging
import math
import re
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from .errors import InputError
from .storage.files import atomic_write, read_columns

logger = logging.getLogger(__name__)

Run: TypeAlias = dict[str, dict[str, float]]
"""query id -> document id -> score"""

Qrels: TypeAlias = dict[str, dict[str, int]]
"""query id -> document id -> grade; grades above 0 are relevant, a document without a grade is unjudged"""

PassageGrades: TypeAlias = dict[str, dict[str, dict[str, int]]]
"""query id -> document id -> passage -> grade"""

Number = TypeVar("Number", int, float)

LARGEST = 3.4028234663852886e38
"""The largest score: the largest 32-bit float. Larger ones would become infinite, and therefore equal."""

HIGHEST_GRADE = 1_000_000
"""The highest absolute grade: the memory that trec_eval takes grows with it."""

COMMENT = "#"
"""Lines of runs and judgments that begin with it are skipped, as in trec_eval 10."""

# Stricter than int() and float(), which also accept '1_000', ' 1' and digits of other scripts.
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}").fullmatch
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?").fullmatch


def ranking(scores: Mapping[str, float]) -> list[str]:
    """Document ids, best first: by score, and among equal scores the later document id first.

    >>> ranking({"a": 1.0, "b": 2.0, "c": 2.0})
    ['c', 'b', 'a']
    """
    # trec_eval keeps scores as 32-bit floats; comparing more digits would rank some documents differently.
    values = array("f", scores.values())
    if any(map(math.isnan, values)):
        raise InputError(
            f"the score of document {next(id for id in scores if math.isnan(scores[id]))} is not a number (NaN)."
        )
    return [document for _, document in sorted(zip(values, scores, strict=True), reverse=True)]


def read_run(path: str | Path) -> Run:
    """Read a TREC run: lines of `query Q0 document rank score tag`; a file whose name ends in `.gz` is unpacked.

    Every line must have all columns, every score must be a finite 32-bit number, and a query may have a document only
    once. Blank lines and lines that begin with `#` are skipped; columns after the tag are ignored, which is said. A
    file without other lines is an error.

    >>> write_run({"1": {"a": 1.0, "b": 2.0}}, "bm25.txt")
    >>> read_run("bm25.txt")
    {'1': {'b': 2.0, 'a': 1.0}}
    """
    run: Run = {}
    _read_table(path, "query Q0 document rank score tag", _score_of, partial(add_score, run), further=True)
    return run


def add_score(run: Run, query: str, document: str, score: float) -> None:
    """Add a document's score; a document has one score for a query.

    >>> add_score({"1": {"a": 2.0}}, "1", "b", 1.5)
    """
    scores = run.setdefault(query, {})
    if document in scores:
        raise InputError(f"document {document} occurs a second time for query {query}; keep one of them.")
    scores[document] = score


def write_run(run: Run, path: str | Path, tag: str = "docparade") -> None:
    """Write a TREC run: each query's documents in ranking order, scores with all their digits.

    A query without documents has no line in the file.

    >>> write_run({"1": {"a": 2.0, "b": 1.5}}, "run.txt", tag="bm25")
    """
    _check_not_empty(run, path)
    _check_word(tag, "the tag", path)
    with atomic_write(path) as file:
        for query, scores in run.items():
            _check_query(query, path)
            for document, score in scores.items():
                _check_word(document, "a document id", path)
                if not abs(score) <= LARGEST:
                    raise InputError(
                        f"{path}: the score of document {document} for query {query} is {score}, and must be a finite "
                        "32-bit number."
                    )
            for rank, document in enumerate(ranking(scores), start=1):
                file.write(f"{query} Q0 {document} {rank} {float(scores[document])!r} {tag}\n")


def read_qrels(path: str | Path) -> Qrels:
    """Read TREC judgments: lines of `query iteration document grade`; a file whose name ends in `.gz` is unpacked.

    Lines that begin with `#` are skipped. Grades are whole numbers. If a document is judged several times for a query,
    its highest grade counts; if the grades differ, that is said.

    >>> write_qrels({"1": {"184": 2}}, "qrels.txt")
    >>> read_qrels("qrels.txt")["1"]["184"]
    2
    """
    judgments = Judgments(str(path))
    _read_table(path, "query iteration document grade", _grade_of, judgments.add)
    return judgments.finish()


def add_judgment(qrels: Qrels, query: str, document: str, grade: int) -> None:
    """Add a judgment; the highest grade counts if there are several, as in TREC Genomics, which judges passages.

    >>> qrels = {"1": {"a": 2}}
    >>> add_judgment(qrels, "1", "a", 1)
    >>> qrels
    {'1': {'a': 2}}
    """
    check_grade(query, document, grade)
    grades = qrels.setdefault(query, {})
    grades[document] = max(grade, grades.get(document, grade))


class Judgments:
    """Collects the judgments of one source; if a document has several grades for a query, the highest counts.

    >>> judgments = Judgments("qrels.txt")
    >>> judgments.add("1", "a", 2)
    >>> judgments.add("1", "a", 2)
    >>> judgments.finish()
    {'1': {'a': 2}}
    """

    def __init__(self, source: str) -> None:
        self.qrels: Qrels = {}
        self._source = source
        self._differing: set[tuple[str, str]] = set()

    def add(self, query: str, document: str, grade: int) -> None:
        """Add a judgment."""
        if self.qrels.get(query, {}).get(document, grade) != grade:
            self._differing.add((query, document))
        add_judgment(self.qrels, query, document, grade)

    def finish(self) -> Qrels:
        """All judgments. It is said, once for a source, if documents have several grades."""
        if self._differing:
            _say_differing(self._source, len(self._differing), *min(self._differing))
        return self.qrels


@cache
def _say_differing(source: str, count: int, query: str, document: str) -> None:
    logger.warning(
        "%s: %d judged documents have different grades for the same query, such as document %s for query %s; the "
        "highest counts, as in TREC Genomics, which judges passages.",
        source,
        count,
        document,
        query,
    )


def check_grade(query: str, document: str, grade: int) -> None:
    """Refuse a grade beyond `HIGHEST_GRADE`.

    >>> check_grade("1", "a", 2)
    """
    if abs(grade) > HIGHEST_GRADE:
        raise InputError(
            f"the grade of document {document} for query {query} is {grade}; a grade is from "
            f"-{HIGHEST_GRADE} to {HIGHEST_GRADE}."
        )


def whole_number(text: str) -> int | None:
    """The whole number that a text is, or None; stricter than int().

    >>> whole_number("-12"), whole_number("1_0")
    (-12, None)
    """
    return int(text) if _WHOLE_NUMBER(text) else None


def write_qrels(qrels: Qrels, path: str | Path) -> None:
    """Write TREC judgments; a query without judgments has no line in the file.

    >>> write_qrels({"1": {"a": 2, "b": 0}}, "qrels.txt")
    """
    _check_not_empty(qrels, path)
    with atomic_write(path) as file:
        for query, grades in qrels.items():
            _check_query(query, path)
            for document, grade in grades.items():
                _check_word(document, "a document id", path)
                file.write(f"{query} 0 {document} {int(grade)}\n")


def cut(run: Run, depth: int) -> Run:
    """The best `depth` documents of every query.

    >>> cut({"1": {"a": 1.0, "b": 2.0}}, 1)
    {'1': {'b': 2.0}}
    """
    if depth < 1:
        raise InputError(f"depth must be at least 1, and is {depth}.")
    return {
        query: {document: scores[document] for document in ranking(scores)[:depth]} for query, scores in run.items()
    }


def top_documents(run: Run, depth: int) -> set[str]:
    """The ids of all documents among the first `depth` of any query.

    Example:
        >>> sorted(top_documents({"q1": {"a": 2.0, "b": 1.0}, "q2": {"c": 3.0}}, depth=1))
        ['a', 'c']
    """
    return {document for found in run.values() for document in ranking(found)[:depth]}


def merge(runs: Iterable[Run]) -> Run:
    """Join runs of different queries into one run, such as the runs of test folds.

    >>> merge([{"1": {"a": 1.0}}, {"2": {"b": 1.0}}])
    {'1': {'a': 1.0}, '2': {'b': 1.0}}
    """
    merged: Run = {}
    for run in runs:
        shared = merged.keys() & run.keys()
        if shared:
            raise InputError(f"query {min(shared)} is in two of the runs to merge; to combine scores, fuse the runs.")
        merged.update(run)
    return merged


@dataclass(frozen=True)
class Comparison:
    """How far two runs agree, down to a depth."""

    queries_in_both: int
    only_in_first: tuple[str, ...]
    only_in_second: tuple[str, ...]
    same_ranking: int
    """number of queries with the same documents in the same order"""
    overlap: float
    """share of documents that are in both rankings, mean over queries"""
    largest_score_difference: float
    """over all documents that are in both rankings"""


def compare(first: Run, second: Run, depth: int = 1000) -> Comparison:
    """Compare two runs, for example one computed here with one computed elsewhere.

    >>> compare({"1": {"a": 2.0, "b": 1.0}}, {"1": {"a": 2.0, "c": 1.0}}).overlap
    0.5
    """
    first_cut, second_cut = cut(first, depth), cut(second, depth)
    both = [query for query in first_cut if query in second_cut]
    shared = {query: first_cut[query].keys() & second_cut[query].keys() for query in both}
    sizes = {query: max(len(first_cut[query]), len(second_cut[query])) for query in both}
    differences = [
        abs(first_cut[query][document] - second_cut[query][document]) for query in both for document in shared[query]
    ]
    return Comparison(
        queries_in_both=len(both),
        only_in_first=tuple(query for query in first if query not in second),
        only_in_second=tuple(query for query in second if query not in first),
        same_ranking=sum(list(first_cut[query]) == list(second_cut[query]) for query in both),
        overlap=sum(len(shared[q]) / sizes[q] if sizes[q] else 1.0 for q in both) / len(both) if both else 0.0,
        largest_score_difference=max(differences, default=0.0),
    )


def _read_table(
    path: str | Path,
    form: str,
    value_of: Callable[[list[str]], Number],
    add: Callable[[str, str, Number], None],
    further: bool = False,
) -> None:
    """Read lines of the given form, and add each as query id, document id and value; an error names the line."""
    number, count, said = 0, len(form.split()), False
    for number, fields in read_columns(path, form, comment=COMMENT, further=further):
        if len(fields) > count and not said:
            logger.warning("%s, line %d: what follows '%s' is ignored, here and in other lines.", path, number, form)
            said = True
        try:
            add(fields[0], fields[2], value_of(fields))
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
    if not number:
        raise _nothing_in(path)


def _score_of(fields: list[str]) -> float:
    rank, text = fields[3], fields[4]
    if not _WHOLE_NUMBER(rank):
        raise InputError(f"the rank is '{_shown(rank)}', and must be a whole number.")
    score = float(text) if _NUMBER(text) else math.nan
    if not abs(score) <= LARGEST:
        raise InputError(f"the score is '{_shown(text)}', and must be a finite 32-bit number.")
    return score


def _grade_of(fields: list[str]) -> int:
    grade = whole_number(fields[3])
    if grade is None:
        raise InputError(f"the grade is '{_shown(fields[3])}', and must be a whole number.")
    return grade


def _shown(text: str) -> str:
    """A text for a message, cut if it is long."""
    return text if len(text) <= 50 else f"{text[:50]}…"


def _check_not_empty(table: Mapping[str, Mapping[str, float]], path: str | Path) -> None:
    if not any(table.values()):
        raise _nothing_in(path)


def _nothing_in(path: str | Path) -> InputError:
    return InputError(f"{path}: there are no lines; a run or a file of judgments has at least one.")


def _check_query(query: str, path: str | Path) -> None:
    _check_word(query, "a query id", path)
    if query.startswith(COMMENT):
        raise InputError(f"{path}: a query id is '{query}', and its lines would be comments; rename it.")


def _check_word(value: str, name: str, path: str | Path) -> None:
    if value.split() != [value]:
        raise InputError(f"{path}: {name} is '{value}', and must be one word, because columns are separated by spaces.")
