"""First-stage retrieval: from a collection to a run, in one call, with either engine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from tqdm.auto import tqdm

from .collections import Collection
from .errors import InputError
from .rm3 import RM3
from .runs import Run
from .search import Searcher
from .similarity import BM25, QueryLikelihood

Method = Literal["bm25", "bm25+rm3", "ql", "ql+rm3"]
Engine = Literal["embedded", "lucene"]
METHODS: tuple[str, ...] = get_args(Method)
ENGINES: tuple[str, ...] = get_args(Engine)


@dataclass(frozen=True)
class FirstStage:
    """A retrieval method with all its parameters; those of the other methods are not used. Defaults are Anserini's.

    >>> FirstStage("bm25+rm3", k1=1.5, b=0.75)
    """

    method: str = "bm25"
    k1: float = 0.9
    b: float = 0.4
    mu: float = 1000.0
    feedback_documents: int = 10
    feedback_terms: int = 10
    original_weight: float = 0.5

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"there is no method {self.method}; choose one of {', '.join(METHODS)}.")
        # Building the parts checks their parameters.
        self.similarity()
        self.feedback()

    def similarity(self) -> BM25 | QueryLikelihood:
        """How terms are weighed."""
        return BM25(self.k1, self.b) if self.method.startswith("bm25") else QueryLikelihood(self.mu)

    def feedback(self) -> RM3 | None:
        """How the query is expanded, if it is."""
        if not self.method.endswith("rm3"):
            return None
        return RM3(self.feedback_documents, self.feedback_terms, self.original_weight)


def retrieve(
    collection: Collection,
    stage: FirstStage | None = None,
    queries: Mapping[str, str] | None = None,
    hits: int = 1000,
    engine: str = "embedded",
    progress: bool = True,
) -> Run:
    """The best documents of a collection for each query.

    Without `stage`, BM25 as Anserini has it; without `queries`, the collection's own. The index is built the first
    time and kept. A query none of whose terms is in the index gets no documents.

    >>> run = retrieve(load_collection("cranfield"), FirstStage("bm25", k1=1.5, b=0.75))
    >>> write_run(run, "bm25.txt")
    """
    stage = stage or FirstStage()
    queries = collection.queries() if queries is None else queries
    if hits < 1:
        raise InputError(f"hits must be 1 or more, and is {hits}.")
    if engine not in ENGINES:
        raise InputError(f"there is no engine {engine}; choose one of {', '.join(ENGINES)}.")
    if engine == "lucene":
        from .lucene import search_with_lucene

        return search_with_lucene(collection, stage, queries, hits)
    return _search_embedded(collection, stage, queries, hits, progress)


def _search_embedded(
    collection: Collection, stage: FirstStage, queries: Mapping[str, str], hits: int, progress: bool
) -> Run:
    from .index import open_index

    searcher = Searcher(open_index(collection, progress), stage.similarity(), stage.feedback())
    bar = tqdm(queries.items(), desc=stage.method, unit=" queries", disable=None if progress else True)
    return {query_id: searcher.search(text, hits) for query_id, text in bar}
