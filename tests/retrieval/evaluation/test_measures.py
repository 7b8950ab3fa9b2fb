"""Measures against trec_eval and gdeval themselves, and against values worked out by hand."""

import math
import re
import shutil
from fractions import Fraction
from pathlib import Path

import ir_measures
import pytest
import pytrec_eval
from hypothesis import given, strategies as st

from docparade.retrieval import load_collection, retrieve
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation import measures
from docparade.retrieval.evaluation.measures import evaluate, one_measure, parse_measures
from docparade.retrieval.runs import Qrels, Run, ranking, read_qrels

TREC_EVAL_NAMES = {
    "nDCG@20": "ndcg_cut_20",
    "nDCG": "ndcg",
    "AP": "map",
    "AP@100": "map_cut_100",
    "P@20": "P_20",
    "P@5": "P_5",
    "R@1000": "recall_1000",
    "R@5": "recall_5",
    "RR": "recip_rank",
    "Bpref": "bpref",
}
QUERIES = st.sampled_from(["1", "2", "3", "4"])
DOCUMENTS = st.sampled_from([f"d{number}" for number in range(12)])
QRELS = st.dictionaries(QUERIES, st.dictionaries(DOCUMENTS, st.integers(-1, 4), min_size=1), min_size=1)
# Few distinct scores, so that ties abound; one pair is a tie to trec_eval alone, which compares 32 bits.
RUNS = st.dictionaries(
    QUERIES, st.dictionaries(DOCUMENTS, st.sampled_from([0.0, 1.0, 1.0 + 1e-9, 2.0, -1.0]), min_size=1)
)


def trec_eval(qrels: Qrels, run: Run) -> dict[str, dict[str, float]]:
    """trec_eval's own values on the very same scores, with 0 for judged queries that the run leaves out (-c)."""
    # Its Python port crashes, or never ends, where all grades of a query are negative: nothing is relevant there.
    countable = {query: grades for query, grades in qrels.items() if max(grades.values()) >= 0}
    values = pytrec_eval.RelevanceEvaluator(countable, set(TREC_EVAL_NAMES.values())).evaluate(run)
    return {
        ours: {query: values.get(query, {}).get(theirs, 0.0) for query in qrels}
        for ours, theirs in TREC_EVAL_NAMES.items()
    }


@given(QRELS, RUNS)
def test_equal_to_trec_eval_with_ties_unjudged_and_negative_grades(qrels: Qrels, run: Run) -> None:
    evaluation = evaluate(qrels, run, TREC_EVAL_NAMES)
    for name, values in trec_eval(qrels, run).items():
        assert evaluation.per_query[name] == pytest.approx(values, abs=1e-9), name
        assert evaluation.means[name] == pytest.approx(sum(values.values()) / len(values), abs=1e-9), name


@pytest.fixture(scope="module")
def time_run(time_magazine: str) -> Run:
    """A real BM25 run on the TIME collection, with scores rounded so that many are equal."""
    run = retrieve(load_collection(time_magazine), hits=100, progress=False)
    return {query: {name: float(round(score)) for name, score in found.items()} for query, found in run.items()}


def test_equal_to_trec_eval_on_a_real_run(time_run: Run, time_magazine: str) -> None:
    qrels = read_qrels(Path(time_magazine) / "qrels.txt")
    assert sum(len(scores) - len(set(scores.values())) for scores in time_run.values()) > 1000  # ties, plenty
    evaluation = evaluate(qrels, time_run, TREC_EVAL_NAMES)
    assert evaluation.means["nDCG@20"] > 0.3
    for name, values in trec_eval(qrels, time_run).items():
        assert evaluation.means[name] == pytest.approx(sum(values.values()) / len(values), abs=5e-5), name


def test_reciprocal_rank_with_a_cutoff_breaks_ties_like_the_others() -> None:
    # ir_measures hands RR@10 to a provider that breaks ties by the earlier document id.
    evaluation = evaluate({"1": {"a": 1}}, {"1": {"a": 1.0, "b": 1.0}}, "RR RR@10 P@1")
    assert evaluation.means == {"RR": 0.5, "RR@10": 0.5, "P@1": 0.0}


@given(QRELS, RUNS)
def test_exponential_ndcg_is_the_formula(qrels: Qrels, run: Run) -> None:
    def dcg(grades: list[int]) -> float:
        return sum((2 ** max(grade, 0) - 1) / math.log2(1 + i) for i, grade in enumerate(grades[:5], start=1))

    values = evaluate(qrels, run, ["nDCG(dcg='exp-log2')@5"]).per_query["nDCG(dcg='exp-log2')@5"]
    for query, grades in qrels.items():
        ideal = dcg(sorted(grades.values(), reverse=True))
        ranked = [grades.get(document, 0) for document in ranking(run.get(query, {}))]
        assert values[query] == pytest.approx(dcg(ranked) / ideal if ideal else 0.0)


@pytest.mark.skipif(not shutil.which("perl"), reason="gdeval is a Perl script, and there is no perl")
def test_err_and_exponential_ndcg_are_gdevals() -> None:
    qrels = {"1": {"a": 3, "b": 0, "c": 1, "d": -1, "e": 4}, "2": {"x": 1, "y": 2}, "3": {"z": 1}}
    run = {"1": {"b": 2.0, "a": 2.0, "d": 1.0, "c": 0.5, "z": 0.1}, "2": {"y": 1.0, "x": 1.0}}
    names = ["ERR@20", "ERR@2", "nDCG(dcg='exp-log2')@20", "nDCG(dcg='exp-log2')@2"]
    theirs = ir_measures.gdeval.calc_aggregate([ir_measures.parse_measure(name) for name in names], qrels, run)
    ours = evaluate(qrels, run, names).means
    assert ours == pytest.approx({str(name): value for name, value in theirs.items()}, abs=1e-5)


# A ranking with grades 0, 3, unjudged, 1; another relevant document, of grade 2, is not retrieved. Ideal: 3, 2, 1.
WORKED_QRELS: Qrels = {"1": {"a": 0, "b": 3, "d": 1, "e": 2, "f": -1}}
WORKED_RUN: Run = {"1": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}}
WORKED = {
    # Relevant at rank 2: (1 + 3) / (2 + 3+2); at rank 4: (2 + 4) / (4 + 3+2+1); divided by R = 3.
    "Q": (Fraction(4, 7) + Fraction(6, 10)) / 3,
    "Q@10": (Fraction(4, 7) + Fraction(6, 10)) / 3,
    # Only rank 2 counts, divided by min(2, R).
    "Q@2": Fraction(4, 7) / 2,
    # Gains 7, 3, 1: (1 + 7) / (2 + 7+3) and (2 + 8) / (4 + 7+3+1).
    "Q(gain='exponential')@10": (Fraction(8, 12) + Fraction(10, 15)) / 3,
    # Stop probabilities g / (3 + 1): 1/2 * 3/4 + 1/4 * (1/4 * 1/4);
    # of the ideal ranking: 3/4 + 1/2 * (1/4 * 2/4) + 1/3 * (1/4 * 2/4 * 1/4).
    "nERR@10": (Fraction(3, 8) + Fraction(1, 64)) / (Fraction(3, 4) + Fraction(1, 16) + Fraction(1, 96)),
    "nERR@2": Fraction(3, 8) / (Fraction(3, 4) + Fraction(1, 16)),
    # On a scale up to 4: g / (4 + 1).
    "nERR(max_rel=4)@2": Fraction(3, 10) / (Fraction(3, 5) + Fraction(1, 2) * Fraction(2, 5) * Fraction(2, 5)),
    # Gains 7, 3, 1 over 8.
    "nERR(gain='exponential')@10": (Fraction(7, 16) + Fraction(1, 4) * Fraction(1, 8) * Fraction(1, 8))
    / (
        Fraction(7, 8)
        + Fraction(1, 2) * Fraction(1, 8) * Fraction(3, 8)
        + Fraction(1, 3) * Fraction(5, 64) * Fraction(1, 8)
    ),
    # gdeval: (2^g - 1) / 2^4.
    "ERR@10": Fraction(1, 2) * Fraction(7, 16) + Fraction(1, 4) * Fraction(9, 16) * Fraction(1, 16),
}


@pytest.mark.parametrize(("name", "value"), WORKED.items(), ids=WORKED.keys())
def test_worked_examples(name: str, value: Fraction) -> None:
    assert evaluate(WORKED_QRELS, WORKED_RUN, [name]).means == pytest.approx({name: float(value)})


@given(QRELS, st.integers(1, 6))
def test_an_ideal_ranking_has_the_highest_value(qrels: Qrels, cutoff: int) -> None:
    ideal: Run = {
        query: {document: float(grade) for document, grade in grades.items()} for query, grades in qrels.items()
    }
    evaluation = evaluate(qrels, ideal, [f"{name}@{cutoff}" for name in ("Q", "nERR", "nDCG", "nDCG(dcg='exp-log2')")])
    for values in evaluation.per_query.values():
        for query, value in values.items():
            assert value == pytest.approx(1.0 if max(qrels[query].values()) > 0 else 0.0)


def test_on_binary_judgments_q_is_average_precision_where_all_relevant_lead() -> None:
    # With binary gains the blended ratio is (2 C) / (r + min(r, R)): precision as long as r <= R.
    evaluation = evaluate({"1": {"a": 1, "b": 1, "c": 1}}, {"1": {"a": 3.0, "x": 2.0, "b": 1.0}}, "Q AP")
    assert evaluation.means["Q"] == pytest.approx(evaluation.means["AP"]) == (1 + 2 / 3) / 3


def test_measures_with_gains_leave_plain_ndcg_alone() -> None:
    # Side by side, ir_measures gives the gains of one to the other, or not, as string hashes have it.
    qrels, run = {"1": {"a": 3, "c": 1, "e": 2}}, {"1": {"c": 2.0, "a": 1.0}}
    names = ["nDCG(gains={1:5,3:1})@20", "nDCG@20", "nDCG(gains={1:9})@20"]
    alone = {name: value for each in names for name, value in evaluate(qrels, run, [each]).means.items()}
    assert len(set(alone.values())) == 3
    assert evaluate(qrels, run, names).means == alone


def test_all_judged_queries_count_and_others_do_not() -> None:
    evaluation = evaluate({"1": {"a": 1}, "2": {"a": 1}, "3": {"a": 0}}, {"1": {"a": 1.0}, "9": {"a": 1.0}}, "AP Q@5")
    assert evaluation.means == pytest.approx({"AP": 1 / 3, "Q@5": 1 / 3})
    assert evaluation.per_query["AP"] == {"1": 1.0, "2": 0.0, "3": 0.0}
    assert evaluation.not_retrieved == ("2", "3")
    assert evaluation.not_judged == ("9",)


def test_chosen_queries_alone() -> None:
    qrels = {"1": {"a": 1}, "2": {"a": 1}, "3": {"a": 2}, "4": {"a": 1}}
    run = {"1": {"b": 2.0, "a": 1.0}, "2": {"a": 1.0}, "9": {"a": 1.0}, "8": {"a": 1.0}}
    evaluation = evaluate(qrels, run, "RR nERR@10", queries=["1", "4", "8"])
    whole = evaluate(qrels, run, "RR nERR@10")
    assert evaluation.queries == ["1", "4"]
    assert evaluation.means["RR"] == 0.25
    # The scale of grades is that of all judgments, so that a query has one value, whatever is measured beside it.
    for name, values in evaluation.per_query.items():
        assert values == {query: whole.per_query[name][query] for query in ("1", "4")}
    assert (evaluation.not_retrieved, evaluation.not_judged) == (("4",), ("8",))
    with pytest.raises(InputError, match="has judgments"):
        evaluate(qrels, run, "RR", queries=["9"])


@given(QRELS, RUNS)
def test_retrieved_queries_alone_as_trec_eval_has_them(qrels: Qrels, run: Run) -> None:
    countable = {query: grades for query, grades in qrels.items() if max(grades.values()) >= 0}
    theirs = pytrec_eval.RelevanceEvaluator(countable, {"map"}).evaluate(run)
    if not theirs:
        return
    found = evaluate(countable, run, "map", retrieved_only=True)
    assert set(found.queries) == set(theirs)
    assert found.means["map"] == pytest.approx(sum(value["map"] for value in theirs.values()) / len(theirs))


def test_no_retrieved_query_is_an_error() -> None:
    with pytest.raises(InputError, match="run has no document"):
        evaluate({"1": {"a": 1}}, {"1": {}, "2": {"a": 1.0}}, "AP", retrieved_only=True)


def test_an_empty_run_scores_nothing() -> None:
    assert evaluate({"1": {"a": 1}}, {"1": {}}, "nDCG@20 nERR@10 RR@10").means == dict.fromkeys(
        ["nDCG@20", "nERR@10", "RR@10"], 0.0
    )


def test_grades_below_minus_one_are_like_minus_one() -> None:
    # The Python port of trec_eval crashes on the second query.
    run = {"1": {"a": 1.0, "b": 1.0, "z": 2.0}, "2": {"x": 1.0}}
    names = "AP nDCG@20 Bpref nERR@10"
    lower = evaluate({"1": {"a": 4, "b": -2, "c": -1}, "2": {"x": -2}}, run, names)
    assert lower == evaluate({"1": {"a": 4, "b": -1, "c": -1}, "2": {"x": -1}}, run, names)
    assert lower.per_query["AP"] == {"1": pytest.approx(1 / 3), "2": 0.0}


def inferred_ap(grades: list[int | None], relevant: int) -> float:
    """trec_eval's infAP of a ranking of grades: below 0 in the pool and unjudged, None not in the pool."""
    found = others = unjudged = 0
    total, epsilon = 0.0, 0.00001
    for rank, grade in enumerate(grades):
        if grade is None:
            continue
        if grade <= 0:
            others, unjudged = others + (grade == 0), unjudged + (grade < 0)
            continue
        pool = (found + others + unjudged) / rank if rank else 0.0
        share = (found + epsilon) / (found + others + 2 * epsilon)
        total += 1 / (rank + 1) + rank / (rank + 1) * pool * share
        found += 1
    return total / relevant


def test_to_inferred_ap_a_negative_grade_is_unjudged_in_the_pool() -> None:
    qrels = {"1": {"a": -1, "b": 1, "c": -2, "d": 0, "e": 2, "h": 1}, "2": {"x": -1}}
    run = {"1": {name: -float(rank) for rank, name in enumerate("azbcdeh")}, "2": {"x": 1.0}}
    found = evaluate(qrels, run, "infAP AP nDCG@20 Bpref")
    grades = [qrels["1"].get(name) for name in "azbcdeh"]
    assert found.per_query["infAP"] == {"1": pytest.approx(inferred_ap(grades, relevant=3)), "2": 0.0}
    # In no other measure is it a judgment.
    plain = {"1": {"b": 1, "d": 0, "e": 2, "h": 1}, "2": {"x": 0}}
    unjudged = evaluate(plain, run, "infAP AP nDCG@20 Bpref")
    assert {name: value for name, value in found.means.items() if name != "infAP"} == {
        name: value for name, value in unjudged.means.items() if name != "infAP"
    }
    assert found.means["infAP"] > unjudged.means["infAP"]


def test_measures_are_parted_by_spaces_and_commas_outside_brackets() -> None:
    names = "nDCG@20, AP@100  nDCG(gains={1: 4, 2: 3})@20 P(rel=2)@10 P(rel=2, judged_only=True)@5 AP@100"
    assert {name: str(measure) for name, measure in parse_measures(names).items()} == {
        "nDCG@20": "nDCG@20",
        "AP@100": "AP@100",
        "nDCG(gains={1: 4, 2: 3})@20": "nDCG(gains={1:4,2:3})@20",
        "P(rel=2)@10": "P(rel=2)@10",
        "P(rel=2, judged_only=True)@5": "P(rel=2,judged_only=True)@5",
    }


@given(QRELS, RUNS)
def test_trec_evals_names_are_trec_evals_measures(qrels: Qrels, run: Run) -> None:
    names = {
        *TREC_EVAL_NAMES.values(), "Rprec", "success_5", "map_cut_10", "set_P", "set_recall", "iprec_at_recall_0.10",
    }  # fmt: skip
    countable = {query: grades for query, grades in qrels.items() if max(grades.values()) >= 0}
    values = pytrec_eval.RelevanceEvaluator(countable, names).evaluate(run)
    found = evaluate(qrels, run, names).per_query
    assert found.keys() == names
    for name in names:
        theirs = {query: values.get(query, {}).get(name, 0.0) for query in qrels}
        assert found[name] == pytest.approx(theirs, abs=1e-9), name


def test_one_name_of_trec_eval_may_be_of_several_measures() -> None:
    found = parse_measures("ndcg_cut.10,20, P.5 AP, map ndcg_cut_20")
    assert {name: str(measure) for name, measure in found.items()} == {
        "ndcg_cut_10": "nDCG@10",
        "ndcg_cut_20": "nDCG@20",
        "P.5": "P@5",
        "AP": "AP",
        "map": "AP",
    }
    assert evaluate({"1": {"a": 1}}, {"1": {"b": 2.0, "a": 1.0}}, "AP map").means == {"AP": 0.5, "map": 0.5}


def test_one_measure_alone() -> None:
    assert one_measure(" map ") == "map"
    with pytest.raises(InputError, match="'P_5,10' names 2 measures"):
        one_measure("P_5,10")


BAD_MEASURES = {
    "unknown@3": "'unknown@3' is not a measure; write it like nDCG@20, AP@100",
    "nDGC@20": "'nDGC@20' is not a measure; did you mean nDCG@20?",
    "ndcg@20": "'ndcg@20' is not a measure; did you mean nDCG@20?",
    "recal_100": "'recal_100' is not a measure; did you mean recall_100?",
    "ndcg_cut": "'ndcg_cut' is not a measure; add a cutoff: ndcg_cut_10",
    "P_0": "'P_0': the cutoff must be at least 1",
    "P_2.5": "'P_2.5' has a missing or wrong parameter",
    "P_20x": "'P_20x' is not a measure",
    "nDCG@0": "'nDCG@0': the cutoff must be at least 1",
    "nDCG@-1": "'nDCG@-1' is not a measure",
    "nDCG@2.5": "'nDCG@2.5' has a missing or wrong parameter",
    "P": "'P' has a missing or wrong parameter",
    "nDCG(": r"'nDCG\(' is not a measure",
    "nERR(gain='cubic')@3": "has a missing or wrong parameter",
    "": "no measure is named",
    "RBP": "'RBP' cannot be computed",
}


@pytest.mark.parametrize(("name", "message"), BAD_MEASURES.items(), ids=BAD_MEASURES.keys())
def test_a_wrong_measure_is_named(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate({"1": {"a": 1}}, {"1": {"a": 1.0}}, name)


def test_grades_beyond_the_scale_are_refused() -> None:
    with pytest.raises(InputError, match=r"ERR .*up to 4, .*grade of 5"):
        evaluate({"1": {"a": 5}}, {"1": {"a": 1.0}}, "ERR@20")
    with pytest.raises(InputError, match=r"up to 2, .*grade of 3"):
        evaluate({"1": {"a": 3}}, {"1": {"a": 1.0}}, "nERR(max_rel=2)@20")


def test_no_judgments_are_an_error() -> None:
    with pytest.raises(InputError, match="no judgments"):
        evaluate({"1": {}}, {"1": {"a": 1.0}}, "AP")


@given(st.text(alphabet="aP(){}@, 1=\t", max_size=40))
def test_names_are_parted_outside_brackets(text: str) -> None:
    assert measures._split(text) == re.split(r"(?:\s|,(?![0-9]))+(?![^({]*[)}])", text)


@pytest.mark.parametrize("size", [1_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("repeated", [" ", "a ", "a, ", "(a ", "a) ", "()"])
def test_long_lists_of_measures_take_time_in_proportion(repeated: str, size: int) -> None:
    assert "".join(measures._split(repeated * size + ")")).endswith(")")
