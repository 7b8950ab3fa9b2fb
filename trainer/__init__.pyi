from .arguments import RankingTrainingArguments as RankingTrainingArguments
from .distillation import (
    DistillationTrainer as DistillationTrainer,
)
from .distillation import (
    TeacherScores as TeacherScores,
)
from .layer_selection import take_layers as take_layers
from .losses import (
    LOSSES as LOSSES,
)
from .losses import (
    RankingLoss as RankingLoss,
)
from .pairs import (
    PairSampler as PairSampler,
)
from .pairs import (
    TrainingPair as TrainingPair,
)
from .passage_filter import filter_passages as filter_passages
from .trainer import RankingTrainer as RankingTrainer
from .training_record import last_checkpoint as last_checkpoint
from .triples import Triples as Triples
