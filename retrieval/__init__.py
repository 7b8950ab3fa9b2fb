"""The IR side: collections, first stage, runs, measures; needs neither torch nor transformers.

Names are imported when they are first used, so that `import docparade.retrieval` costs nothing:

    from docparade.retrieval import evaluate, read_qrels, read_run
    print(evaluate(read_qrels("qrels.txt"), read_run("bm25.txt"), "nDCG@20 AP@100").means)
"""

from importlib import import_module
from pathlib import Path
from typing import Any

RANKING_METRIC = str(Path(__file__).parent / "ranking_metric")
"""for `evaluate.load`: the measures as a metric of Hugging Face `evaluate`"""

_PUBLIC = {
    "analysis": "differences passage_shares read_passage_map relevant_by_rank relevant_passages unique_relevant",
    "birch": "BirchWeights birch_run cross_validate_birch read_passage_scores tune_birch write_passage_scores",
    "collections": "Collection Document load_collection",
    "errors": "InputError",
    "first_stage": "FirstStage retrieve",
    "folds": "Fold Folds k_folds leave_one_out read_folds write_folds",
    "fusion": "interpolate normalise reciprocal_rank_fusion",
    "index": "Index open_index",
    "measures": "Evaluation binary evaluate parse_measures",
    "plots": "plot_differences plot_relevant_by_rank plot_relevant_passages plot_unique_relevant",
    "runs": "Qrels Run add_judgment compare cut merge ranking read_qrels read_run write_qrels write_run",
    "rm3": "RM3",
    "samples": "sample_judgments",
    "search": "Searcher",
    "significance": "PairedTest compare_to_baseline paired_t_test",
    "similarity": "BM25 QueryLikelihood",
    "tuning": "Tuning tune",
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = ["RANKING_METRIC", *_MODULE_OF]  # noqa: PLE0604 (the names are strings)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
