"""From queries and documents to the encoder's inputs: `DocumentProcessor`.

Query and document are tokenized separately and then joined, so a document is tokenized once for all queries. The joined
input equals the tokenizer's own encoding of the pair, or of the whole prompt.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AutoTokenizer, BatchFeature, PreTrainedConfig, PreTrainedTokenizerBase, ProcessorMixin
from transformers.utils import logging

from .documents import Document, DocumentLike, first_words, has_text, replace_surrogates
from .encoder_inputs import (
    PairTemplate,
    find_pair_template,
    find_single_template,
    make_prompt_template,
    pad_inputs,
    stack_passages,
)
from .markup import ReadableText, make_readable
from .passages import EncodedDocument, Passage, Selection, Unit, select_passages, token_windows, unit_bounds
from .processing_settings import (
    PRESETS,
    Preset,
    ProcessorOptions,
    PromptParts,
    StripTags,
    check_settings,
    prompt_parts,
)
from .tokenization import LONGEST_PIECE, first_token_ids, token_ids, tokenize_texts

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.get_logger(__name__)

TOKENIZATION_VERSION = 2
"""Increase it whenever the result of `encode_documents` changes for the same document, tokenizer and settings: caches
of its results depend on it. A test has the results of each version."""


def check_query(query: Any) -> str:
    """Refuse a query that is not a text."""
    if not isinstance(query, str):
        raise TypeError(f"The query is {reprlib.repr(query)}: give a string.")
    if not query.strip():
        raise ValueError("The query is empty: there is nothing to rank by.")
    return query


class DocumentProcessor(ProcessorMixin):
    """Cuts documents into passages, and joins each with the query.

    Args:
        tokenizer: A fast tokenizer.
        unit: The unit of `window` and `stride`: `token`s (word pieces), `word`s or `sentence`s.
        window: Length of a passage; `None`, for tokens only, is as long as fits beside the query.
        stride: Distance between the starts of two passages; `None` is `window`.
        max_passages: How many passages of a document are read; `None` is all.
        selection: Which passages are read, if there are more: the `first` ones, or `first_last_sample`: the first, the
            last and a sample of the others that depends only on the document.
        max_query_tokens: How many tokens of a query are read; `None` is all.
        max_length: Length of the whole input: special tokens, query and passage; `None` is as long as the encoder
            allows, and becomes a number when a model is given the processor.
        repeat_title: Whether title and headings are read before every passage, or once, before the text.
        title_words: How many words of a repeated title are read.
        heading_words: How many words of repeated headings are read.
        strip_tags: Which markup is left out: "html" reads documents that are HTML as a browser shows them, and all
            others as they are; `True` also leaves out the tags of documents that are not HTML; `False` reads tags as
            text.
        seed: Seed of `first_last_sample`.
        separate: Whether query and passage are inputs of their own, for bi-encoders.
        query_prompt: Text before every query, for bi-encoders.
        passage_prompt: Text before every passage, for bi-encoders.
        prompt: The text in which query and passage stand, for encoder-decoders and decoders, such as `MONOT5_PROMPT`;
            it may have line breaks and special tokens. Empty is the tokenizer's own pair format.
        instruction: What stands at `{instruction}` in the prompt.

    Example:
        ```python
        processor = DocumentProcessor.from_preset("whole", tokenizer)
        processor(["a query"], ["a long document ..."])["input_ids"].shape  # torch.Size([1, 1, 11])
        ```
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        unit: Unit = "token",
        window: int | None = 225,
        stride: int | None = None,
        max_passages: int | None = None,
        selection: Selection = "first_last_sample",
        max_query_tokens: int | None = 62,
        max_length: int | None = 256,
        repeat_title: bool = False,
        title_words: int = 16,
        heading_words: int = 32,
        strip_tags: StripTags = "html",
        seed: int = 42,
        separate: bool = False,
        query_prompt: str = "",
        passage_prompt: str = "",
        prompt: str = "",
        instruction: str = "",
    ) -> None:
        self.unit = unit
        self.window = window
        self.stride = stride
        self.max_passages = max_passages
        self.selection = selection
        self.max_query_tokens = max_query_tokens
        self.max_length = max_length
        self.repeat_title = repeat_title
        self.title_words = title_words
        self.heading_words = heading_words
        self.strip_tags = strip_tags
        self.seed = seed
        self.separate = separate
        self.query_prompt = query_prompt
        self.passage_prompt = passage_prompt
        self.prompt = prompt
        self.instruction = instruction
        self._warned: set[str] = set()
        super().__init__(tokenizer)
        self._check()

    @classmethod
    def from_preset(
        cls, preset: Preset, tokenizer: PreTrainedTokenizerBase, **options: Unpack[ProcessorOptions]
    ) -> DocumentProcessor:
        """A processor with the settings of a preset: a key of `PRESETS`. Options override the preset's."""
        if preset not in PRESETS:
            raise ValueError(f"There is no preset {preset!r}: choose one of {', '.join(PRESETS)}.")
        settings: dict[str, Any] = {**PRESETS[preset], **options}
        return cls(tokenizer, **settings)

    def with_options(self, **options: Unpack[ProcessorOptions]) -> DocumentProcessor:
        """A processor with the same tokenizer, and the same settings except for the options.

        Example:
            ```python
            model.processor = model.processor.with_options(window=150, stride=100)
            ```
        """
        settings = self.settings
        if unknown := sorted(options.keys() - settings.keys()):
            raise TypeError(f"{', '.join(unknown)}: not an option of {type(self).__name__}.")
        return type(self)(self.tokenizer, **{**settings, **options})

    @property
    def settings(self) -> dict[str, Any]:
        """All settings; not the tokenizer."""
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names if name != "tokenizer"}

    def __call__(
        self, queries: Sequence[str], documents: Sequence[DocumentLike], return_tensors: str | None = "pt"
    ) -> BatchFeature:
        """Encode pairs of a query and a document, `queries[i]` with `documents[i]`, for the model's `forward`.

        Returns:
            `input_ids`, `attention_mask` and, if the tokenizer has segments, `token_type_ids`, each of shape
            `(pairs, passages, length)`, and `passage_mask` of shape `(pairs, passages)`. For bi-encoders, also
            `query_input_ids` and `query_attention_mask` of shape `(pairs, query length)`.
        """
        if len(queries) != len(documents):
            raise ValueError(f"There are {len(queries)} queries and {len(documents)} documents: give one query each.")
        return self.combine(queries, self.encode_documents(documents), return_tensors)

    def combine(
        self, queries: Sequence[str], encoded: Sequence[EncodedDocument], return_tensors: str | None = "pt"
    ) -> BatchFeature:
        """Encode pairs whose documents `encode_documents` has encoded."""
        pairs, unread = [], []
        all_query_ids = [self.encode_query(query) for query in queries]
        for query_ids, document in zip(all_query_ids, encoded, strict=True):
            passages, left_out = self.split(document, len(query_ids))
            pairs.append([self.join(query_ids, passage) for passage in passages])
            unread.append(left_out)
        self.warn_of_unread(unread, [len(inputs) for inputs in pairs])
        return BatchFeature(self.stack(pairs) | self.stack_queries(all_query_ids), tensor_type=return_tensors)

    @classmethod
    def _load_tokenizer_from_pretrained(
        cls, sub_processor_type: str, pretrained_model_name_or_path: Any, subfolder: str = "", **kwargs: Any
    ) -> PreTrainedTokenizerBase:
        # The tokenizer's own file names its class. Without a configuration, transformers would read the ranker's, and
        # ask whether to run the checkpoint's code for it.
        kwargs["trust_remote_code"] = kwargs.get("trust_remote_code") or False  # None would ask at the terminal
        return AutoTokenizer.from_pretrained(
            pretrained_model_name_or_path, subfolder=subfolder, config=PreTrainedConfig(), **kwargs
        )

    @property
    def model_input_names(self) -> list[str]:
        """The names of the model's inputs that `__call__` returns."""
        segments = ["token_type_ids"] if self._has_segments else []
        queries = ["query_input_ids", "query_attention_mask"] if self.separate else []
        return ["input_ids", "attention_mask", *segments, "passage_mask", *queries]

    # --- Query -------------------------------------------------------------------------------------------------------

    def encode_query(self, query: str) -> list[int]:
        """The query's tokens, cut to `max_query_tokens`; a bi-encoder's prompt comes before them."""
        # In a prompt, the space before the query belongs to its first word.
        first = self._prompt_parts.query_space if self._prompt_parts else self.query_prompt
        text = first + replace_surrogates(check_query(query))
        # Without a limit, as many tokens as the whole input may have are enough to refuse the query.
        limit = self._query_limit
        count = self.input_length if limit is None else len(self.query_prompt_ids) + limit
        ids, has_more = first_token_ids(self.tokenizer, text, count)
        read = len(ids)
        if self.prompt and (line_break := self.template.query_break) is not None:
            ids = [int(one) for one in line_break.add_to(ids)]
        if self.room(len(ids)) < 1:
            raise ValueError(
                f"The query leaves no room for a passage in max_length={self.max_length}: shorten it, or set the "
                f"processor's max_query_tokens."
            )
        if has_more:
            if read < count:
                end = f"its first {LONGEST_PIECE} characters"
            elif limit == self.max_query_tokens:
                end = f"max_query_tokens={limit}"
            else:
                end = f"the room in max_length={self.max_length}, {limit} tokens"
            self._warn_once(
                "query", f"A query of {len(query)} characters is cut to {end}. Further ones are not reported."
            )
        return ids

    @property
    def _query_limit(self) -> int | None:
        """How many tokens of a query are read, without its prompt."""
        if not self.separate:
            return self.max_query_tokens
        room = self.input_length - self.single_template.length - len(self.query_prompt_ids)
        return room if self.max_query_tokens is None else min(room, self.max_query_tokens)

    def room(self, query_length: int) -> int:
        """How many tokens a passage may have beside a query of `query_length` tokens."""
        if self.separate:
            return self.input_length - self.single_template.length - len(self._passage_prompt_ids)
        return self.input_length - self.template.length - query_length

    @property
    def input_length(self) -> int:
        """`max_length` as a number."""
        if self.max_length is None:
            raise ValueError(
                "max_length is None, as long as the encoder allows, and the processor has no encoder yet: set "
                "model.processor, or give a number."
            )
        return self.max_length

    # --- Documents ---------------------------------------------------------------------------------------------------

    def encode_documents(self, documents: Sequence[DocumentLike]) -> list[EncodedDocument]:
        """Tokenize documents."""
        checked = [Document.of(document, f"documents[{i}]") for i, document in enumerate(documents)]
        if not checked:
            return []
        readable = [make_readable(document.text, self.strip_tags) for document in checked]
        leads = [self._prompt_space + self._lead(*pair) for pair in zip(checked, readable, strict=True)]
        texts = [lead + one.text for lead, one in zip(leads, readable, strict=True)]
        columns = zip(checked, leads, readable, tokenize_texts(self.tokenizer, texts), strict=True)
        return [self._encoded(document, lead, one, *tokens) for document, lead, one, tokens in columns]

    def _lead(self, document: Document, readable: ReadableText) -> str:
        """Title and headings as they are read before the text."""
        if self.repeat_title:
            title = first_words(document.title, self.title_words)
            headings = first_words(document.headings, self.heading_words)
        else:
            title, headings = document.title.strip(), document.headings.strip()
            # In many collections, texts begin with their titles.
            if readable.text.lstrip().startswith(title):
                title = ""
        return "".join(f"{part} " for part in (title, headings) if part)

    def passage_text(self, document: Document, start: int, end: int) -> str:
        """A passage as the model reads it: with title and headings, if these are read before it."""
        readable = make_readable(document.text, self.strip_tags)
        lead = self._lead(document, readable) if self.repeat_title or start == 0 else ""
        return lead + readable.between(start, end)

    def _encoded(
        self, document: Document, lead: str, readable: ReadableText, token_ids: np.ndarray, spans: np.ndarray
    ) -> EncodedDocument:
        # Accumulated, because some tokenizers give no span to a token that is part of a character.
        spans = np.maximum.accumulate(spans, axis=0)
        # A token that begins in the lead and ends in the text belongs to the text.
        lead_tokens = int(np.searchsorted(spans[:, 1], len(lead.rstrip()), side="right"))
        first_token = lead_tokens if lead.strip() and self.repeat_title else 0
        return EncodedDocument(
            document=document,
            token_ids=token_ids,
            spans=readable.find(np.clip(spans - len(lead), 0, None)),
            bounds=unit_bounds(lead + readable.text, self.unit, spans[:, 1], first_token),
            prefix=token_ids[:first_token],
        )

    def is_empty(self, encoded: EncodedDocument) -> bool:
        """Whether there is nothing to read in a document: no text, title or headings, or no token for them."""
        document = encoded.document
        if not len(encoded.token_ids):
            return True
        fields = (document.title, document.headings, make_readable(document.text, self.strip_tags).text)
        return not any(map(has_text, fields))

    def split(self, encoded: EncodedDocument, query_length: int) -> tuple[list[Passage], int]:
        """The passages of a document beside a query of `query_length` tokens, and how many more are left unread."""
        room = self.room(query_length)
        # A repeated title takes at most half of the room.
        prefix = encoded.prefix[: room // 2]
        ranges = token_windows(encoded.bounds, self.unit, self.window, self.stride, room - len(prefix))
        text = encoded.document.text
        kept = select_passages(len(ranges), self.max_passages, self.selection, text, self.seed)
        return [encoded.passage(prefix, ranges[i]) for i in kept], len(ranges) - len(kept)

    def warn_of_unread(
        self, unread: Sequence[int], read: Sequence[int], advice: str = "set max_passages to None"
    ) -> None:
        """Warn, once for a processor, that `max_passages` left passages unread.

        Args:
            unread: How many passages of each document were left out.
            read: How many were read.
            advice: How the user can have all of them read.
        """
        if cut := sum(count > 0 for count in unread):
            left_out = sum(unread)
            self._warn_once(
                "unread",
                f"max_passages={self.max_passages} leaves {left_out} of {left_out + sum(read)} passages unread, in "
                f"{cut} of {len(unread)} documents; to read all of them, {advice}. Further ones are not reported.",
            )

    def warn_of_empty(self, documents: Sequence[str]) -> None:
        """Warn, once for a processor, of documents in which there is nothing to read, given their names."""
        if documents:
            self._warn_once(
                "empty",
                f"Documents without text are ranked last: {len(documents)}, such as {documents[0]}. Further ones are "
                "not reported.",
            )

    def _warn_once(self, topic: str, message: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            logger.warning(message)

    # --- Joining -----------------------------------------------------------------------------------------------------

    def join(self, query_ids: Sequence[int], passage: Passage) -> np.ndarray:
        """Join query and passage with special tokens: ids and segments, of shape `(2, length)`.

        For bi-encoders, the passage alone.
        """
        if self.separate:
            return self.single_template.join(self._passage_prompt_ids, passage.token_ids)
        return self.template.join(query_ids, passage.token_ids)

    def wrap_query(self, query_ids: Sequence[int]) -> np.ndarray:
        """For bi-encoders: a query's input, of the form of `join`."""
        return self.single_template.join(query_ids, [])

    @cached_property
    def query_prompt_ids(self) -> list[int]:
        """The tokens of `query_prompt`, with which `encode_query` begins."""
        return token_ids(self.tokenizer, self.query_prompt.rstrip()) if self.query_prompt else []

    @cached_property
    def _passage_prompt_ids(self) -> list[int]:
        # The space after it is tokenized with the document.
        return token_ids(self.tokenizer, self.passage_prompt.rstrip()) if self.passage_prompt else []

    @property
    def _prompt_space(self) -> str:
        """The space between prompt and document, which is part of the first word's token in some tokenizers."""
        if self._prompt_parts:
            return self._prompt_parts.document_space
        return self.passage_prompt[len(self.passage_prompt.rstrip()) :]

    @cached_property
    def _prompt_parts(self) -> PromptParts | None:
        return prompt_parts(self.prompt, self.instruction) if self.prompt else None

    @cached_property
    def single_template(self) -> PairTemplate:
        """The tokenizer's own format of one text."""
        return find_single_template(self.tokenizer)

    @cached_property
    def template(self) -> PairTemplate:
        """What stands around query and passage: the prompt, or the tokenizer's own pair format."""
        if self.prompt:
            return make_prompt_template(self.tokenizer, self.prompt, self.instruction)
        return find_pair_template(self.tokenizer)

    def pad(self, inputs: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
        """Pad joined inputs to one batch `(inputs, length)`, for the model's `encode`."""
        return pad_inputs(inputs, self._padding, self._has_segments)

    def stack(self, pairs: list[list[np.ndarray]]) -> dict[str, torch.Tensor]:
        """Pad the inputs of several documents to `(documents, passages, length)`, with a mask over passages."""
        flat = self.pad([joined for inputs in pairs for joined in inputs])
        return stack_passages(flat, [len(inputs) for inputs in pairs], self._padding)

    def stack_queries(self, queries: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        """For bi-encoders: the inputs of each document's query; nothing for cross-encoders."""
        if not self.separate:
            return {}
        flat = self.pad([self.wrap_query(ids) for ids in queries])
        return {f"query_{name}": flat[name] for name in ("input_ids", "attention_mask")}

    # --- Settings ----------------------------------------------------------------------------------------------------

    @property
    def _padding(self) -> int:
        return self.tokenizer.pad_token_id or 0

    @property
    def _has_segments(self) -> bool:
        return "token_type_ids" in self.tokenizer.model_input_names

    def _check(self) -> None:
        if not self.tokenizer.is_fast:
            raise ValueError(
                f"{type(self.tokenizer).__name__} is a slow tokenizer, which does not give the positions of its tokens "
                f"in the text: load a fast one."
            )
        if len(self.tokenizer) <= len(self.tokenizer.all_special_ids):
            raise ValueError(
                f"The tokenizer of {self.tokenizer.name_or_path or 'this processor'} has no vocabulary, only special "
                f"tokens: tokenizer.json is missing or empty."
            )
        check_settings(self.settings)
        query_break = self.template.query_break if self.prompt else None
        if self.max_length is None:
            return
        if self.separate:
            self._check_prompts()
        elif self.room((self.max_query_tokens or 0) + (len(query_break.ids) if query_break else 0)) < 1:
            raise ValueError(
                f"max_length={self.max_length} leaves no room for a passage beside {self.template.length} special "
                f"tokens{' and tokens of the prompt' if self.prompt else ''}, and max_query_tokens="
                f"{self.max_query_tokens}."
            )

    def _check_prompts(self) -> None:
        for name, prompt in (("query_prompt", self.query_prompt_ids), ("passage_prompt", self._passage_prompt_ids)):
            if self.input_length - self.single_template.length - len(prompt) < 1:
                raise ValueError(
                    f"max_length={self.max_length} leaves no room for a text beside {self.single_template.length} "
                    f"special tokens and the {len(prompt)} tokens of {name}."
                )


DocumentProcessor.register_for_auto_class()
