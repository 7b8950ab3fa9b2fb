"""Evaluate runs: any measure of ir_measures or trec_eval by its name, plus nERR and Q; means and values by query.

Means are over all judged queries, as with `trec_eval -c`: a judged query that is not in the run scores 0, and a query
without judgments is ignored. As in trec_eval, a negative grade counts as no judgment, and in infAP as a document of the
pool that nobody judged.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

import ir_measures
from ir_measures import Measure

from docparade.retrieval.errors import InputError
from docparade.retrieval.runs import HIGHEST_GRADE, Qrels, Run, check_grade, ranking

from .graded_measures import PROVIDER

HIGHEST_CUTOFF = 1_000_000_000

# The first provider that can compute a measure computes it. cwl_eval, ranx and pyndeval are used if they are installed.
PROVIDERS = ir_measures.providers.FallbackProvider([PROVIDER, *ir_measures.DefaultPipeline.providers])

# What separates measures, outside brackets. A comma before a digit does not: "ndcg_cut.10,20" is one name.
_BRACKET_OR_GAP = re.compile(r"[({})]|(?:\s|,(?![0-9]))+")

# trec_eval's names of measures without a cutoff, and with one or several, as in P_20 or ndcg_cut.10,20.
TREC_EVAL = {
    "map": "AP",
    "ndcg": "nDCG",
    "recip_rank": "RR",
    "bpref": "Bpref",
    "infAP": "infAP",
    "set_P": "SetP",
    "set_recall": "SetR",
    "set_F": "SetF",
    "set_map": "SetAP",
}
TREC_EVAL_CUT = {
    "map_cut": "AP",
    "ndcg_cut": "nDCG",
    "P": "P",
    "recall": "R",
    "success": "Success",
    "iprec_at_recall": "IPrec",
}
_TREC_EVAL_CUT = re.compile(rf"({'|'.join(TREC_EVAL_CUT)})[._]([0-9.]+(?:,[0-9.]+)*)").fullmatch
_NAME_AND_CUTOFF = re.compile(r"((?:[A-Za-z]+_)*[A-Za-z]+)(.*)", re.DOTALL).fullmatch


@dataclass(frozen=True)
class Evaluation:
    """The values of one run; measures have the names that were given."""

    means: dict[str, float]
    per_query: dict[str, dict[str, float]]
    """measure -> query id -> value, for every query in the mean"""
    not_retrieved: tuple[str, ...]
    """judged queries without documents in the run: they score 0, or are left out"""
    not_judged: tuple[str, ...]
    """queries of the run without judgments, which are ignored"""

    @property
    def queries(self) -> list[str]:
        """The queries in the means."""
        return list(next(iter(self.per_query.values())))


def parse_measures(names: str | Iterable[str]) -> dict[str, Measure]:
    """Read measures by name, such as `"nDCG@20 AP@100 P@20 R@1000 RR@10 ERR@20 nERR@10 Q@10 nDCG(dcg='exp-log2')@20"`.

    trec_eval's names work as well: `"map P_20 ndcg_cut.10,20"`. The keys of the result are the names as given.

    >>> parse_measures("nDCG@20 map")
    {'nDCG@20': nDCG@20, 'map': AP}
    """
    texts = _split(names.strip()) if isinstance(names, str) else list(names)
    measures = {name: measure for text in texts if text for name, measure in _parse_name(text).items()}
    if not measures:
        raise InputError("no measure is named; name one or more, such as 'nDCG@20 AP@100'.")
    return measures


def one_measure(names: str) -> str:
    """The name of a single measure; several are an `InputError`.

    >>> one_measure(" nDCG@20 ")
    'nDCG@20'
    """
    found = list(parse_measures(names))
    if len(found) > 1:
        raise InputError(f"'{names}' names {len(found)} measures; name one.")
    return found[0]


def evaluate(
    qrels: Qrels,
    run: Run,
    measures: str | Iterable[str],
    queries: Iterable[str] | None = None,
    retrieved_only: bool = False,
) -> Evaluation:
    """Measure a run against judgments.

    Means are over all judged queries, or over the judged ones among `queries`. With `retrieved_only`, queries without
    documents in the run are left out instead of scoring 0, as in trec_eval without its option -c.

    >>> evaluate({"1": {"a": 1}}, {"1": {"a": 2.0, "b": 3.0}}, "RR P@1").means
    {'RR': 0.5, 'P@1': 0.0}
    """
    parsed = parse_measures(measures)
    judged = {query: grades for query, grades in qrels.items() if grades}
    if not judged:
        raise InputError("there are no judgments to evaluate against.")
    wanted = judged.keys() | run.keys() if queries is None else set(queries)
    chosen = [query for query in judged if query in wanted]
    retrieved = [query for query in chosen if run.get(query)]
    counted = retrieved if retrieved_only else chosen
    if not counted:
        raise InputError(
            "none of the queries has judgments." if not chosen else "the run has no document for any judged query."
        )
    for query, grades in judged.items():
        for document, grade in grades.items():
            check_grade(query, document, grade)
    # With the judgments of all queries, because nERR takes the highest grade from them.
    ranked = _without_ties({query: run[query] for query in retrieved})
    values = {str(measure): dict.fromkeys(counted, 0.0) for measure in parsed.values()}
    for together in _computed_together(list(dict.fromkeys(parsed.values()))):
        try:
            known = _without_unjudged(judged, keep_pool=any(measure.NAME == "infAP" for measure in together))
            for metric in PROVIDERS.evaluator(together, known).iter_calc(ranked):
                if metric.query_id in values[str(metric.measure)]:
                    values[str(metric.measure)][metric.query_id] = float(metric.value)
        except ArithmeticError as error:  # 2 to the power of a high grade, or a division by zero
            names = ", ".join(map(str, together))
            raise InputError(
                f"{names} cannot be computed with these judgments ({error}); map the grades first, or leave it out."
            ) from None
    per_query = {name: values[str(measure)] for name, measure in parsed.items()}
    return Evaluation(
        means={name: _aggregate(measure, per_query[name].values()) for name, measure in parsed.items()},
        per_query=per_query,
        not_retrieved=tuple(query for query in chosen if not run.get(query)),
        not_judged=tuple(query for query in run if query in wanted and query not in judged),
    )


def _split(names: str) -> list[str]:
    """Split names at spaces and commas outside brackets: "P(rel=2)@20 nDCG(gains={1: 4, 2: 1})@20" is two names.

    From the end to the front, because a gap is inside brackets if the next bracket after it is a closing one.
    """
    texts, end, inside = [], len(names), False
    for found in reversed(list(_BRACKET_OR_GAP.finditer(names))):
        if found[0] in "({})":
            inside = found[0] in ")}"
        elif not inside:
            texts.append(names[found.end() : end])
            end = found.start()
    return [names[:end], *reversed(texts)]


def _without_ties(run: Run) -> Run:
    """The ranking with a different score for each document: providers break ties in different ways."""
    return {
        query: {document: float(-rank) for rank, document in enumerate(ranking(scores))}
        for query, scores in run.items()
        if scores
    }


def _without_unjudged(qrels: Qrels, keep_pool: bool) -> Qrels:
    """Without negative grades, which are no judgments; `keep_pool`: only without queries that have no other grades.

    trec_eval's Python port crashes on such queries. To infAP, a negative grade is a document that was in the pool and
    not judged, as in trec_eval; to all other measures it is nothing.
    """
    judged = {query: grades for query, grades in qrels.items() if any(grade >= 0 for grade in grades.values())}
    if keep_pool:
        return judged
    return {
        query: {document: grade for document, grade in grades.items() if grade >= 0} for query, grades in judged.items()
    }


def _aggregate(measure: Measure, values: Iterable[float]) -> float:
    aggregator = measure.aggregator()
    for value in values:
        aggregator.add(value)
    return float(aggregator.result())


def _computed_together(measures: list[Measure]) -> list[list[Measure]]:
    """Plain measures together, others alone: in one group, ir_measures would apply a measure's gains to plain nDCG as
    well, and infAP takes other judgments.
    """
    plain = [measure for measure in measures if "gains" not in measure.params and measure.NAME != "infAP"]
    return [group for group in [plain, *([measure] for measure in measures if measure not in plain)] if group]


def _parse_name(text: str) -> dict[str, Measure]:
    """Name -> measure; a name of trec_eval may stand for several measures."""
    return {name: _parse_measure(form, text) for name, form in _forms_of(text).items()}


def _forms_of(text: str) -> dict[str, str]:
    """Name -> how ir_measures writes the measure."""
    if text in TREC_EVAL:
        return {text: TREC_EVAL[text]}
    found = _TREC_EVAL_CUT(text)
    if not found:
        return {text: text}
    family, cutoffs = found[1], found[2].split(",")
    names = [text] if len(cutoffs) == 1 else [f"{family}_{cutoff}" for cutoff in cutoffs]
    return {name: f"{TREC_EVAL_CUT[family]}@{cutoff}" for name, cutoff in zip(names, cutoffs, strict=True)}


def _parse_measure(form: str, text: str) -> Measure:
    """The measure that ir_measures writes as `form`, and the user as `text`."""
    measure = _known_measure(form)
    if measure is None:
        raise InputError(f"'{text}' is not a measure; {_advice(text)}")
    try:
        measure.validate_params()
    except AssertionError:
        raise InputError(
            f"'{text}' has a missing or wrong parameter; P and R, for example, need a cutoff: P@20."
        ) from None
    _check_parameters(measure, text)
    if not PROVIDERS.supports(measure):
        raise InputError(f"'{text}' cannot be computed: no installed package provides it.")
    return measure


def _check_parameters(measure: Measure, text: str) -> None:
    """Refuse numbers that overflow in trec_eval, or would take all memory."""
    if not 1 <= measure.params.get("cutoff", 1) <= HIGHEST_CUTOFF:
        raise InputError(f"'{text}': the cutoff must be at least 1 and at most {HIGHEST_CUTOFF}.")
    if not abs(measure.params.get("rel", 1)) <= HIGHEST_GRADE:
        raise InputError(f"'{text}': rel must be a grade, at most {HIGHEST_GRADE}.")
    for gain in measure.params.get("gains", {}).values():
        if not isinstance(gain, int) or abs(gain) > HIGHEST_GRADE:
            raise InputError(f"'{text}': the gain {gain!r} must be a whole number, at most {HIGHEST_GRADE}.")


def _known_measure(form: str) -> Measure | None:
    try:
        return ir_measures.parse_measure(form)
    except (NameError, ValueError, TypeError, AttributeError):
        return None


def _advice(text: str) -> str:
    """A similar name with the same cutoff, or how measures are written."""
    if text in TREC_EVAL_CUT:
        return f"add a cutoff: {text}_10."
    names = (*ir_measures.measures.registry, *TREC_EVAL, *TREC_EVAL_CUT)
    parts = _NAME_AND_CUTOFF(text)
    word, rest = parts.groups() if parts else ("", "")
    for near in difflib.get_close_matches(word.lower(), sorted({name.lower() for name in names}), n=5):
        for name in (name + rest for name in names if name.lower() == near):
            if all(_is_computed(form) for form in _forms_of(name).values()):
                return f"did you mean {name}?"
    return "write it like nDCG@20, AP@100 or P(rel=2)@10."


def _is_computed(form: str) -> bool:
    measure = _known_measure(form)
    try:
        return measure is not None and PROVIDERS.supports(measure)
    except AssertionError:  # a parameter is missing
        return False
