"""What travels with a checkpoint: configuration, passages, processor, aggregators, models, ranking.

The files of this folder are copied beside every saved model, so that it loads where docparade is not installed. They
import nothing of ours but each other, with a single dot. Importing the folder registers the models with transformers.
"""

from .aggregators import SCORE_AGGREGATORS, VECTOR_AGGREGATORS, Aggregation, Aggregator
from .configuration_cedr import CedrConfig, KernelFormula, KernelLog
from .configuration_ranker import (
    MaxPConfig,
    ParadeConfig,
    PassageScore,
    PassageVector,
)
from .documents import Document, DocumentLike
from .engine_int8 import to_int8
from .engine_kept import DocumentVectors, KeptVectors
from .engine_results import RankedDocument, RankedPassage
from .engine_vectors import PassageVectors
from .kernel_pooling import KERNEL_AGGREGATORS
from .modeling_cedr import CedrForSequenceClassification
from .modeling_maxp import MaxPForSequenceClassification
from .modeling_parade import ParadeForSequenceClassification
from .modeling_passages import RankerOutput
from .modeling_ranker import DocumentRanker
from .passages import EncodedDocument, Selection, Unit
from .pipeline import TextRankingPipeline
from .processing_document import DocumentProcessor
from .processing_settings import PRESETS, Preset, ProcessorOptions
from .reader import Reader, ReaderSettings
from .readers import READERS
from .reading_options import EncodeDocuments, ReadingOptions
from .registration import FAMILIES, register

__all__ = [
    "FAMILIES",
    "KERNEL_AGGREGATORS",
    "PRESETS",
    "READERS",
    "SCORE_AGGREGATORS",
    "VECTOR_AGGREGATORS",
    "Aggregation",
    "Aggregator",
    "CedrConfig",
    "CedrForSequenceClassification",
    "Document",
    "DocumentLike",
    "DocumentProcessor",
    "DocumentRanker",
    "DocumentVectors",
    "EncodeDocuments",
    "EncodedDocument",
    "KeptVectors",
    "KernelFormula",
    "KernelLog",
    "MaxPConfig",
    "MaxPForSequenceClassification",
    "ParadeConfig",
    "ParadeForSequenceClassification",
    "PassageScore",
    "PassageVector",
    "PassageVectors",
    "Preset",
    "ProcessorOptions",
    "RankedDocument",
    "RankedPassage",
    "RankerOutput",
    "Reader",
    "ReaderSettings",
    "ReadingOptions",
    "Selection",
    "TextRankingPipeline",
    "Unit",
    "to_int8",
]

register()
