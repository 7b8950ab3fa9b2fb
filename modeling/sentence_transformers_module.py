"""A module for sentence-transformers, with which `CrossEncoder(path, trust_remote_code=True)` reads whole documents.

Without it, a CrossEncoder would give the model the first 512 tokens, and the model would refuse them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

from .engine_results import EMPTY_SCORE

if TYPE_CHECKING:
    from .modeling_ranker import DocumentRanker

try:
    from sentence_transformers.base.modules import InputModule
except ImportError:  # Every checkpoint contains this file, and sentence-transformers is optional.
    InputModule = nn.Module

# The contents of modules.json and config_sentence_transformers.json, from which sentence-transformers loads a folder.
MODULES = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers_module.LongDocumentModule"}]
SETTINGS = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity", "prompts": {}}


class LongDocumentModule(InputModule):
    """The only module of such a CrossEncoder: scores pairs of a query and a document.

    Example:
        ```python
        model = CrossEncoder("path/to/checkpoint", trust_remote_code=True)
        model.rank("why is the sky blue", long_documents)
        ```
    """

    def __init__(self, model: DocumentRanker) -> None:
        super().__init__()
        self.model = model
        self.processor = model.require_processor()
        self.tokenizer = self.processor.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Tokens of a passage with its query; documents have no limit."""
        return self.processor.input_length

    @max_seq_length.setter
    def max_seq_length(self, length: int) -> None:
        _refuse({"max_length": length})

    def preprocess(
        self, inputs: Sequence[tuple[str, Any]], prompt: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Cut the documents into passages, and join them with the queries."""
        _refuse(options)
        encoded = self.processor.encode_documents([text for _, text in inputs])
        batch = self.processor.combine([(prompt or "") + query for query, _ in inputs], encoded)
        empty = [self.processor.is_empty(document) for document in encoded]
        self.processor.warn_of_empty([f"documents[{place}]" for place, found in enumerate(empty) if found])
        return {**batch, "empty": torch.tensor(empty)}

    def forward(self, features: dict[str, torch.Tensor], **_: Any) -> dict[str, torch.Tensor]:
        """Add the documents' `scores`; outside of training, documents without text have the lowest."""
        empty = features["empty"][:, None]
        scores = self.model(**{name: values for name, values in features.items() if name != "empty"}).logits
        return {**features, "scores": scores if self.training else scores.masked_fill(empty, EMPTY_SCORE)}

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Save the model; the folder also loads with AutoModel."""
        self.model.save_pretrained(output_path)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        *,
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        processor_kwargs: dict[str, Any] | None = None,
        config_kwargs: dict[str, Any] | None = None,
        backend: str = "torch",
        **_: Any,
    ) -> LongDocumentModule:
        """Load the model from a folder or the Hub.

        `model_kwargs` are arguments of its `from_pretrained`, such as `dtype` and `max_passages`.
        """
        if backend != "torch":
            raise ValueError(f"backend={backend!r}: a long-document ranker runs on torch; see docs/speed.md for int8.")
        _refuse({**(processor_kwargs or {}), **(config_kwargs or {})})
        model = AutoModelForSequenceClassification.from_pretrained(
            model_name_or_path,
            trust_remote_code=True,
            token=token,
            cache_dir=cache_folder,
            revision=revision,
            local_files_only=local_files_only,
            **(model_kwargs or {}),
        )
        return cls(model)


def _refuse(options: dict[str, Any]) -> None:
    """Refuse arguments of CrossEncoder that would have no effect on a ranker of whole documents."""
    names = {"model_max_length": "max_length"}
    # A ranker has one label, so num_labels=1 is allowed.
    given = {name: value for name, value in options.items() if value is not None and (name, value) != ("num_labels", 1)}
    if given:
        raise ValueError(
            f"{', '.join(names.get(name, name) for name in given)}: has no effect on a long-document ranker, whose "
            f"passages are set in its processor_config.json. Leave it out, or pass None if a framework sets it; "
            f"model_kwargs={{'max_passages': 8}} limits how much is read."
        )
