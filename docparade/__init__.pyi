from .default import load_default as load_default
from .modeling import (
    PRESETS as PRESETS,
    CedrConfig as CedrConfig,
    CedrForSequenceClassification as CedrForSequenceClassification,
    DocumentLike as DocumentLike,
    DocumentProcessor as DocumentProcessor,
    DocumentRanker as DocumentRanker,
    MaxPConfig as MaxPConfig,
    MaxPForSequenceClassification as MaxPForSequenceClassification,
    ParadeConfig as ParadeConfig,
    ParadeForSequenceClassification as ParadeForSequenceClassification,
    RankedDocument as RankedDocument,
    RankedPassage as RankedPassage,
    RankerOutput as RankerOutput,
    ReadingOptions as ReadingOptions,
    TextRankingPipeline as TextRankingPipeline,
    to_int8 as to_int8,
)
from .trainer import (
    DistillationTrainer as DistillationTrainer,
    RankingTrainer as RankingTrainer,
    RankingTrainingArguments as RankingTrainingArguments,
)

__version__: str
