from .birch import (
    BirchWeights as BirchWeights,
)
from .birch import (
    birch_run as birch_run,
)
from .birch import (
    cross_validate_birch as cross_validate_birch,
)
from .birch import (
    read_passage_scores as read_passage_scores,
)
from .birch import (
    tune_birch as tune_birch,
)
from .birch import (
    write_passage_scores as write_passage_scores,
)
from .collections.collection import Collection as Collection
from .collections.collection import Document as Document
from .collections.loading import load_collection as load_collection
from .errors import InputError as InputError
from .evaluation.analyses import (
    differences as differences,
)
from .evaluation.analyses import (
    passage_shares as passage_shares,
)
from .evaluation.analyses import (
    read_passage_map as read_passage_map,
)
from .evaluation.analyses import (
    relevant_by_rank as relevant_by_rank,
)
from .evaluation.analyses import (
    relevant_passages as relevant_passages,
)
from .evaluation.analyses import (
    unique_relevant as unique_relevant,
)
from .evaluation.measures import (
    Evaluation as Evaluation,
)
from .evaluation.measures import (
    binary as binary,
)
from .evaluation.measures import (
    evaluate as evaluate,
)
from .evaluation.measures import (
    parse_measures as parse_measures,
)
from .evaluation.metric import RANKING_METRIC as RANKING_METRIC
from .evaluation.plots import (
    plot_differences as plot_differences,
)
from .evaluation.plots import (
    plot_relevant_by_rank as plot_relevant_by_rank,
)
from .evaluation.plots import (
    plot_relevant_passages as plot_relevant_passages,
)
from .evaluation.plots import (
    plot_unique_relevant as plot_unique_relevant,
)
from .evaluation.significance import (
    PairedTest as PairedTest,
)
from .evaluation.significance import (
    compare_to_baseline as compare_to_baseline,
)
from .evaluation.significance import (
    paired_t_test as paired_t_test,
)
from .folds import (
    Fold as Fold,
)
from .folds import (
    Folds as Folds,
)
from .folds import (
    k_folds as k_folds,
)
from .folds import (
    leave_one_out as leave_one_out,
)
from .folds import (
    read_folds as read_folds,
)
from .folds import (
    write_folds as write_folds,
)
from .fusion import (
    interpolate as interpolate,
)
from .fusion import (
    normalize as normalize,
)
from .fusion import (
    reciprocal_rank_fusion as reciprocal_rank_fusion,
)
from .index.first_stage import (
    FirstStage as FirstStage,
)
from .index.first_stage import (
    retrieve as retrieve,
)
from .index.inverted_index import (
    Index as Index,
)
from .index.inverted_index import (
    open_index as open_index,
)
from .index.rm3 import RM3 as RM3
from .index.searcher import Searcher as Searcher
from .index.similarity import (
    BM25 as BM25,
)
from .index.similarity import (
    QueryLikelihood as QueryLikelihood,
)
from .index.tuning import (
    Tuning as Tuning,
)
from .index.tuning import (
    tune as tune,
)
from .judgment_samples import sample_judgments as sample_judgments
from .runs import (
    Qrels as Qrels,
)
from .runs import (
    Run as Run,
)
from .runs import (
    add_judgment as add_judgment,
)
from .runs import (
    compare as compare,
)
from .runs import (
    cut as cut,
)
from .runs import (
    merge as merge,
)
from .runs import (
    ranking as ranking,
)
from .runs import (
    read_qrels as read_qrels,
)
from .runs import (
    read_run as read_run,
)
from .runs import (
    write_qrels as write_qrels,
)
from .runs import (
    write_run as write_run,
)
