from .arguments import RankingTrainingArguments as RankingTrainingArguments
from .checkpoints import last_checkpoint as last_checkpoint
from .data.collator import PairCollator as PairCollator
from .data.labeled_documents import LabeledDocument as LabeledDocument, LabeledDocuments as LabeledDocuments
from .data.pairs import PairDataset as PairDataset, PairSampler as PairSampler, TrainingPair as TrainingPair
from .data.passage_filter import filter_passages as filter_passages
from .data.triples import Triples as Triples
from .distillation import DistillationTrainer as DistillationTrainer
from .layer_selection import take_layers as take_layers
from .losses import LOSSES as LOSSES, RankingLoss as RankingLoss
from .saving_trainer import SavingTrainer as SavingTrainer
from .teacher_scores import TeacherScores as TeacherScores
from .trainer import RankingTrainer as RankingTrainer
