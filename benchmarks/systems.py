"""The systems that are compared: docparade with its options, other ways to read, and the limit of the machine."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from docparade.modeling import DocumentLike, DocumentRanker, EncodeDocuments, ReadingOptions, to_int8
from docparade.modeling.encoders import feed_forward_size
from docparade.modeling.engine import read_pairs
from docparade.modeling.engine_batching import plan_batches
from docparade.modeling.engine_pairs import aggregate_documents
from docparade.modeling.engine_threads import map_in_threads
from docparade.reranking.caches.token_cache import TokenCache
from docparade.reranking.caches.vector_cache import VectorCache

from .timing import Turn, read_clock, time_encoder
from .workload import Workload

# Documents that the dense system reads at once, as other libraries do: 2 x 16 x 256 tokens.
DENSE_DOCUMENTS = 2
# Passages of a document that the cascade keeps.
CASCADE_PASSAGES = 2


def reason_against(system: str, model: DocumentRanker) -> str:
    """Why a system cannot read with this ranker; empty if it can."""
    if system == "int8" and model.config.int8:
        return "the ranker is in int8 already"
    if system in ("dense", "sentence-transformers") and model.reader.separate:
        return "it reads query and passage together, and the ranker is a bi-encoder"
    if system == "kept" and not model.reader.separate:
        return "only a bi-encoder's vectors can be kept, and the ranker reads query and passage together"
    if system == "dense" and model.reader.rows_of_tokens:
        return "its padding has no query, and a cedr ranker matches the query's tokens"
    if system.startswith("semantic-search"):
        return missing_sentence_transformers()
    if system != "sentence-transformers":
        return ""
    if not model.config.scores_passages():
        return f"its CrossEncoder scores passages, and a {model.config.model_type} ranker has no scores of passages"
    if model.config.int8:
        return "its CrossEncoder does not read int8 layers"
    return missing_sentence_transformers()


def missing_sentence_transformers() -> str:
    """Why systems of sentence-transformers cannot read at all; empty if they can."""
    if find_spec("sentence_transformers") is None:
        return "the sentence-transformers extra is not installed"
    return ""


def docparade(
    model: DocumentRanker, work: Workload, encode_documents: EncodeDocuments | None = None, **options: Any
) -> Turn:
    """The engine behind `model.rank`, from text to scores."""
    pairs = [(work.query, document) for document in work.documents]
    encode = encode_documents or model.require_processor().encode_documents
    device = model.device

    def run() -> tuple[list[float], dict[str, float]]:
        parts = {"tokenizing": 0.0}
        # Documents are tokenized in another thread, whose clock must not wait for the device.
        tokenize = _timed(parts, "tokenizing", torch.device("cpu"), encode)
        with time_encoder(model) as encoding:
            start = read_clock(device)
            reading = ReadingOptions(progress=False, encode_documents=tokenize, **options)
            readings = read_pairs(model, pairs, reading)
            whole = read_clock(device) - start
        # The rest includes what is tokenized before encoding begins, not what is tokenized during it.
        parts |= {"encoding": encoding.seconds, "rest": whole - encoding.seconds}
        return [reading.score for reading in readings], parts

    return run


def _timed(
    parts: dict[str, float], name: str, device: torch.device, function: Callable[..., Any]
) -> Callable[..., Any]:
    def timed(*arguments: Any, **options: Any) -> Any:
        start = read_clock(device)
        try:
            return function(*arguments, **options)
        finally:
            parts[name] += read_clock(device) - start

    return timed


def cached(model: DocumentRanker, work: Workload) -> Turn:
    """docparade with documents that were tokenized before, as for the second query over them."""
    # The open files stay readable when their folder is gone; Windows keeps the folder.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        cache = TokenCache.open(folder, model.require_processor(), work.documents)
    return docparade(model, work, cache.encode_documents)


def kept(model: DocumentRanker, work: Workload) -> Turn:
    """docparade with vectors of the passages that were kept, as for the second query over them: only it is encoded."""
    documents = {str(number): document for number, document in enumerate(work.documents)}
    # The open files stay readable when their folder is gone; Windows keeps the folder.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        cache = VectorCache.open(folder, model, documents, vector_type="float32")

    def run() -> tuple[list[float], dict[str, float]]:
        return [document.score for document in cache.read(work.query, list(documents)).values()], {}

    return run


def int8(model: DocumentRanker, work: Workload) -> Turn:
    """docparade with an encoder in 8-bit integers: not exact."""
    return docparade(to_int8(model), work)


def bfloat16(model: DocumentRanker, work: Workload) -> Turn:
    """docparade in bfloat16: not exact, and for hardware that supports it."""
    return docparade(copy.deepcopy(model).bfloat16(), work)


def cascade(model: DocumentRanker, work: Workload) -> Turn:
    """docparade with the most promising passages of each document only: not exact."""
    return docparade(model, work, keep_passages=CASCADE_PASSAGES)


def dense(model: DocumentRanker, work: Workload) -> Turn:
    """The common way: every document is padded to the same number of passages of the same length."""

    def run() -> tuple[list[float], dict[str, float]]:
        scores: list[float] = []
        for start in range(0, len(work.documents), DENSE_DOCUMENTS):
            documents = work.documents[start : start + DENSE_DOCUMENTS]
            scores += padded_scores(model, work.query, documents, work.dense_passages, work.max_length)
        return scores, {}

    return run


@torch.inference_mode()
def padded_scores(
    model: DocumentRanker, query: str, documents: Sequence[DocumentLike], passages: int = 0, length: int = 0
) -> list[float]:
    """The scores of documents that are read as one padded batch, of at least so many passages of so many tokens."""
    batch = model.require_processor()([query] * len(documents), documents)
    read = batch["input_ids"].shape
    shape = (read[0], max(passages, read[1]), max(length, read[2]))
    mask = _padded(batch.pop("passage_mask"), shape[:2]).to(model.device)
    flat = {name: _padded(values, shape).flatten(0, 1).to(model.device) for name, values in batch.items()}
    flat["attention_mask"][:, 0] = 1  # attention over no token at all is not a number
    inputs = {name: values for name, values in flat.items() if name != "token_type_ids" or model.reader.reads_segments}
    output = model.reader.read_padded(model.encoder, inputs)
    features = model.reader.features_of(output, inputs).unflatten(0, shape[:2])
    scores: list[float] = model.aggregator(features, mask).score.tolist()
    return scores


def _padded(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    padded = values.new_zeros(shape)
    padded[tuple(slice(size) for size in values.shape)] = values
    return padded


def sentence_transformers(model: DocumentRanker, work: Workload) -> Turn:
    """`CrossEncoder.predict` on the texts of the same passages in its default batch; then the ranker's aggregation."""
    from sentence_transformers import CrossEncoder

    processor = model.require_processor()
    with tempfile.TemporaryDirectory() as folder:
        model.encoder.save_pretrained(folder)
        _save_plain(processor.tokenizer, Path(folder))
        encoder = CrossEncoder(
            folder, device=str(model.device), max_length=processor.max_length, activation_fn=torch.nn.Identity()
        )

    @torch.inference_mode()
    def run() -> tuple[list[float], dict[str, float]]:
        query_length = len(processor.encode_query(work.query))
        pairs, counts = [], []
        for encoded in processor.encode_documents(work.documents):
            passages, _ = processor.split(encoded, query_length)
            texts = [processor.passage_text(encoded.document, passage.start, passage.end) for passage in passages]
            pairs += [(work.query, text) for text in texts]
            counts.append(len(passages))
        logits = encoder.predict(pairs, show_progress_bar=False, convert_to_tensor=True).reshape(len(pairs), -1)
        passage_scores = model.reader.features_of(SimpleNamespace(logits=logits), {}).split(counts)
        return [aggregated.score for aggregated in aggregate_documents(model, passage_scores)], {}

    return run


def _save_plain(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save a tokenizer alone: one that came with a ranker names the ranker's processor, which would be loaded too."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    named = ("processor_class", "auto_map")
    plain = {key: value for key, value in content.items() if key not in named}
    path.write_text(json.dumps(plain), encoding="utf-8")


def limit(model: DocumentRanker, work: Workload) -> Turn:
    """The matrix products that the real tokens need, in docparade's batches and threads, and nothing else."""
    config = model.config.encoder_config
    width, heads, layers = config.hidden_size, config.num_attention_heads, config.num_hidden_layers
    inner = feed_forward_size(config)
    kind: dict[str, Any] = {"device": model.device, "dtype": model.dtype}
    weights = [torch.randn(width, width, **kind) for _ in range(4)]
    up, down = torch.randn(width, inner, **kind), torch.randn(inner, width, **kind)
    with torch.inference_mode():
        planned, threads = plan_batches(model, work.lengths)
    batches = [_factors(work.lengths[rows], width, inner, heads, kind) for rows, _ in planned]

    def multiply(batch: tuple[Tensor, Tensor, list[Tensor]]) -> None:
        tokens, wide, attention = batch
        for _ in range(layers):
            for weight in weights:
                torch.mm(tokens, weight)
            torch.mm(tokens, up)
            torch.mm(wide, down)
            for states in attention:
                torch.bmm(torch.bmm(states, states.transpose(1, 2)), states)

    @torch.inference_mode()
    def run() -> tuple[list[float], dict[str, float]]:
        map_in_threads(multiply, batches, threads)
        return [], {}

    return run


def _factors(
    lengths: np.ndarray, width: int, inner: int, heads: int, kind: dict[str, Any]
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """What is multiplied for a batch: tokens, tokens in the feed-forward net, and attention heads by input length."""
    tokens = int(lengths.sum())
    counts = dict(zip(*np.unique(lengths, return_counts=True), strict=True))
    heads_of_inputs = [torch.randn(count * heads, length, width // heads, **kind) for length, count in counts.items()]
    return torch.randn(tokens, width, **kind), torch.randn(tokens, inner, **kind), heads_of_inputs


SYSTEMS: dict[str, Callable[[DocumentRanker, Workload], Turn]] = {
    "docparade": docparade,
    "cached": cached,
    "kept": kept,
    "int8": int8,
    "bfloat16": bfloat16,
    "cascade": cascade,
    "dense": dense,
    "sentence-transformers": sentence_transformers,
    "limit": limit,
}
"""Each prepares what it needs for a ranker and a workload, and returns what is timed."""
