from .modeling import (
    PRESETS as PRESETS,
)
from .modeling import (
    DocumentLike as DocumentLike,
)
from .modeling import (
    DocumentProcessor as DocumentProcessor,
)
from .modeling import (
    DocumentRanker as DocumentRanker,
)
from .modeling import (
    MaxPConfig as MaxPConfig,
)
from .modeling import (
    MaxPForSequenceClassification as MaxPForSequenceClassification,
)
from .modeling import (
    ParadeConfig as ParadeConfig,
)
from .modeling import (
    ParadeForSequenceClassification as ParadeForSequenceClassification,
)
from .modeling import (
    RankedDocument as RankedDocument,
)
from .modeling import (
    RankedPassage as RankedPassage,
)
from .modeling import (
    RankerOutput as RankerOutput,
)
from .modeling import (
    TextRankingPipeline as TextRankingPipeline,
)
from .modeling import (
    to_int8 as to_int8,
)
from .trainer import (
    DistillationTrainer as DistillationTrainer,
)
from .trainer import (
    RankingTrainer as RankingTrainer,
)
from .trainer import (
    RankingTrainingArguments as RankingTrainingArguments,
)

__version__: str
