from .birch import (
    BirchWeights as BirchWeights,
    birch_run as birch_run,
    cross_validate_birch as cross_validate_birch,
    read_passage_scores as read_passage_scores,
    tune_birch as tune_birch,
    write_passage_scores as write_passage_scores,
)
from .collections.catalog import load_collection as load_collection
from .collections.collection import Collection as Collection, Document as Document
from .collections.passage_judgments import (
    load_passage_map as load_passage_map,
    place_passages as place_passages,
    read_fira as read_fira,
    read_genomics as read_genomics,
    read_passage_map as read_passage_map,
    read_webap as read_webap,
)
from .collections.statistics import (
    describe_documents as describe_documents,
    describe_queries as describe_queries,
)
from .ensembles import (
    cross_validate_weights as cross_validate_weights,
    tune_weights as tune_weights,
)
from .errors import InputError as InputError
from .evaluation.analyses import (
    differences as differences,
    passage_shares as passage_shares,
    relevant_by_rank as relevant_by_rank,
    relevant_passages as relevant_passages,
    unique_relevant as unique_relevant,
)
from .evaluation.full_ranking_comparison import compare_full_ranking as compare_full_ranking
from .evaluation.gains import Gains as Gains
from .evaluation.measures import (
    Evaluation as Evaluation,
    evaluate as evaluate,
    parse_measures as parse_measures,
)
from .evaluation.metric import RANKING_METRIC as RANKING_METRIC
from .evaluation.plots import (
    plot_differences as plot_differences,
    plot_relevant_by_rank as plot_relevant_by_rank,
    plot_relevant_passages as plot_relevant_passages,
    plot_unique_relevant as plot_unique_relevant,
)
from .evaluation.significance import (
    Correction as Correction,
    PairedTest as PairedTest,
    compare_to_baseline as compare_to_baseline,
    paired_t_test as paired_t_test,
)
from .folds import (
    Fold as Fold,
    Folds as Folds,
    k_folds as k_folds,
    leave_one_out as leave_one_out,
    read_folds as read_folds,
    write_folds as write_folds,
)
from .fusion import (
    interpolate as interpolate,
    normalize as normalize,
    reciprocal_rank_fusion as reciprocal_rank_fusion,
)
from .index.first_stage import (
    FirstStage as FirstStage,
    retrieve as retrieve,
)
from .index.inverted_index import (
    Index as Index,
    open_index as open_index,
)
from .index.rm3 import RM3 as RM3
from .index.searcher import Searcher as Searcher
from .index.similarity import (
    BM25 as BM25,
    QueryLikelihood as QueryLikelihood,
)
from .index.tuning import (
    Tuning as Tuning,
    tune as tune,
)
from .judgment_samples import sample_judgments as sample_judgments
from .runs import (
    Qrels as Qrels,
    Run as Run,
    add_judgment as add_judgment,
    compare as compare,
    cut as cut,
    merge as merge,
    ranking as ranking,
    read_qrels as read_qrels,
    read_run as read_run,
    write_qrels as write_qrels,
    write_run as write_run,
)
