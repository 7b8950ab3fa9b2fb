"""First-stage retrieval: from a collection to a run in one call, with the embedded engine or with Lucene."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from docparade.retrieval.collections.collection import Collection
from docparade.retrieval.errors import InputError, check_choice
from docparade.retrieval.progress import show_progress
from docparade.retrieval.runs import Run

from .rm3 import RM3
from .searcher import Searcher
from .similarity import BM25, QueryLikelihood

Method: TypeAlias = Literal["bm25", "bm25+rm3", "ql", "ql+rm3"]
Engine: TypeAlias = Literal["embedded", "lucene"]
METHODS: tuple[Method, ...] = get_args(Method)
ENGINES: tuple[Engine, ...] = get_args(Engine)
PARTS: dict[str, type[BM25 | QueryLikelihood | RM3]] = {"bm25": BM25, "ql": QueryLikelihood, "rm3": RM3}
"""the parts of a method; `bm25+rm3` has the parameters of both"""
PARAMETERS: dict[str, str] = {field.name: part for part, kind in PARTS.items() for field in fields(kind)}
"""parameter -> the part it belongs to"""


@dataclass(frozen=True)
class FirstStage:
    """A retrieval method with its parameters; a parameter of another method is an `InputError`.

    The defaults are Anserini's. A parameter that the method does not use is None.

    >>> FirstStage("bm25+rm3", k1=1.5, b=0.75).feedback_terms
    10
    """

    method: Method = "bm25"
    k1: float | None = None
    b: float | None = None
    mu: float | None = None
    feedback_documents: int | None = None
    feedback_terms: int | None = None
    original_weight: float | None = None

    def __post_init__(self) -> None:
        check_parameters(self.method, {name: name for name in PARAMETERS if getattr(self, name) is not None})
        # The parts check their parameters and have the defaults.
        for part in filter(None, (self.similarity(), self.feedback())):
            for name, value in vars(part).items():
                object.__setattr__(self, name, value)

    def similarity(self) -> BM25 | QueryLikelihood:
        """How terms are weighted."""
        if self.method.startswith("bm25"):
            return BM25(**self._given("bm25"))
        return QueryLikelihood(**self._given("ql"))

    def feedback(self) -> RM3 | None:
        """How the query is expanded, if it is."""
        return RM3(**self._given("rm3")) if self.method.endswith("rm3") else None

    def _given(self, part: str) -> dict[str, Any]:
        values = {name: getattr(self, name) for name, owner in PARAMETERS.items() if owner == part}
        return {name: value for name, value in values.items() if value is not None}


def check_parameters(method: str, given: Mapping[str, str]) -> None:
    """Refuse an unknown method, and parameters that the method does not use.

    `given` maps each parameter to the user's name for it, such as an option of the command line.

    >>> check_parameters("bm25", {"mu": "--mu"})
    Traceback (most recent call last):
    docparade.retrieval.errors.InputError: --mu belongs to ql, and the method is bm25; leave it out, or choose ql ...
    """
    check_choice(method, METHODS, "method")
    for name, label in given.items():
        if PARAMETERS[name] not in method.split("+"):
            choices = " or ".join(other for other in METHODS if PARAMETERS[name] in other.split("+"))
            raise InputError(
                f"{label} belongs to {PARAMETERS[name]}, and the method is {method}; leave it out, or choose {choices}."
            )


def unused_parameters(method: object) -> set[str]:
    """The parameters that a method does not use; none if the method is unknown.

    >>> sorted(unused_parameters("bm25+rm3"))
    ['mu']
    """
    return {name for name, part in PARAMETERS.items() if method in METHODS and part not in str(method).split("+")}


def retrieve(
    collection: Collection,
    stage: FirstStage | None = None,
    queries: Mapping[str, str] | None = None,
    hits: int = 1000,
    engine: Engine = "embedded",
    progress: bool = True,
) -> Run:
    """The best documents of a collection for each query.

    The default `stage` is BM25 with Anserini's parameters, the default `queries` are the collection's. The index is
    built the first time and kept. A query without any indexed term gets no documents.

    ```python
    run = retrieve(load_collection("cranfield"), FirstStage("bm25", k1=1.5, b=0.75))
    write_run(run, "bm25.txt")
    ```
    """
    stage = stage or FirstStage()
    queries = collection.queries() if queries is None else queries
    if hits < 1:
        raise InputError(f"hits must be at least 1, and is {hits}.")
    if check_choice(engine, ENGINES, "engine") == "lucene":
        from .lucene import search_with_lucene

        return search_with_lucene(collection, stage, queries, hits, progress)
    return _search_embedded(collection, stage, queries, hits, progress)


def _search_embedded(
    collection: Collection, stage: FirstStage, queries: Mapping[str, str], hits: int, progress: bool
) -> Run:
    from .inverted_index import open_index

    searcher = Searcher(open_index(collection, progress), stage.similarity(), stage.feedback())
    bar = show_progress(queries.items(), desc=stage.method, unit=" queries", hide=None if progress else True)
    return {query_id: searcher.search(text, hits) for query_id, text in bar}
