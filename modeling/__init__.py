"""What travels with a checkpoint: configuration, passages, processor, aggregators, models, ranking.

The files of this folder are copied beside every saved model, so that it loads where docparade is not installed. They
import nothing of ours but each other, with a single dot. Importing the folder registers the models with transformers.
"""

from .aggregators import SCORE_AGGREGATORS, VECTOR_AGGREGATORS, Aggregation, Aggregator
from .configuration_ranker import MaxPConfig, ParadeConfig
from .engine import RankedDocument, RankedPassage
from .engine_int8 import to_int8
from .modeling_maxp import MaxPForSequenceClassification
from .modeling_parade import ParadeForSequenceClassification
from .modeling_ranker import DocumentRanker, RankerOutput
from .pipeline import TextRankingPipeline
from .processing_document import PRESETS, DocumentProcessor
from .registration import register

__all__ = [
    "PRESETS",
    "SCORE_AGGREGATORS",
    "VECTOR_AGGREGATORS",
    "Aggregation",
    "Aggregator",
    "DocumentProcessor",
    "DocumentRanker",
    "MaxPConfig",
    "MaxPForSequenceClassification",
    "ParadeConfig",
    "ParadeForSequenceClassification",
    "RankedDocument",
    "RankedPassage",
    "RankerOutput",
    "TextRankingPipeline",
    "to_int8",
]

register()
