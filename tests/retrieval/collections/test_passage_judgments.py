"""Judgments of passages in the forms in which they were published, against counts made by hand."""

from pathlib import Path

import pytest

from docparade.retrieval.collections.passage_judgments import (
    join_sentences,
    load_passage_map,
    place_passages,
    read_fira,
    read_genomics,
    read_passage_map,
    read_webap,
)
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.analyses import passage_shares, relevant_passages


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_passage_map_names_one_or_several_documents(tmp_path: Path) -> None:
    path = write(tmp_path / "map.tsv", "p1\td\np2 d\np2 e\np2 e\n")
    assert read_passage_map(path) == {"p1": ["d"], "p2": ["d", "e"]}
    write(path, "p1\n")
    with pytest.raises(InputError, match=r"line 1: .*2 columns, 'passage document', .*1"):
        read_passage_map(path)


def test_a_passage_counts_for_each_of_its_documents() -> None:
    placed = place_passages({"1": {"p1": 3, "p2": 1, "lost": 3}, "2": {"p1": 2}}, {"p1": ["d", "e"], "p2": ["d"]})
    assert placed == {"1": {"d": {"p1": 3, "p2": 1}, "e": {"p1": 3}}, "2": {"d": {"p1": 2}, "e": {"p1": 2}}}
    assert relevant_passages(placed) == {1: 3, 2: 1}
    # Only the document that is relevant itself, as for TREC DL: grade 3 for passages, 2 for documents.
    assert relevant_passages(placed, 3, {"1": {"d": 2, "e": 1}}, min_document_grade=2) == {1: 1}


def test_documents_of_ms_marco_passages_come_from_ir_datasets(tmp_path: Path) -> None:
    import ir_datasets
    from ir_datasets.datasets.msmarco_qna import MsMarcoQnADoc
    from ir_datasets.formats import BaseDocs

    class Passages(BaseDocs):
        def docs_iter(self) -> object:
            yield MsMarcoQnADoc("7-0", "text", "http://a", "7", "D1")
            yield MsMarcoQnADoc("7-1", "text", "http://b", "7", "D2")
            yield MsMarcoQnADoc("7-2", "text", "http://c", "7", None)
            yield MsMarcoQnADoc("8-0", "other", "http://a", "8", "D1")
            yield MsMarcoQnADoc("9-0", "third", "http://a", "9", "D1")

    name = f"docparade-test-{tmp_path.name}-qna"
    ir_datasets.registry.register(name, ir_datasets.Dataset(Passages()))
    assert load_passage_map(name, {"7", "8"}) == {"7": ["D1", "D2"], "8": ["D1"]}


def test_a_dataset_that_is_no_map(cranfield: str) -> None:
    with pytest.raises(InputError, match="cranfield does not say which"):
        load_passage_map(cranfield, {"1"})


def test_fira(tmp_path: Path) -> None:
    path = write(
        tmp_path / "fira-trec19-qrels-snippets.txt",
        "443396 Q0 D2144809_13 0\n443396 Q0 D2144809_24 3\n443396 Q0 D2144809_25 3\n443396 Q0 D99_0 3\n"
        "146187 Q0 D367883_24 2\n146187 Q0 D99_1 3\n",
    )
    # Grade 3: two snippets of D2144809 and one of D99 for the first query, one of D99 for the second.
    assert relevant_passages(read_fira(path), min_grade=3) == {1: 2, 2: 1}
    write(path, "1 Q0 D12 3\n")
    with pytest.raises(InputError, match=r"'D12' .*D12_3"):
        read_fira(path)


GENOMICS = """# topic pmid start length … label
160\t11\t100\t50\t0\tDEFINITELY
160\t11\t100\t50\t0\tNOT
160\t11\t900\t20\t0\tPOSSIBLY
160\t11\t950\t20\t0\tNOT
160\t12\t0\t20\t0\tPOSSIBLY
161\t11\t100\t50\t0\tNOT
"""


def test_genomics(tmp_path: Path) -> None:
    path = write(tmp_path / "trec2006.raw.relevance.tsv.txt", GENOMICS)
    # Topic 160: two relevant spans in 11 (the first is judged twice), one in 12. Topic 161: none.
    assert relevant_passages(read_genomics(path)) == {1: 1, 2: 1}
    write(path, "200 11 100 50 RELEVANT\n200 11 300 50 NOT_RELEVANT\n")
    assert relevant_passages(read_genomics(path)) == {1: 1}
    for line in ("200 11 100 50 MAYBE", "200 11 1e2 50 RELEVANT", "200 11 100 RELEVANT"):
        write(path, f"200 11 1 2 RELEVANT\n{line}\n")
        with pytest.raises(InputError, match=r"line 2: .*'topic document start length … label'"):
            read_genomics(path)


def test_genomics_of_ir_datasets(tmp_path: Path, cranfield: str) -> None:
    import ir_datasets
    from ir_datasets.datasets.highwire import QREL_DEFS_06, HighwireQrels
    from ir_datasets.util import StringFile

    name = f"docparade-test-{tmp_path.name}-genomics"
    dataset = ir_datasets.Dataset(HighwireQrels(StringFile(GENOMICS, "qrels.txt"), QREL_DEFS_06))
    ir_datasets.registry.register(name, dataset)
    assert read_genomics(name) == read_genomics(write(tmp_path / "genomics.tsv", GENOMICS))
    with pytest.raises(InputError, match="cranfield judges documents, not passages"):
        read_genomics(cranfield)


def words(count: int) -> str:
    return " ".join(["word"] * count)


def webap(query: str, document: str, *parts: tuple[str, int]) -> str:
    """A document of WebAP; a part is a grade's tag and the words of a sentence."""
    text = "\n".join(f"<{tag}>\n<SENTENCE>{words(count)}</SENTENCE>\n</{tag}>" for tag, count in parts)
    ids = f"<DOCNO>{document}-{query}</DOCNO><TARGET_QID>{query}</TARGET_QID>"
    return f"<DOC>\n{ids}\n<ORIGINAL_DOCNO>{document}</ORIGINAL_DOCNO>\n<TEXT>\n{text}\n</TEXT>\n</DOC>\n"


def test_webap(tmp_path: Path) -> None:
    path = write(
        tmp_path / "grade.trectext_patched",
        "<ROOT>\n"
        # 60 + 40 + 30 are 130 words, one passage; the next relevant sentence begins a second one.
        + webap("701", "GX1", ("NONE", 500), ("EXCEL", 60), ("NONE", 40), ("PERFECT", 30), ("PERFECT", 20))
        # Too far apart for one passage: the sentence between them does not fit, and ends the first.
        + webap("701", "GX2", ("PERFECT", 10), ("NONE", 121), ("PERFECT", 10), ("GOOD", 5))
        # Grades 2 and 1 are not relevant.
        + webap("702", "GX1", ("GOOD", 20), ("FAIR", 20))
        # A sentence over the limit is a passage, and so is the one after it.
        + webap("703", "GX3", ("PERFECT", 131), ("PERFECT", 1), ("EXCEL", 129))
        + webap("703", "GX4", ("PERFECT", 1), ("EXCEL", 129), ("EXCEL", 1))
        + webap("704", "GX4", ("EXCEL", 2))
        + "</ROOT>\n",
    )
    passages = read_webap(path)
    assert {(q, d): len(found) for q, documents in passages.items() for d, found in documents.items()} == {
        ("701", "GX1"): 2,
        ("701", "GX2"): 2,
        ("702", "GX1"): 0,
        ("703", "GX3"): 2,
        ("703", "GX4"): 2,
        ("704", "GX4"): 1,
    }
    assert passage_shares(relevant_passages(passages, min_grade=3)) == {"1": 0.2, "1-2": 1.0, "3+": 0.0}
    assert relevant_passages(read_webap(path, min_grade=1), min_grade=1) == {1: 2, 2: 4}
    write(path, "<DOC>\n<TARGET_QID>701</TARGET_QID>\n</DOC>\n")
    with pytest.raises(InputError, match=r"line 3: .*ORIGINAL_DOCNO"):
        read_webap(path)
    write(path, webap("701", "GX1", ("EXCEL", 6))[: -len("</DOC>\n")])
    with pytest.raises(InputError, match="ends inside a document"):
        read_webap(path)
    write(path, "nothing\n")
    with pytest.raises(InputError, match="has no documents"):
        read_webap(path)


def test_sentences_may_share_a_tag_and_break_over_lines(tmp_path: Path) -> None:
    text = "<TEXT><PERFECT><SENTENCE>one\ntwo</SENTENCE> <SENTENCE>a < b > c</SENTENCE></PERFECT></TEXT>"
    ids = "<TARGET_QID>1</TARGET_QID><ORIGINAL_DOCNO>GX1</ORIGINAL_DOCNO>"
    path = write(tmp_path / "grade", f"<DOC>{ids}{text}</DOC>")
    assert read_webap(path, max_words=7) == {"1": {"GX1": {"1": 4}}}
    assert read_webap(path, max_words=6) == {"1": {"GX1": {"1": 4, "2": 4}}}


def test_joining_never_finds_more_passages_than_relevant_sentences() -> None:
    sentences = [(grade, length) for grade in (0, 3, 4) for length in (0, 1, 60, 130, 200)] * 3
    for limit in (1, 60, 130, 500):
        assert 1 <= len(join_sentences(sentences, 3, limit)) <= sum(grade >= 3 for grade, _ in sentences)
    assert join_sentences([(0, 5), (4, 0)], 3, 130) == []
