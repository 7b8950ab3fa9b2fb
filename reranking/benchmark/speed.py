"""How fast a ranker reads: docparade, the dense way, sentence-transformers, and the limit that the machine sets.

All systems read the same passages of the same documents on the same device, in turns, several times; the best time of
each counts. The limit is the time of the bare matrix products that the real tokens need, in the same batches and
streams.
"""

from __future__ import annotations

import copy
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from docparade.modeling import DocumentRanker, engine, to_int8
from docparade.modeling.engine import EncodeDocuments, read_pairs
from docparade.modeling.engine_batching import plan_batches
from docparade.modeling.engine_threads import in_streams
from docparade.reranking.documents import DocumentLike
from docparade.retrieval.errors import InputError

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
    """Peak of this process's memory (not a GPU's) above what was there before, in MiB, in the turn that warms up."""
    scores: list[float] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of the best turn by what was done in them."""


@dataclass(frozen=True)
class Workload:
    """One query and its documents, as a ranker reads them."""

    query: str
    documents: Sequence[DocumentLike]
    lengths: np.ndarray
    """Tokens of each input: query, passage and special tokens."""
    dense_passages: int
    """Passages that the dense way pads every document to: the processor's limit, or else those of the longest."""
    max_length: int
    """Tokens that the dense way pads every passage to."""

    @classmethod
    def of(cls, model: DocumentRanker, query: str, documents: Sequence[DocumentLike]) -> Workload:
        """Count what there is to read."""
        processor = model.require_processor()
        query_ids = processor.encode_query(query)
        lengths: list[int] = []
        longest = 0
        for encoded in processor.encode_documents(documents):
            passages, _ = processor.split(encoded, len(query_ids))
            lengths += [processor.join(query_ids, passage).shape[1] for passage in passages]
            longest = max(longest, len(passages))
        return cls(query, documents, np.array(lengths), processor.max_passages or longest, processor.max_length)

    @property
    def real_tokens(self) -> int:
        """Tokens that have to be encoded."""
        return int(self.lengths.sum())

    @property
    def dense_tokens(self) -> int:
        """Tokens that the dense way encodes."""
        return len(self.documents) * self.dense_passages * self.max_length


def find_device(name: str | None = None) -> torch.device:
    """The device of this name; without one, the accelerator if there is one, and else the CPU.

    Example:
        >>> find_device("cpu")
        device(type='cpu')
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name is None:
        return accelerator or torch.device("cpu")
    count = torch.accelerator.device_count() if accelerator else 0
    known = ["cpu", *([accelerator.type] if accelerator else []), *(f"{accelerator}:{i}" for i in range(count))]
    if name not in known:
        raise InputError(f"--device: there is no '{name}' on this machine; choose from {', '.join(known)}.")
    return torch.device(name)


def read_clock(device: torch.device) -> float:
    """Seconds, read when the device has finished what it was given: an accelerator works on after a call returns."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()


def why_not(system: str, model: DocumentRanker) -> str:
    """Why a system cannot read with this ranker; nothing where it can."""
    if system == "int8" and model.config.int8:
        return "the ranker is in int8 already"
    if system != "sentence-transformers":
        return ""
    if model.config.model_type != "maxp":
        return "its CrossEncoder scores passages, and a parade ranker aggregates vectors"
    if model.config.int8:
        return "its CrossEncoder does not read int8 layers"
    if find_spec("sentence_transformers") is None:
        return "the sentence-transformers extra is not installed"
    return ""


def measure(model: DocumentRanker, work: Workload, systems: Sequence[str], turns: int = 3) -> dict[str, Timing]:
    """Time the systems in turns, one after the other, and keep each one's best turn.

    Example:
        ```python
        measure(model, Workload.of(model, query, documents), ["docparade", "dense", "limit"])
        ```
    """
    for name in systems:
        if reason := why_not(name, model):
            raise InputError(f"--systems: leave out {name}: {reason}.")
    return take_turns({name: SYSTEMS[name](model, work) for name in systems}, turns, model.device)


def take_turns(runners: Mapping[str, Runner], turns: int, device: torch.device) -> dict[str, Timing]:
    """The best turn of each, after one that warms up, whose memory is watched: watching takes time."""
    timings = {name: _warm_up(name, run) for name, run in runners.items()}
    for _ in range(turns):
        for name, run in runners.items():
            _take_turn(timings[name], run, device)
    return timings


def _warm_up(system: str, run: Runner) -> Timing:
    with _peak_memory() as peak:
        scores, _ = run()
    return Timing(system, memory=peak[0], scores=scores)


def _take_turn(timing: Timing, run: Runner, device: torch.device) -> None:
    start = read_clock(device)
    _, parts = run()
    seconds = read_clock(device) - start
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
    device = model.device

    def run() -> tuple[list[float], dict[str, float]]:
        parts = {"tokenizing": 0.0, "encoding": 0.0}
        with _timed(parts, "encoding", device):
            # Documents are tokenized beside the encoder, which this clock must not wait for.
            tokenize = _timing(parts, "tokenizing", torch.device("cpu"), own)
            start = read_clock(device)
            readings = read_pairs(model, pairs, progress=False, encode_documents=tokenize, **options)
            whole = read_clock(device) - start
        # What is tokenized before encoding begins is in the rest; what is tokenized beside it is not.
        parts["rest"] = whole - parts["encoding"]
        return [reading.score for reading in readings], parts

    return run


def cached_runner(model: DocumentRanker, work: Workload) -> Runner:
    """The same with documents that were tokenized before, as for the second query over them."""
    from docparade.reranking.token_cache import TokenCache

    # The open files stay readable when their folder is gone; Windows keeps the folder.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
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
    """The way of the peers: every document as the same number of inputs of max_length tokens, all of them encoded."""

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
        passage_scores = model._features(SimpleNamespace(logits=logits)).split(counts)
        mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
        scores = model.aggregator(pad_sequence(passage_scores, batch_first=True), mask.to(model.device)).score
        return scores.tolist(), {}

    return run


def _save_plain(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save a tokenizer alone: one that came with a ranker names the ranker's processor, which would be loaded too."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    named = ("processor_class", "auto_map")
    plain = {key: value for key, value in content.items() if key not in named}
    path.write_text(json.dumps(plain), encoding="utf-8")


def limit_runner(model: DocumentRanker, work: Workload) -> Runner:
    """The bare matrix products that the real tokens need, in docparade's batches and streams, and nothing else."""
    config = model.config.encoder_config
    width, heads, layers = config.hidden_size, config.num_attention_heads, config.num_hidden_layers
    inner = getattr(config, "intermediate_size", None) or getattr(config, "hidden_dim", 4 * width)
    kind: dict[str, Any] = {"device": model.device, "dtype": model.dtype}
    weights = [torch.randn(width, width, **kind) for _ in range(4)]
    up, down = torch.randn(width, inner, **kind), torch.randn(inner, width, **kind)
    with torch.inference_mode():
        planned, streams = plan_batches(model, work.lengths)
    batches = [_products(work.lengths[rows], width, inner, heads, kind) for rows, _ in planned]

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


def _products(
    lengths: np.ndarray, width: int, inner: int, heads: int, kind: dict[str, Any]
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """What is multiplied for a batch: all tokens, all of them in the feed-forward net, the heads of equal lengths."""
    tokens = int(lengths.sum())
    counts = dict(zip(*np.unique(lengths, return_counts=True), strict=True))
    heads_of_inputs = [torch.randn(count * heads, length, width // heads, **kind) for length, count in counts.items()]
    return torch.randn(tokens, width, **kind), torch.randn(tokens, inner, **kind), heads_of_inputs


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


def _grown(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    grown = values.new_zeros(shape)
    grown[tuple(slice(size) for size in values.shape)] = values
    return grown


def _timing(
    parts: dict[str, float], name: str, device: torch.device, function: Callable[..., Any]
) -> Callable[..., Any]:
    def timed(*arguments: Any, **options: Any) -> Any:
        start = read_clock(device)
        try:
            return function(*arguments, **options)
        finally:
            parts[name] += read_clock(device) - start

    return timed


@contextmanager
def _timed(parts: dict[str, float], name: str, device: torch.device) -> Iterator[None]:
    """Add up the time that the engine spends in its encoder."""
    before = engine.encode_by_length
    engine.encode_by_length = _timing(parts, name, device, before)
    try:
        yield
    finally:
        engine.encode_by_length = before
