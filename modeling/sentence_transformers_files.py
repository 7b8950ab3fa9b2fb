"""`SentenceTransformersFiles`: the settings and weights in the files of a sentence-transformers model."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, cast

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers.utils import cached_file

# The flags of older pooling configurations.
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def _check_inside(source: Any, path: str) -> None:
    """Refuse a module's path that leads out of the model's folder, on any system."""
    forms = (PurePosixPath(path), PureWindowsPath(path))
    if any(form.is_absolute() or form.drive or form.root or ".." in form.parts for form in forms):
        raise ValueError(f"{source}, modules.json: the path {path!r} leads out of the model's folder.")


class SentenceTransformersFiles:
    """The modules of a sentence-transformers model beside its encoder: pooling, dense layers, normalization, prompts.

    Args:
        source: Hub id or folder.
        options: Where files come from: arguments of `from_pretrained`.
    """

    def __init__(self, source: Any, options: dict[str, Any]) -> None:
        self.source, self.options = source, options
        self.settings = self._read("config_sentence_transformers.json", dict) or {}
        self.pooling: list[str] = []
        self.dense: list[dict[str, Any]] = []
        self.weights: dict[str, Tensor] = {}
        """The weights of the dense layers, by the names that they have in a bi-encoder's reader."""
        self.normalize = False
        self.answer: dict[str, int] = {}
        """Of a decoder: `true_token_id` and `false_token_id`, the tokens whose logits are its score."""
        self.encoder_folder = ""
        modules = self._read("modules.json", list) or []
        self.has_modules = bool(modules)
        for module in modules:
            if not isinstance(module, dict) or not all(isinstance(module.get(key), str) for key in ("type", "path")):
                raise ValueError(f"{source}, modules.json: each module needs a type and a path; {module!r} lacks one.")
            _check_inside(source, module["path"])
            self._add(module["type"].rpartition(".")[2], module["path"])
        self._encoder_settings = self._read(f"{self.encoder_folder}sentence_bert_config.json", dict) or {}
        if self._encoder_settings.get("query_expansion"):
            raise ValueError(f"{source} pads its queries (query_expansion), which is not supported.")

    @property
    def model_type(self) -> str | None:
        """The type of the model that is in the source's own folder."""
        return (self._read("config.json", dict) or {}).get("model_type")

    @property
    def similarity(self) -> str:
        """The similarity function; sentence-transformers' default is the cosine."""
        return self.settings.get("similarity_fn_name") or "cosine"

    @property
    def max_length(self) -> int | None:
        """How many tokens of a passage the model was made to read, if it says so."""
        settings = self._encoder_settings
        # Up to its version 5, sentence-transformers wrote it to its own file; since then it is in the tokenizer's.
        tokenizer = self._read(f"{self.encoder_folder}tokenizer_config.json", dict) or {}
        return settings.get("document_length") or settings.get("max_seq_length") or tokenizer.get("model_max_length")

    @property
    def query_length(self) -> int | None:
        """How many tokens of a query the model was made to read, with special tokens and prompt, if it says so."""
        return self._encoder_settings.get("query_length")

    @property
    def lowercases(self) -> bool:
        """Whether texts are lowercased before they are tokenized."""
        return bool(self._encoder_settings.get("do_lower_case"))

    @property
    def prompts(self) -> dict[str, str]:
        """The texts before every query and passage, as options of the processor.

        A default prompt is for models that do not distinguish between queries and passages.
        """
        prompts = self.settings.get("prompts") or {}
        query = prompts.get("query") or ""
        passage = next((prompts[name] for name in ("document", "passage", "corpus") if prompts.get(name)), "")
        if not (query or passage):
            query = passage = prompts.get(self.settings.get("default_prompt_name")) or ""
        return {"query_prompt": query, "passage_prompt": passage}

    @property
    def instruction(self) -> str | None:
        """The system message with which a decoder-only reranker reads, if it has one."""
        prompts = self.settings.get("prompts") or {}
        return prompts.get(self.settings.get("default_prompt_name")) or None

    @property
    def chat(self) -> dict[str, Any]:
        """Arguments of the chat template."""
        return (self._encoder_settings.get("processing_kwargs") or {}).get("chat_template") or {}

    @property
    def messages(self) -> str | None:
        """How the text of a chat message is given, `flat` or `structured`; `None` if no chat template is used."""
        if not self.has_modules:
            return None
        modalities = self._encoder_settings.get("modality_config")
        if modalities is None:
            return "flat"
        return modalities["message"].get("format", "flat") if "message" in modalities else None

    def _add(self, kind: str, path: str) -> None:
        if kind == "Transformer":
            self.encoder_folder = f"{path}/" if path else ""
        elif kind == "Pooling":
            self._add_pooling(self._required(f"{path}/config.json"))
        elif kind in ("Dense", "Normalize") and not self.pooling:
            raise ValueError(f"{self.source} has a module {kind} before the pooling, which is not supported.")
        elif kind == "Dense":
            self._add_dense(self._required(f"{path}/config.json"), path)
        elif kind == "Normalize":
            self.normalize = True
        elif kind == "LogitScore":
            self._add_answer(self._required(f"{path}/config.json"), path)
        elif kind not in ("Dropout", "LongDocumentModule"):
            raise ValueError(f"{self.source} has a module {kind}, which a bi-encoder ranker cannot have.")

    def _add_answer(self, config: dict[str, Any], path: str) -> None:
        given = {name: config.get(name) for name in ("true_token_id", "false_token_id")}
        self.answer = {name: value for name, value in given.items() if value is not None}
        if "true_token_id" not in self.answer or not all(type(value) is int for value in self.answer.values()):
            raise ValueError(f"{self.source}, {path}/config.json: true_token_id and false_token_id have to be numbers.")

    def _add_pooling(self, config: dict[str, Any]) -> None:
        flags = [name for flag, name in _POOLING_FLAGS.items() if config.get(flag)]
        modes = config.get("pooling_mode") or flags or "mean"
        self.pooling = [modes] if isinstance(modes, str) else list(modes)
        if not config.get("include_prompt", True):
            raise ValueError(f"{self.source} leaves its prompts out of the pooling, which is not supported.")

    def _add_dense(self, config: dict[str, Any], path: str) -> None:
        if self.normalize:
            raise ValueError(f"{self.source} has a dense layer after normalization, which is not supported.")
        if config.get("use_residual"):
            raise ValueError(f"{self.source} has a dense layer with a residual, which is not supported.")
        file = self._find(f"{path}/model.safetensors")
        if file is None:
            raise ValueError(f"{self.source} has no {path}/model.safetensors; save it with safetensors.")
        try:
            weights = {name.removeprefix("linear."): value for name, value in load_file(file).items()}
        except SafetensorError as error:
            raise OSError(f"{file} is damaged or incomplete ({error}): save or fetch it again.") from error
        if "weight" not in weights or weights.keys() - {"weight", "bias"}:
            raise ValueError(f"{file} has the weights {sorted(weights)}, and a dense layer has weight and bias.")
        activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
        self.weights.update({f"dense.{len(self.dense)}.{name}": value for name, value in weights.items()})
        self.dense.append({"out_features": len(weights["weight"]), "bias": "bias" in weights, "activation": activation})

    def _find(self, name: str) -> Path | None:
        quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
        found = cached_file(self.source, name, **self.options, **quiet)
        return None if found is None else Path(found)

    def _read(self, name: str, kind: type) -> Any:
        path = self._find(name)
        if path is None:
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not valid JSON ({error}): copy or download it again.") from None
        if not isinstance(content, kind):
            raise ValueError(f"{path} is not a JSON {'list' if kind is list else 'object'}: copy or download it again.")
        return content

    def _required(self, name: str) -> dict[str, Any]:
        found = self._read(name, dict)
        if found is None:
            raise ValueError(f"{self.source} has no {name}, which its modules.json names.")
        return cast("dict[str, Any]", found)
