"""The table of families, and their registration: AutoConfig, AutoModel, AutoProcessor and the pipelines."""

from __future__ import annotations

from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoProcessor
from transformers.pipelines import PIPELINE_REGISTRY

from .modeling_cedr import CedrForSequenceClassification
from .modeling_maxp import MaxPForSequenceClassification
from .modeling_parade import ParadeForSequenceClassification
from .modeling_ranker import DocumentRanker
from .pipeline import TextRankingPipeline
from .processing_document import DocumentProcessor

FAMILIES: dict[str, type[DocumentRanker]] = {
    family.config_class.model_type: family
    for family in (MaxPForSequenceClassification, ParadeForSequenceClassification, CedrForSequenceClassification)
}
"""The families of rankers, by their name in config.json."""

# A checkpoint names its own "text-ranking" pipeline, which transformers runs only with trust_remote_code. The second
# task needs docparade to be installed, and no trust_remote_code.
PIPELINE_TASKS = ("text-ranking", "document-ranking")


def register() -> None:
    """Register every class with transformers. Calling it again changes nothing."""
    for model_type, model in FAMILIES.items():
        config = model.config_class
        AutoConfig.register(model_type, config, exist_ok=True)
        AutoModel.register(config, model, exist_ok=True)
        AutoModelForSequenceClassification.register(config, model, exist_ok=True)
        AutoProcessor.register(config, DocumentProcessor, exist_ok=True)
    for task in PIPELINE_TASKS:
        if task not in PIPELINE_REGISTRY.get_supported_tasks():
            PIPELINE_REGISTRY.register_pipeline(
                task, pipeline_class=TextRankingPipeline, pt_model=AutoModelForSequenceClassification
            )
