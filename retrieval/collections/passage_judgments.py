"""Judgments of passages, in the forms in which they were published, by query and document.

Li et al. (2023, Table 11) count relevant passages in four forms: TREC judgments with a map from passages to documents
(MS MARCO), FiRA's judgments of snippets, WebAP's graded sentences, and the spans of TREC Genomics.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from docparade.retrieval.errors import InputError
from docparade.retrieval.progress import show_progress
from docparade.retrieval.runs import PassageGrades, Qrels, read_qrels, whole_number
from docparade.retrieval.storage.files import read_columns, read_lines

from .irds import IrDatasetsCollection

DocumentsOf: TypeAlias = Mapping[str, Collection[str]]
"""passage id -> the ids of the documents that it is in"""

WEBAP_GRADES = {"PERFECT": 4, "EXCEL": 3, "GOOD": 2, "FAIR": 1, "NONE": 0}
WEBAP_WORDS = 130
"""The longest passage that sentences of WebAP are put together to, in Li et al. (2023): as long as FiRA's snippets."""

GENOMICS_GRADES = {"NOT": 0, "POSSIBLY": 1, "DEFINITELY": 2, "NOT_RELEVANT": 0, "RELEVANT": 1}
"""of 2006, and of 2007"""

_WEBAP_FIELDS = ("TARGET_QID", "ORIGINAL_DOCNO")
_WEBAP_TAG = re.compile(rf"<(/?)(DOC|SENTENCE|{'|'.join([*_WEBAP_FIELDS, *WEBAP_GRADES])})>")


def place_passages(passage_qrels: Qrels, documents_of: DocumentsOf) -> PassageGrades:
    """Judgments of passages, by the documents that these are in; a passage without a document is left out.

    >>> place_passages({"1": {"p1": 3, "p2": 0}}, {"p1": ["d"], "p2": ["d", "e"]})
    {'1': {'d': {'p1': 3, 'p2': 0}, 'e': {'p2': 0}}}
    """
    passages: PassageGrades = {}
    for query, grades in passage_qrels.items():
        for passage, grade in grades.items():
            for document in documents_of.get(passage, ()):
                passages.setdefault(query, {}).setdefault(document, {})[passage] = grade
    return passages


def read_passage_map(path: str | Path) -> dict[str, list[str]]:
    """Read lines of `passage document`; a passage that is in several documents has a line for each.

    ```python
    documents_of = read_passage_map("passage-to-document.tsv")
    ```
    """
    documents_of: dict[str, list[str]] = {}
    for _, (passage, document) in read_columns(path, "passage document"):
        _add_document(documents_of, passage, document)
    return documents_of


def load_passage_map(name: str, passages: Collection[str]) -> dict[str, list[str]]:
    """The documents of MS MARCO's passages, from a dataset of ir_datasets that has both ids: `msmarco-qna`.

    It matches the passages of MS MARCO's questions and answers by their text, and their documents by the URL.

    ```python
    documents_of = load_passage_map("msmarco-qna", passages={"7067032"})
    ```
    """
    source = IrDatasetsCollection(name)
    documents_of: dict[str, list[str]] = {}
    for record in show_progress(source.records("docs"), f"reading {name}", unit=" passages"):
        if not hasattr(record, "msmarco_passage_id"):
            raise InputError(
                f"{name} does not say which documents passages are in; give a file of lines 'passage document', or "
                "msmarco-qna."
            )
        if record.msmarco_document_id and record.msmarco_passage_id in passages:
            _add_document(documents_of, record.msmarco_passage_id, record.msmarco_document_id)
    return documents_of


def read_fira(path: str | Path) -> PassageGrades:
    """Read FiRA's judgments of snippets, `fira-trec19-qrels-snippets.txt`: snippet D12_3 is in document D12.

    ```python
    passages = read_fira("fira-trec19-qrels-snippets.txt")
    ```
    """
    qrels = read_qrels(path)
    documents_of: dict[str, list[str]] = {}
    for snippet in {snippet for grades in qrels.values() for snippet in grades}:
        document, underscore, number = snippet.rpartition("_")
        if not underscore or not number.isdecimal():
            raise InputError(f"{path}: '{snippet}' is not the id of a snippet, such as D12_3.")
        documents_of[snippet] = [document]
    return place_passages(qrels, documents_of)


def read_genomics(source: str | Path) -> PassageGrades:
    """Read the spans that TREC Genomics judged: a file of the track, or an id of ir_datasets.

    A line is `topic document start length … label`, with the labels of `GENOMICS_GRADES`. If a span is judged
    twice, the highest grade counts.

    ```python
    passages = read_genomics("highwire/trec-genomics-2006")
    ```
    """
    passages: PassageGrades = {}
    for query, document, span, grade in (
        _genomics_lines(source) if Path(source).is_file() else _genomics_records(source)
    ):
        grades = passages.setdefault(query, {}).setdefault(document, {})
        grades[span] = max(grade, grades.get(span, grade))
    if not passages:
        raise InputError(f"{source} has no judgments.")
    return passages


def read_webap(path: str | Path, min_grade: int = 3, max_words: int = WEBAP_WORDS) -> PassageGrades:
    """Read the relevant passages of WebAP, `grade.trectext_patched`: `join_sentences` makes them of its sentences.

    Documents are named as in GOV2.

    ```python
    passages = read_webap("WebAP/gradedText/grade.trectext_patched")
    ```
    """
    passages: PassageGrades = {}
    for query, document, sentences in _webap_documents(path):
        found = join_sentences(sentences, min_grade, max_words)
        passages.setdefault(query, {})[document] = {str(number): grade for number, grade in enumerate(found, start=1)}
    if not passages:
        raise InputError(f"{path} has no documents; WebAP's annotations are in its file grade.trectext_patched.")
    return passages


def join_sentences(sentences: Iterable[tuple[int, int]], min_grade: int, max_words: int) -> list[int]:
    """The grade of each relevant passage, from the (grade, words) of a document's sentences.

    A relevant sentence begins a passage. All sentences after it, relevant or not, belong to the passage as long as it
    does not get longer than `max_words`; a longer sentence is a passage of its own.

    >>> join_sentences([(3, 60), (0, 40), (4, 30), (4, 20)], min_grade=3, max_words=130)
    [3, 4]
    """
    passages, room = [], 0
    for grade, words in sentences:
        if words <= room:
            room -= words
        elif grade >= min_grade:
            passages.append(grade)
            room = max(max_words - words, 0)
        else:
            room = 0
    return passages


def _add_document(documents_of: dict[str, list[str]], passage: str, document: str) -> None:
    documents = documents_of.setdefault(passage, [])
    if document not in documents:
        documents.append(document)


def _genomics_lines(path: str | Path) -> Iterator[tuple[str, str, str, int]]:
    for number, line in read_lines(path):
        if line.startswith("#"):
            continue
        columns = line.split()
        if len(columns) not in (5, 6) or columns[-1] not in GENOMICS_GRADES or None in map(whole_number, columns[2:4]):
            raise InputError(
                f"{path}, line {number}: a line is 'topic document start length … label', and the label one of "
                f"{', '.join(GENOMICS_GRADES)}."
            )
        query, document, start, length = columns[:4]
        yield query, document, f"{start}+{length}", GENOMICS_GRADES[columns[-1]]


def _genomics_records(name: str | Path) -> Iterator[tuple[str, str, str, int]]:
    for record in IrDatasetsCollection(str(name)).records("qrels"):
        if not hasattr(record, "start"):
            raise InputError(f"{name} judges documents, not passages; name a collection of TREC Genomics.")
        yield record.query_id, record.doc_id, f"{record.start}+{record.length}", int(record.relevance)


def _webap_documents(path: str | Path) -> Iterator[tuple[str, str, list[tuple[int, int]]]]:
    """(query, document, (grade, words) of each sentence) of every document."""
    fields: dict[str, str] = {}
    sentences: list[tuple[int, int]] = []
    grade, text = 0, ""
    for number, line in read_lines(path):
        # Text and tags take turns: text, "/" or nothing, the tag's name, text, …
        pieces = _WEBAP_TAG.split(line)
        text += pieces[0]
        for end, tag, after in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
            if tag in WEBAP_GRADES:
                grade = 0 if end else WEBAP_GRADES[tag]
            elif tag == "SENTENCE" and end:
                sentences.append((grade, len(text.split())))
            elif tag in _WEBAP_FIELDS and end:
                fields[tag] = text.strip()
            elif tag == "DOC" and end:
                if missing := [name for name in _WEBAP_FIELDS if not fields.get(name)]:
                    raise InputError(f"{path}, line {number}: the document that ends here has no {missing[0]}.")
                yield fields["TARGET_QID"], fields["ORIGINAL_DOCNO"], sentences
                fields, sentences = {}, []
            text = after
        text += " "  # the end of the line
    if fields or sentences:
        raise InputError(f"{path} ends inside a document; download it again.")
