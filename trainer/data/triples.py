"""Training triples from files or datasets: a query, a relevant text and negatives, streamed in order.

They come from JSON lines (plain, gzip or xz), `docpairs` of ir_datasets, or Hugging Face datasets. Like drawn pairs,
they are numbered without end: after the last row, the first follows again. Rows are read in blocks and shuffled within
a block. A row without negatives uses the positives of other rows in its block.
"""

from __future__ import annotations

import heapq
import json
import lzma
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Required, TypedDict, Unpack

from torch.utils.data import Dataset

from docparade.retrieval.collections.irds import load_dataset
from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import atomic_write, read_lines

from .pairs import TrainingPair, draw_negatives

if TYPE_CHECKING:
    import datasets

BLOCK_ROWS = 1000


class Triple(NamedTuple):
    """A row: a query, a relevant document and negatives; texts or ids."""

    query: str
    positive: str
    negatives: tuple[str, ...] = ()


class TripleOptions(TypedDict, total=False):
    """Options of `Triples` that its `from_...` methods take, too."""

    seed: Required[int]
    pairs_per_epoch: int | None
    negatives: int


class Triples(Dataset[TrainingPair]):
    """Triples by number.

    Args:
        read: Opens the rows again and yields them in order. It must be picklable for the workers of a DataLoader.
        rows: The number of rows.
        seed: Seed of the order within blocks and of drawn negatives.
        pairs_per_epoch: Pairs in an epoch: `len` of the dataset; `None` is all.
        negatives: Negatives in each pair.

    Example:
        ```python
        triples = Triples.from_files(["nq.jsonl.xz", "reuters.jsonl.xz"], seed=42)
        triples[0].query  # 'who wrote the opera carmen'
        ```
    """

    def __init__(
        self,
        read: Callable[[], Iterator[Triple]],
        rows: int,
        *,
        seed: int,
        pairs_per_epoch: int | None = None,
        negatives: int = 1,
    ) -> None:
        self.read = read
        self.rows = rows
        self.seed = seed
        self.pairs_per_epoch = pairs_per_epoch or rows
        self.negatives = negatives
        self._reset()

    @classmethod
    def from_files(cls, paths: str | Path | Sequence[str | Path], **options: Unpack[TripleOptions]) -> Triples:
        """Read JSON lines of `{"query", "positive", "negatives"}`. Several files are interleaved evenly.

        Args:
            paths: Files of JSON lines, compressed if their names end in `.gz` or `.xz`. `negatives` may be missing.
            **options: Options of the class.
        """
        files = [paths] if isinstance(paths, (str, Path)) else list(paths)
        counts = [sum(1 for _ in _read_numbered_lines(path)) for path in files]
        for path, count in zip(files, counts, strict=True):
            if not count:
                raise _empty_file(path)
        return cls(_FileRows(files, counts), sum(counts), **options)

    @classmethod
    def from_ir_datasets(cls, name: str, **options: Unpack[TripleOptions]) -> Triples:
        """Read the `docpairs` of an ir_datasets dataset. They are ids: give the trainer its queries and documents."""
        dataset = cls.check_docpairs(name)
        metadata = dataset.metadata() if hasattr(dataset, "metadata") else {}
        known = metadata.get("docpairs", {}).get("count")
        return cls(_DocPairRows(name), known or sum(1 for _ in dataset.docpairs_iter()), **options)

    @staticmethod
    def check_docpairs(name: str) -> Any:
        """Load a dataset of ir_datasets; refuse one without docpairs."""
        try:
            dataset = load_dataset(name)
        except KeyError:
            raise InputError(f"{name} is no id that ir_datasets knows.") from None
        if not dataset.has_docpairs():
            raise InputError(f"{name} has no docpairs; look among the other parts of this dataset in ir_datasets.")
        return dataset

    @classmethod
    def from_dataset(
        cls,
        dataset: datasets.Dataset | datasets.IterableDataset,
        rows: int | None = None,
        **options: Unpack[TripleOptions],
    ) -> Triples:
        """Read a Hugging Face dataset with the columns `query`, `positive` and `negatives` or `negative`.

        Args:
            dataset: One split, as `datasets.load_dataset` returns it, streamed or not.
            rows: The number of rows; needed for a streamed dataset that does not know it.
            **options: Options of the class.
        """
        if rows is None:
            rows = len(dataset) if hasattr(dataset, "__len__") else _count_streamed_rows(dataset)
        return cls(_DatasetRows(dataset), rows, **options)

    def __len__(self) -> int:
        return self.pairs_per_epoch

    def __getitem__(self, number: int) -> TrainingPair:
        turn, row_number = divmod(number, self.rows)
        index, position = divmod(row_number, BLOCK_ROWS)
        block = self._read_block(index)
        order = list(range(len(block)))
        random.Random(f"block {self.seed} {turn} {index}").shuffle(order)
        row = block[order[position]]
        draw = random.Random(f"triple {self.seed} {number}")
        negatives = list(row.negatives) or self._find_block_negatives(row, block)
        negative, *further = draw_negatives(draw, negatives, self.negatives)
        return TrainingPair(row.query, row.positive, negative, tuple(further), number)

    def _find_block_negatives(self, row: Triple, block: list[Triple]) -> list[str]:
        """The positives of other queries in the block."""
        others = [other.positive for other in block if other.positive != row.positive and other.query != row.query]
        if not others:
            raise InputError(
                f"the triple of the query {row.query[:40]!r} has no negatives, and there is no other query to take "
                "them from."
            )
        return others

    # --- Reading blocks in order -------------------------------------------------------------------------------------

    def _reset(self) -> None:
        self._process = -1
        self._stream: Iterator[Triple] = iter(())
        self._next_index = 0
        self._current: tuple[int, list[Triple]] = (-1, [])

    def _read_block(self, index: int) -> list[Triple]:
        """Read a block of rows: a later one by reading on, an earlier one by starting over."""
        # A forked worker shares open files with its parent, so it opens its own.
        if self._process != os.getpid():
            self._reset()
        if self._current[0] != index:
            if self._process != os.getpid() or index < self._next_index:
                self._process, self._stream, self._next_index = os.getpid(), self.read(), 0
            skipped = (index - self._next_index) * BLOCK_ROWS
            block = list(islice(self._stream, skipped, skipped + BLOCK_ROWS))
            if len(block) < min(BLOCK_ROWS, self.rows - index * BLOCK_ROWS):
                raise InputError(
                    f"the triples ended before row {self.rows}, although there were as many when they were counted; "
                    "start again with files that do not change."
                )
            self._current, self._next_index = (index, block), index + 1
        return self._current[1]

    def __getstate__(self) -> dict[str, Any]:
        # An open file cannot be pickled for a worker.
        return {**self.__dict__, "_process": -1, "_stream": None, "_current": (-1, [])}


# Sources of rows. They are classes because functions inside functions cannot be pickled for a worker.


@dataclass(frozen=True)
class _FileRows:
    paths: Sequence[str | Path]
    counts: list[int]
    """Rows of each file."""

    def __call__(self) -> Iterator[Triple]:
        return _interleave([read_triples(path) for path in self.paths], self.counts)


@dataclass(frozen=True)
class _DocPairRows:
    name: str

    def __call__(self) -> Iterator[Triple]:
        import ir_datasets

        pairs = ir_datasets.load(self.name).docpairs_iter()
        return (Triple(row.query_id, row.doc_id_a, (row.doc_id_b,)) for row in pairs)


@dataclass(frozen=True)
class _DatasetRows:
    dataset: datasets.Dataset | datasets.IterableDataset

    def __call__(self) -> Iterator[Triple]:
        return (_parse_triple(row, f"row {number} of the dataset") for number, row in enumerate(self.dataset))


def _interleave(files: list[Iterator[Triple]], counts: list[int]) -> Iterator[Triple]:
    """The rows of all files, each file's rows spread evenly over the whole."""

    def add_position(rows: Iterator[Triple], file: int) -> Iterator[tuple[float, int, Triple]]:
        return (((number + 0.5) / counts[file], file, row) for number, row in enumerate(rows))

    return (row for _, _, row in heapq.merge(*(add_position(rows, file) for file, rows in enumerate(files))))


def read_triples(path: str | Path) -> Iterator[Triple]:
    """Read JSON lines of `{"query", "positive", "negatives"}`; a mistake is an `InputError` that names its line."""
    for number, line in _read_numbered_lines(path):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}, line {number}: not JSON ({error.msg}).") from None
        yield _parse_triple(row, f"{path}, line {number}")


def write_triples(rows: Iterable[Triple], path: str | Path) -> None:
    """Write JSON lines that `read_triples` reads; compressed if the name ends in `.gz`. The file appears whole."""
    with atomic_write(path) as file:
        for row in rows:
            content = {"query": row.query, "positive": row.positive, "negatives": list(row.negatives)}
            file.write(json.dumps(content, ensure_ascii=False) + "\n")


def check_file(path: str | Path) -> None:
    """Refuse a file that is missing or whose first line is not a triple."""
    if next(read_triples(path), None) is None:
        raise _empty_file(path)


def _empty_file(path: str | Path) -> InputError:
    return InputError(f"{path}: there are no lines; a file of triples has at least one.")


def _read_numbered_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    if not str(path).endswith(".xz"):
        yield from read_lines(path)
        return
    try:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            yield from ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except (lzma.LZMAError, EOFError) as error:
        raise InputError(f"{path} is not a complete xz file ({error}); fetch or compress it again.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error.reason}); convert it first.") from error


def _parse_triple(row: Any, where: str) -> Triple:
    if not isinstance(row, dict):
        raise InputError(f"{where}: not an object with the fields query, positive and negatives.")
    for field in ("query", "positive"):
        if not isinstance(row.get(field), str) or not row[field].strip():
            raise InputError(f"{where}: the field {field} has to be a text, and is {row.get(field)!r}.")
    negatives = row.get("negatives") or ([row["negative"]] if row.get("negative") else [])
    if not isinstance(negatives, list) or not all(isinstance(text, str) for text in negatives):
        raise InputError(f"{where}: the field negatives has to be a list of texts.")
    return Triple(row["query"], row["positive"], tuple(negatives))


def _count_streamed_rows(dataset: datasets.IterableDataset) -> int:
    splits = getattr(dataset.info, "splits", None) or {}
    split = splits.get(str(dataset.split)) if dataset.split is not None else None
    if split is None or not split.num_examples:
        raise InputError("the streamed dataset does not know its number of rows; give it with rows=.")
    return int(split.num_examples)
