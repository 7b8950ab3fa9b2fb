"""The engine behind `model.rank` and `model.score`: passages of many documents together, real tokens only.

Each document is tokenized once, while the encoder reads the documents before it. The inputs of many pairs are sorted by
length and encoded in batches with a budget of tokens. Only the scores of a pair are kept, so memory is bounded for
lists of any length.

The engine's other files: `engine_batching` (batches by length), `engine_packing` (no padding), `engine_threads` (CPU
cores), `engine_vectors` (bi-encoders), `engine_kept` (vectors that were computed before), and two options that trade
exactness for speed: `engine_cascade` (fewer passages) and `engine_int8`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers.utils import logging

from .aggregators import SumPassage
from .checks import check_limit
from .documents import Document, DocumentLike
from .engine_batching import UseFeatures, default_budget, map_by_length, put_in_order
from .engine_cascade import ChoosePassages, choose_by_words
from .passages import EncodedDocument, Passage
from .processing_document import check_query

if TYPE_CHECKING:
    from .engine_kept import KeptVectors
    from .modeling_ranker import DocumentRanker

logger = logging.get_logger(__name__)

# Characters of the documents that are tokenized together.
BLOCK_CHARACTERS = 200_000
# Batches whose inputs are sorted together; fewer if the features of all tokens are kept until then.
BATCHES_PER_SORT = 64
BATCHES_PER_SORT_WITH_TOKENS = 16
DOCUMENTS_PER_AGGREGATION = 64
PROGRESS_FROM_DOCUMENTS = 500

EMPTY_SCORE = -3.4e38
"""The score of a document in which there is nothing to read. It is below every other score, and a finite 32-bit float:
JSON has no infinity."""

EncodeDocuments = Callable[[Sequence[DocumentLike]], list[EncodedDocument]]
"""`DocumentProcessor.encode_documents`, or a function that returns the same without tokenizing."""


@dataclass(frozen=True)
class RankedPassage:
    """A passage that was read: its span in the document's text, its score and its weight."""

    text: str
    start: int
    end: int
    score: float
    """The score of a document that consists of this passage."""
    weight: float
    """The weight in the model's aggregation; `model.config.weight_means` explains it."""


@dataclass(frozen=True)
class RankedDocument:
    """A document in a ranking."""

    index: int
    """Its position in the given list."""
    id: Any
    """Its id as it was given; `None` if it has none."""
    score: float
    passages: list[RankedPassage] = field(repr=False)
    """The passages that were read, in document order."""
    unread: int = 0
    """How many passages were not read because of the processor's `max_passages` or of `keep_passages`."""
    text: str = field(default="", repr=False)
    """The document's text."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read in the document: it is ranked last, with the score `EMPTY_SCORE`."""
        return self.score == EMPTY_SCORE

    @property
    def best_passage(self) -> RankedPassage:
        """The passage with the greatest weight, and among equal weights the greatest score."""
        return max(self.passages, key=lambda passage: (passage.weight, passage.score))

    def to_dict(self, return_passages: bool = False, return_text: bool = False) -> dict[str, Any]:
        """Plain values, ready for JSON: `index`, `id`, `score`, `unread`, `empty`; optionally `passages` and `text`."""
        values: dict[str, Any] = {name: getattr(self, name) for name in ("index", "id", "score", "unread", "empty")}
        if return_passages:
            values["passages"] = [asdict(passage) for passage in self.passages]
        return {**values, "text": self.text} if return_text else values


@dataclass(frozen=True)
class Reading:
    """The result of one pair of a query and a document."""

    document: Document
    spans: list[tuple[int, int]]
    """The spans of the passages that were read, in the document's text."""
    unread: int
    score: float
    passage_scores: list[float]
    weights: list[float]
    model_score: float
    """What the model gives the document: `score`, unless the document is empty."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read in the document."""
        return self.score == EMPTY_SCORE

    @classmethod
    def of(
        cls,
        document: Document,
        spans: list[tuple[int, int]],
        unread: int,
        scored: AggregatedDocument,
        empty: bool,
    ) -> Reading:
        """The result from what the model gives the document."""
        score = EMPTY_SCORE if empty else scored.score
        return cls(document, spans, unread, score, scored.passage_scores, scored.weights, scored.score)

    def to_ranked(self, index: int) -> RankedDocument:
        """The result as users get it."""
        text = self.document.text
        columns = zip(self.spans, self.passage_scores, self.weights, strict=True)
        return RankedDocument(
            index=index,
            id=self.document.id,
            score=self.score,
            passages=[
                RankedPassage(text[start:end], start, end, score, weight) for (start, end), score, weight in columns
            ],
            unread=self.unread,
            text=text,
        )


def rank_all(
    model: DocumentRanker,
    requests: Sequence[tuple[str, Iterable[DocumentLike]]],
    top_k: int | None = None,
    **options: Any,
) -> list[list[RankedDocument]]:
    """See `DocumentRanker.rank_all`; further options are those of `read_pairs`."""
    for i, request in enumerate(requests):
        if isinstance(request, str) or not isinstance(request, Sequence) or len(request) != 2:
            raise TypeError(f"requests[{i}] is not a pair of a query and a list of documents.")
    for _, documents in requests:
        if isinstance(documents, (str, Mapping)):
            raise TypeError("documents is a single document: give a list of them.")
        if not isinstance(documents, Iterable):
            raise TypeError(f"documents is {documents!r}: give a list of documents.")
    check_limit("top_k", top_k)
    lists = []
    for i, (query, documents) in enumerate(requests):
        place = f"requests[{i}]: " if len(requests) > 1 else ""
        named = (Document.of(document, f"{place}documents[{j}]") for j, document in enumerate(documents))
        lists.append((query, list(named)))
    pairs = [(query, document) for query, documents in lists for document in documents]
    readings = iter(read_pairs(model, pairs, **options))
    return [_in_order(list(islice(readings, len(documents))))[:top_k] for _, documents in lists]


def _in_order(readings: Sequence[Reading]) -> list[RankedDocument]:
    # Of equal scores, the greater id is first, as in runs; without ids, the order is that of the input.
    by_id = sorted(range(len(readings)), key=lambda i: _sortable(readings[i].document.id), reverse=True)
    by_score = sorted(by_id, key=lambda i: readings[i].score, reverse=True)
    return [readings[index].to_ranked(index) for index in by_score]


def _sortable(identifier: Any) -> str:
    return "" if identifier is None else str(identifier)


def read_pairs(
    model: DocumentRanker,
    pairs: Sequence[tuple[str, DocumentLike]],
    batch_tokens: int | None = None,
    progress: bool | None = None,
    encode_documents: EncodeDocuments | None = None,
    keep_passages: int | None = None,
    choose_by: KeptVectors | None = None,
    vectors: KeptVectors | None = None,
    choose_passages: ChoosePassages | None = None,
) -> list[Reading]:
    """Read every pair of a query and a document; the results are in the same order.

    Equal pairs are read once, so their scores are equal to the last bit.

    Args:
        model: The ranker.
        pairs: Queries and documents.
        batch_tokens: Tokens that go through the encoder at once; `None` suits the device.
        progress: Whether to show a progress bar; `None` shows it for long lists, in a terminal.
        encode_documents: In place of the processor's method, for documents that were tokenized before.
        keep_passages: How many passages of a document the encoder reads at most: the first, and those that match the
            query's words best; `None` is all.
        choose_by: Vectors of a bi-encoder by which `keep_passages` chooses, in place of the query's words.
        vectors: This bi-encoder's vectors of the documents, which are not read then.
        choose_passages: Chooses the passages to read, in place of `keep_passages`.
    """
    # Imported here, because that file builds on this one.
    from .engine_kept import VectorChooser, check_kept, check_kept_type, read_kept

    check_limit("keep_passages", keep_passages)
    check_limit("batch_tokens", batch_tokens)
    check_kept_type("choose_by", choose_by)
    check_kept_type("vectors", vectors)
    check_kept(model, vectors)
    if vectors is not None and (keep_passages is not None or choose_by is not None):
        raise ValueError("keep_passages and choose_by are for reading texts, and with vectors nothing is read.")
    if choose_by is not None and keep_passages is None:
        raise ValueError("choose_by chooses passages: say how many with keep_passages.")
    for i, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise TypeError(f"pairs[{i}] is not a pair of a query and a document.")
    documents = [Document.of(document, f"documents[{i}]") for i, (_, document) in enumerate(pairs)]
    contents = [replace(document, id=None) for document in documents]
    positions: dict[Document, dict[str, list[int]]] = {}
    for position, content in enumerate(contents):
        query = check_query(pairs[position][0])
        positions.setdefault(content, {}).setdefault(query, []).append(position)
    readings: dict[int, Reading] = {}
    # None is tqdm's own value for: no bar if standard error is not a terminal.
    hide = not progress if progress is not None else (None if len(pairs) >= PROGRESS_FROM_DOCUMENTS else True)
    originals = dict(zip(contents, documents, strict=True))
    if keep_passages is not None and choose_by is not None:
        queries = list(dict.fromkeys(query for query, _ in pairs))
        choose_passages = VectorChooser(choose_by, queries, originals).choose(keep_passages)
    elif keep_passages is not None:
        choose_passages = choose_by_words(keep_passages)
    with inference(model), tqdm(total=len(pairs), unit="doc", desc="Ranking", disable=hide, leave=False) as bar:
        if vectors is not None:
            found = read_kept(model, positions, originals, vectors)
        else:
            encode = encode_documents or model.require_processor().encode_documents
            work = _work_of(model)(model, batch_tokens or default_budget(model), choose_passages)
            found = _read_distinct(work, positions, encode)
        for reading, query in found:
            places = positions[reading.document][query]
            check_finite(model, _name(documents[places[0]], places[0]), [reading.score, *reading.passage_scores])
            readings |= {place: replace(reading, document=documents[place]) for place in places}
            bar.update(len(places))
    empty = sorted(place for place, reading in readings.items() if reading.empty)
    model.require_processor().warn_of_empty([_name(documents[place], place) for place in empty])
    _warn_of_sums(model, readings.values())
    return [readings[position] for position in range(len(pairs))]


def _warn_of_sums(model: DocumentRanker, readings: Iterable[Reading]) -> None:
    """Say, once, that SumP ranks by length if no passage has a negative score."""
    if not isinstance(model.aggregator, SumPassage):
        return
    read = list(readings)
    lengths = {len(reading.passage_scores) for reading in read}
    if len(lengths) > 1 and all(score > 0 for reading in read for score in reading.passage_scores):
        logger.warning_once(
            "aggregation='sum' adds up passage scores, and all of them are positive here: the more passages a document "
            "has, the higher its score. Use aggregation='avg' or 'max', or a ranker that gives irrelevant passages "
            "negative scores."
        )


def _name(document: Document, place: int) -> str:
    """What a document is called in messages."""
    if document.id is not None:
        return f"document {document.id}"
    return f"documents[{place}]" + (f", which begins with {document.text[:40]!r}" if document.text else "")


def check_finite(model: DocumentRanker, name: str, scores: Iterable[float]) -> None:
    """Refuse scores of a document that are not finite."""
    if not all(map(math.isfinite, scores)):
        raise FloatingPointError(
            f"The score of {name} is not a finite number: weights or kept vectors are damaged, or {model.dtype} "
            "overflows; load the model with dtype=torch.float32."
        )


def _work_of(model: DocumentRanker) -> type[PairWork]:
    # Imported here, because that file builds on this one.
    from .engine_vectors import SeparateWork

    return PairWork if model.vector_head is None else SeparateWork


def _read_distinct(
    work: PairWork, queries_of: Mapping[Document, Iterable[str]], encode_documents: EncodeDocuments
) -> Iterator[tuple[Reading, str]]:
    """Read every document for its queries, block by block."""
    queries = dict.fromkeys(chain(*queries_of.values()))
    query_ids = {query: work.processor.encode_query(query) for query in queries}
    work.prepare_queries(query_ids)
    for document, encoded in _encode_ahead(encode_documents, _blocks(queries_of)):
        # `document`, not `encoded.document`: a processor from another copy of the code has its own class of documents.
        for query in queries_of[document]:
            work.add(document, encoded, query, query_ids[query])
            if work.tokens >= work.batch_tokens * work.batches_per_sort:
                yield from work.read_all()
    yield from work.read_all()
    work.processor.warn_of_unread(work.unread, work.read)


def _encode_ahead(
    encode: EncodeDocuments, blocks: Iterable[list[Document]]
) -> Iterator[tuple[Document, EncodedDocument]]:
    """The documents of all blocks with their tokens; the next block is tokenized while one is used."""

    def encode_block(block: list[Document]) -> list[tuple[Document, EncodedDocument]]:
        return list(zip(block, encode(block), strict=True))

    with ThreadPoolExecutor(max_workers=1) as worker:
        coming: Future[list[tuple[Document, EncodedDocument]]] | None = None
        for block in blocks:
            ready, coming = coming, worker.submit(encode_block, block)
            if ready is not None:
                yield from ready.result()
        if coming is not None:
            yield from coming.result()


def _blocks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Divide documents into blocks of at most `BLOCK_CHARACTERS`, or of one document."""
    block: list[Document] = []
    characters = 0
    for document in documents:
        length = len(document.title) + len(document.headings) + len(document.text)
        if block and characters + length > BLOCK_CHARACTERS:
            yield block
            block, characters = [], 0
        block.append(document)
        characters += length
    if block:
        yield block


class _Readers:
    """How many threads use a model now, and which of its modules were in training mode before."""

    def __init__(self) -> None:
        self.count = 0
        self.were_training: list[torch.nn.Module] = []


_readers: WeakKeyDictionary[torch.nn.Module, _Readers] = WeakKeyDictionary()
_readers_lock = Lock()


@contextmanager
def changing_mode(model: DocumentRanker, training: bool) -> Iterator[None]:
    """In this context, the model's mode may be changed: not to training while threads rank with it.

    Raises:
        RuntimeError: A thread is ranking, and its scores would become random.
    """
    with _readers_lock:
        readers = _readers.get(model)
        if readers is not None and readers.count:
            if training:
                raise RuntimeError(
                    "model.train() while another thread ranks with the model: its scores would become random. Train "
                    "when it has ended, or rank with a copy."
                )
            readers.were_training = []
        yield


@contextmanager
def inference(model: DocumentRanker) -> Iterator[None]:
    """No dropout and no gradients. The last of several threads that use a model restores its training mode."""
    with _readers_lock:
        readers = _readers.setdefault(model, _Readers())
        if readers.count == 0:
            readers.were_training = [module for module in model.modules() if module.training]
            for module in readers.were_training:
                module.training = False
        readers.count += 1
    try:
        with torch.inference_mode():
            yield
        if any(module.training for module in model.modules()):
            raise RuntimeError(
                "A part of the model was put into training mode while it was ranking, so the scores are random: rank "
                "again, or with a copy."
            )
    finally:
        with _readers_lock:
            readers.count -= 1
            if readers.count == 0:
                for module in readers.were_training:
                    module.training = True


class PairWork:
    """Pairs that are read together."""

    def __init__(self, model: DocumentRanker, batch_tokens: int, choose: ChoosePassages | None) -> None:
        self.model = model
        self.processor = model.require_processor()
        self.batch_tokens = batch_tokens
        self.choose = choose
        self.batches_per_sort = BATCHES_PER_SORT_WITH_TOKENS if model.keeps_tokens else BATCHES_PER_SORT
        self.read: list[int] = []
        self.unread: list[int] = []
        """Passages of each pair that the processor selected (`read`) and left out (`unread`)."""
        self.empty: set[Document] = set()
        """The documents in which there is nothing to read."""
        self._start()

    def _start(self) -> None:
        self.tokens = 0
        self.pairs: list[tuple[Document, str, list[tuple[int, int]], int]] = []
        self.inputs: list[np.ndarray] = []

    def prepare_queries(self, query_ids: Mapping[str, list[int]]) -> None:
        """Called once, with the tokens of all queries."""

    def add(self, document: Document, encoded: EncodedDocument, query: str, query_ids: list[int]) -> None:
        """Cut a document into passages for a query, and add their inputs."""
        passages, unread = self.split(document, encoded, len(query_ids))
        self.read.append(len(passages))
        self.unread.append(unread)
        kept = self.choose_passages(document, query, query_ids, passages)
        unread += len(passages) - len(kept)
        passages = [passages[place] for place in kept]
        inputs = [self.processor.join(query_ids, passage) for passage in passages]
        self.pairs.append((document, query, [(passage.start, passage.end) for passage in passages], unread))
        self.inputs += inputs
        self.tokens += sum(joined.shape[1] for joined in inputs)

    def split(self, document: Document, encoded: EncodedDocument, query_length: int) -> tuple[list[Passage], int]:
        """The passages of a document, and how many more are left unread; notes documents that are empty."""
        if self.processor.is_empty(encoded):
            self.empty.add(document)
        return self.processor.split(encoded, query_length)

    def choose_passages(
        self, document: Document, query: str, query_ids: list[int], passages: Sequence[Passage]
    ) -> list[int]:
        """The places of the passages to read; all if nothing chooses among them."""
        if self.choose is None:
            return list(range(len(passages)))
        # A prompt has no words to look for.
        return self.choose(document, query, query_ids[len(self.processor.query_prompt_ids) :], passages)

    def read_all(self) -> list[tuple[Reading, str]]:
        """Read what was added, and start anew."""
        read = []
        aggregated = aggregate_documents(self.model, self._encode())
        for (document, query, spans, unread), scored in zip(self.pairs, aggregated, strict=True):
            read.append((Reading.of(document, spans, unread, scored, document in self.empty), query))
        self._start()
        return read

    def _encode(self) -> list[Tensor]:
        """The features of each pair's passages."""
        if not self.inputs:
            return []
        return list(self.encode_inputs().split([len(spans) for _, _, spans, _ in self.pairs]))

    def encode_inputs(self) -> Tensor:
        """The features of all inputs."""
        return put_in_order(self.map_inputs(lambda rows, features: (rows, features)))

    def map_inputs(self, use: UseFeatures) -> list[tuple[np.ndarray, Tensor]]:
        """What `use` makes of the features of each batch of inputs."""

        def take(rows: Tensor, length: int) -> dict[str, Tensor]:
            return self.processor.pad([self.inputs[row] for row in rows])

        lengths = np.array([joined.shape[1] for joined in self.inputs])
        before = self.model.batch_tokens
        results = map_by_length(self.model, lengths, take, use, self.batch_tokens)
        if self.model.batch_tokens != before:  # memory ran out: use the smaller budget from now on
            self.batch_tokens = default_budget(self.model)
        return results


class AggregatedDocument(NamedTuple):
    """The score of a document, and the scores and weights of its passages."""

    score: float
    passage_scores: list[float]
    weights: list[float]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read in the document."""
        return self.score == EMPTY_SCORE


def aggregate_documents(model: DocumentRanker, documents: Sequence[Tensor]) -> list[AggregatedDocument]:
    """Aggregate documents, each given as the features of its passages."""
    results: dict[int, AggregatedDocument] = {}
    # Documents with a similar number of passages are aggregated together.
    order = sorted(range(len(documents)), key=lambda i: len(documents[i]))
    for start in range(0, len(order), DOCUMENTS_PER_AGGREGATION):
        group = order[start : start + DOCUMENTS_PER_AGGREGATION]
        passages = torch.nn.utils.rnn.pad_sequence([documents[i] for i in group], batch_first=True)
        counts = torch.tensor([len(documents[i]) for i in group], device=passages.device)
        mask = torch.arange(passages.size(1), device=passages.device) < counts[:, None]
        aggregated = model.aggregator(passages, mask)
        passage_scores = torch.zeros(mask.shape, device=mask.device)
        passage_scores[mask] = model.passage_scores(passages[mask]).float()
        columns = (aggregated.score.float().tolist(), passage_scores.tolist(), aggregated.weights.float().tolist())
        for i, score, own, weights in zip(group, *columns, strict=True):
            count = len(documents[i])
            results[i] = AggregatedDocument(score, own[:count], weights[:count])
    return [results[i] for i in range(len(documents))]
