"""The prompts that decoder-only rerankers were made to read, from their own files or from a table of known models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from transformers import PreTrainedTokenizerBase

from .processing_settings import INSTRUCTION


@dataclass(frozen=True)
class DecoderPrompt:
    """A prompt, the instruction in it, and the words that the model answers with."""

    prompt: str
    instruction: str = ""
    true_token: str | None = None
    false_token: str | None = None


# From the models' cards and their authors' code. None was compared with the published weights.
_QWEN3 = DecoderPrompt(
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "Given a web search query, retrieve relevant passages that answer the query",
    "yes",
    "no",
)
# The authors' code tokenizes query, document and task apart: there, a line break after a full stop is its own token.
_MXBAI_V2 = DecoderPrompt(
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\nquery: {query}\ndocument: {document}\n"
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document "
    "pair, carefully analyze the semantic relationship between them, then provide your binary relevance judgment "
    "(0 for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n",
    "",
    "1",
    "0",
)
# The same holds for this one's code. The tokenizer adds <bos>.
_BGE_GEMMA = DecoderPrompt(
    "A: {query}\nB: {document}\n"
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'.",
    "",
    "Yes",
)

_KNOWN = {
    r"qwen3-reranker-\d.*": _QWEN3,
    r"mxbai-rerank-(base|large)-v2.*": _MXBAI_V2,
    r"bge-reranker-v2-gemma": _BGE_GEMMA,
}
"""By the last part of a model's name; copies with a classification head have the name of the model and more."""

# Arguments of sentence-transformers' chat templates that are about truncation and padding.
_SIZES = ("restore_suffix", "truncation", "max_length", "padding", "return_tensors", "pad_to_multiple_of")

_QUERY, _DOCUMENT, _SYSTEM = "{query}", "{document}", INSTRUCTION


def known_prompt(name: Any) -> DecoderPrompt | None:
    """The prompt of a model that is known by its name, on the Hub or of its folder.

    Example:
        >>> known_prompt("Qwen/Qwen3-Reranker-0.6B").true_token
        'yes'
    """
    last = PurePath(str(name)).name.lower()
    return next((prompt for pattern, prompt in _KNOWN.items() if re.fullmatch(pattern, last)), None)


def chat_prompt(
    tokenizer: PreTrainedTokenizerBase,
    form: str,
    options: Mapping[str, Any],
    system: str | None,
    own_instruction: bool,
) -> DecoderPrompt | None:
    """The prompt that a chat template with the roles `query` and `document` makes; `None` if it has none.

    The instruction is the system message.

    Args:
        tokenizer: The tokenizer, which has the template.
        form: Whether a message's text is given `flat` or `structured`.
        options: Arguments of the template.
        system: The system message that the model has by default.
        own_instruction: Whether the user gives an instruction.
    """
    if not tokenizer.chat_template:
        return None

    arguments = {name: value for name, value in options.items() if name not in _SIZES}

    def render(*system: str) -> str:
        roles = [*(("system", text) for text in system), ("query", _QUERY), ("document", _DOCUMENT)]
        messages: Any = [
            {"role": role, "content": text if form == "flat" else [{"type": "text", "text": text}]}
            for role, text in roles
        ]
        rendered: str = tokenizer.apply_chat_template(messages, tokenize=False, **arguments)  # type: ignore[assignment]
        return rendered

    plain, instructed = render(), render(_SYSTEM)
    if plain.count(_QUERY) != 1 or plain.count(_DOCUMENT) != 1:
        return None
    if instructed.count(_SYSTEM) != 1:
        return DecoderPrompt(plain)
    if system is not None or own_instruction:
        return DecoderPrompt(instructed, system or "")
    # The template may have an instruction of its own, in the place of the system message.
    before, after = instructed.split(_SYSTEM)
    if len(plain) >= len(before) + len(after) and plain.startswith(before) and plain.endswith(after):
        return DecoderPrompt(instructed, plain[len(before) : len(plain) - len(after)])
    return DecoderPrompt(plain)
