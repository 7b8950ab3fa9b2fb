"""How a model learns: pairs, losses, `RankingTrainer`, distillation, validation.

The public names are listed in `__init__.pyi`, and imported when they are first used:

    from docparade.trainer import PairSampler, RankingTrainer, RankingTrainingArguments
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
