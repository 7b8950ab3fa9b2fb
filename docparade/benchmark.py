"""How fast a ranker reads: docparade, the dense way, sentence-transformers, and the limit that the machine sets.

All systems read the same passages of the same documents, in turns, several times; the best time of each counts. The
limit is the time of the bare matrix products that the real tokens need, in the same batches and streams.
"""

from __future__ import annotations

import copy
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from docparade.modeling import DocumentRanker, ranking, to_int8
from docparade.modeling.batching import plan_batches
from docparade.modeling.processing import DocumentProcessor
from docparade.modeling.ranking import EncodeDocuments, read_pairs
from docparade.modeling.streams import in_streams
from docparade.retrieval.errors import InputError

Document = dict[str, str]
Runner = Callable[[], tuple[list[float], dict[str, float]]]
"""Reads all there is once; gives the scores, and seconds by what was done in them."""
# Documents that the dense way reads at once, as peers do: 2 x 16 x 256 tokens.
DENSE_DOCUMENTS = 2
# Passages of a document that the cascade keeps.
CASCADE_PASSAGES = 2


@dataclass
class Timing:
    """What was measured of one system."""

    system: str
    seconds: float = float("inf")
    memory: float = 0.0
    """Peak of memory above what was there before, in MiB, in the turn that warms up."""
    scores: list[float] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of the best turn by what was done in them."""


@dataclass(frozen=True)
class Workload:
    """One query and its documents, as a ranker reads them."""

    query: str
    documents: Sequence[Document]
    lengths: np.ndarray
    """Tokens of each input: query, passage and special tokens."""
    dense_tokens: int
    """Tokens that the dense way encodes: every document as max_passages x max_length."""

    @classmethod
    def of(cls, model: DocumentRanker, query: str, documents: Sequence[Document]) -> Workload:
        """Count what there is to read."""
        processor = model.require_processor()
        query_ids = processor.encode_query(query)
        lengths: list[int] = []
        for encoded in processor.encode_documents(documents):
            passages, _ = processor.split(encoded, len(query_ids))
            lengths += [processor.join(query_ids, passage).shape[1] for passage in passages]
        dense = len(documents) * _dense_passages(processor) * processor.max_length
        return cls(query, documents, np.array(lengths), dense)

    @property
    def real_tokens(self) -> int:
        """Tokens that have to be encoded."""
        return int(self.lengths.sum())


def measure(model: DocumentRanker, work: Workload, systems: Sequence[str], turns: int = 3) -> dict[str, Timing]:
    """Time the systems in turns, one after the other, and keep each one's best turn.

    Example:
        >>> measure(model, Workload.of(model, query, documents), ["docparade", "dense", "limit"])  # doctest: +SKIP
    """
    return take_turns({name: SYSTEMS[name](model, work) for name in systems}, turns)


def take_turns(runners: Mapping[str, Runner], turns: int) -> dict[str, Timing]:
    """The best turn of each, after one that warms up, whose memory is watched: watching takes time."""
    timings = {name: _warm_up(name, run) for name, run in runners.items()}
    for _ in range(turns):
        for name, run in runners.items():
            _take_turn(timings[name], run)
    return timings


def _warm_up(system: str, run: Runner) -> Timing:
    with _peak_memory() as peak:
        scores, _ = run()
    return Timing(system, memory=peak[0], scores=scores)


def _take_turn(timing: Timing, run: Runner) -> None:
    start = time.perf_counter()
    _, parts = run()
    seconds = time.perf_counter() - start
    if seconds < timing.seconds:
        timing.seconds, timing.parts = seconds, parts


@contextmanager
def _peak_memory() -> Iterator[list[float]]:
    """The peak of this process's memory above where it started, in MiB, sampled every few milliseconds."""
    process = psutil.Process()
    before = process.memory_info().rss
    peak = [0.0]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.005):
            peak[0] = max(peak[0], (process.memory_info().rss - before) / 2**20)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


# --- Systems ---------------------------------------------------------------------------------------------------------


def docparade_runner(
    model: DocumentRanker, work: Workload, encode_documents: EncodeDocuments | None = None, **options: Any
) -> Runner:
    """The engine behind `model.rank`, from text to scores."""
    pairs = [(work.query, document) for document in work.documents]
    own = encode_documents or model.require_processor().encode_documents

    def run() -> tuple[list[float], dict[str, float]]:
        parts = {"tokenising": 0.0, "encoding": 0.0}
        with _timed(parts, "encoding", ranking, "encode_by_length"):
            tokenise = _timing(parts, "tokenising", own)
            start = time.perf_counter()
            readings = read_pairs(model, pairs, progress=False, encode_documents=tokenise, **options)
            whole = time.perf_counter() - start
        # What is tokenised before encoding begins is in the rest; what is tokenised beside it is not.
        parts["rest"] = whole - parts["encoding"]
        return [reading.score for reading in readings], parts

    return run


def cached_runner(model: DocumentRanker, work: Workload) -> Runner:
    """The same with documents that were tokenised before, as for the second query over them."""
    from docparade.trainer.token_cache import TokenCache

    with tempfile.TemporaryDirectory() as folder:
        # The open files stay readable when their folder is gone.
        cache = TokenCache.open(folder, model.require_processor(), work.documents)
    return docparade_runner(model, work, cache.encode_documents)


def int8_runner(model: DocumentRanker, work: Workload) -> Runner:
    """The same with an encoder in 8-bit integers: not exact."""
    return docparade_runner(to_int8(model), work)


def bfloat16_runner(model: DocumentRanker, work: Workload) -> Runner:
    """The same in bfloat16: not exact, and for hardware that has it."""
    return docparade_runner(copy.deepcopy(model).bfloat16(), work)


def cascade_runner(model: DocumentRanker, work: Workload) -> Runner:
    """The same with the most promising passages of each document alone: not exact."""
    return docparade_runner(model, work, keep_passages=CASCADE_PASSAGES)


def dense_runner(model: DocumentRanker, work: Workload) -> Runner:
    """The way of the peers: every document as max_passages inputs of max_length tokens, all of them encoded."""
    processor = model.require_processor()
    passages = _dense_passages(processor)

    def run() -> tuple[list[float], dict[str, float]]:
        scores: list[float] = []
        for start in range(0, len(work.documents), DENSE_DOCUMENTS):
            documents = work.documents[start : start + DENSE_DOCUMENTS]
            scores += padded_scores(model, work.query, documents, passages, processor.max_length)
        return scores, {}

    return run


@torch.inference_mode()
def padded_scores(
    model: DocumentRanker, query: str, documents: Sequence[Document], passages: int = 0, length: int = 0
) -> list[float]:
    """What documents score when they are read as one padded batch, of at least so many passages of so many tokens."""
    batch = model.require_processor()([query] * len(documents), documents)
    read = batch["input_ids"].shape
    shape = (read[0], max(passages, read[1]), max(length, read[2]))
    mask = _grown(batch.pop("passage_mask"), shape[:2]).to(model.device)
    flat = {name: _grown(values, shape).flatten(0, 1).to(model.device) for name, values in batch.items()}
    flat["attention_mask"][:, 0] = 1  # attention over nothing at all is not a number
    segments = {} if model._reads_segments else {"token_type_ids": None}
    features = model._features(model.encoder(**{**flat, **segments})).unflatten(0, shape[:2])
    scores: list[float] = model.aggregator(features, mask).score.tolist()
    return scores


def sentence_transformers_runner(model: DocumentRanker, work: Workload) -> Runner:
    """`CrossEncoder.predict` on the texts of the same passages, with its default batch; the best passage counts."""
    if model.config.model_type != "maxp" or model.config.aggregation != "max":
        raise InputError(
            "sentence-transformers' CrossEncoder scores passages: compare it with a maxp ranker, 'max', or leave it "
            "out of the systems."
        )
    if find_spec("sentence_transformers") is None:
        raise InputError(
            "the sentence-transformers extra is not installed: install it, or leave it out of the systems."
        )
    from sentence_transformers import CrossEncoder

    processor = model.require_processor()
    with tempfile.TemporaryDirectory() as folder:
        model.encoder.save_pretrained(folder)
        processor.tokenizer.save_pretrained(folder)
        encoder = CrossEncoder(
            folder, device=str(model.device), max_length=processor.max_length, activation_fn=torch.nn.Identity()
        )

    def run() -> tuple[list[float], dict[str, float]]:
        query_length = len(processor.encode_query(work.query))
        pairs, counts = [], []
        for encoded in processor.encode_documents(work.documents):
            passages, _ = processor.split(encoded, query_length)
            text = encoded.document.text
            pairs += [(work.query, text[passage.start : passage.end]) for passage in passages]
            counts.append(len(passages))
        scores = torch.tensor(np.asarray(encoder.predict(pairs, show_progress_bar=False)))
        return [part.max().item() for part in scores.split(counts)], {}

    return run


def limit_runner(model: DocumentRanker, work: Workload) -> Runner:
    """The bare matrix products that the real tokens need, in docparade's batches and streams, and nothing else."""
    config = model.config.encoder_config
    width, heads, layers = config.hidden_size, config.num_attention_heads, config.num_hidden_layers
    inner = getattr(config, "intermediate_size", None) or config.hidden_dim
    weights = [torch.randn(width, width) for _ in range(4)]
    up, down = torch.randn(width, inner), torch.randn(inner, width)
    with torch.inference_mode():
        planned, streams = plan_batches(model, work.lengths)
    batches = [_products(work.lengths[rows], width, inner, heads) for rows, _ in planned]

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
        in_streams(multiply, batches, streams)
        return [], {}

    return run


def _products(lengths: np.ndarray, width: int, inner: int, heads: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """What is multiplied for a batch: all tokens, all of them in the feed-forward net, the heads of equal lengths."""
    tokens = int(lengths.sum())
    counts = dict(zip(*np.unique(lengths, return_counts=True), strict=True))
    heads_of_inputs = [torch.randn(count * heads, length, width // heads) for length, count in counts.items()]
    return torch.randn(tokens, width), torch.randn(tokens, inner), heads_of_inputs


SYSTEMS: dict[str, Callable[[DocumentRanker, Workload], Runner]] = {
    "docparade": docparade_runner,
    "cached": cached_runner,
    "int8": int8_runner,
    "bfloat16": bfloat16_runner,
    "cascade": cascade_runner,
    "dense": dense_runner,
    "sentence-transformers": sentence_transformers_runner,
    "limit": limit_runner,
}


def _dense_passages(processor: DocumentProcessor) -> int:
    if processor.max_passages is None:
        raise InputError("the dense way pads every document to max_passages, and this ranker's processor has no limit.")
    return processor.max_passages


def _grown(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    grown = values.new_zeros(shape)
    grown[tuple(slice(size) for size in values.shape)] = values
    return grown


def _timing(parts: dict[str, float], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            parts[name] += time.perf_counter() - start

    return timed


@contextmanager
def _timed(parts: dict[str, float], name: str, owner: Any, function: str) -> Iterator[None]:
    """Add up the time that is spent in a function of a module."""
    before = getattr(owner, function)
    setattr(owner, function, _timing(parts, name, before))
    try:
        yield
    finally:
        setattr(owner, function, before)
