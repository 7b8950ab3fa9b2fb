"""Ready triples: queries with a relevant text and others, read in order and never all in memory.

They come from JSON lines (plain, gzip or xz), from `docpairs` of ir_datasets or from Hugging Face datasets. Like drawn
pairs, they are numbered without end: after the last row comes the first again. Rows are taken in blocks; within a block
they are shuffled, and a row without negatives gets other rows' positives for its own.
"""

from __future__ import annotations

import heapq
import json
import lzma
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from docparade.retrieval.collections.irds import load_dataset
from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import read_lines

from .pairs import TrainingPair, draw_some

BLOCK_ROWS = 1000


class Triple(NamedTuple):
    """A row: a query, what is relevant to it, and what is not; texts or ids."""

    query: str
    positive: str
    negatives: tuple[str, ...] = ()


class Triples(Dataset[TrainingPair]):
    """Ready triples by their numbers.

    Args:
        read: Opens the rows anew and gives them one after another. Workers of a DataLoader get a pickle of it.
        rows: How many there are.
        seed: Of the order within blocks and of negatives.
        pairs_per_epoch: How many an epoch has: `len` of the dataset; `None` is all.
        negatives: How many negatives each pair has.

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
        self._forget()

    @classmethod
    def from_files(cls, paths: str | Path | Sequence[str | Path], **options: Any) -> Triples:
        """Lines of `{"query", "positive", "negatives"}`; the rows of several files are spread evenly over each other.

        Args:
            paths: Files of JSON lines; names that end in `.gz` or `.xz` are packed. `negatives` may be missing.
            **options: As the class takes them.
        """
        files = [paths] if isinstance(paths, (str, Path)) else list(paths)
        counts = [sum(1 for _ in _numbered_lines(path)) for path in files]
        for path, count in zip(files, counts, strict=True):
            if not count:
                raise InputError(f"{path}: there are no lines; a file of triples has at least one.")
        return cls(_Files(files, counts), sum(counts), **options)

    @classmethod
    def from_ir_datasets(cls, name: str, **options: Any) -> Triples:
        """The `docpairs` of an ir_datasets dataset, which are ids: give the trainer its queries and documents."""
        dataset = cls.check_docpairs(name)
        metadata = dataset.metadata() if hasattr(dataset, "metadata") else {}
        known = metadata.get("docpairs", {}).get("count")
        return cls(_DocPairs(name), known or sum(1 for _ in dataset.docpairs_iter()), **options)

    @staticmethod
    def check_docpairs(name: str) -> Any:
        """The dataset of this name in ir_datasets, if it has triples."""
        try:
            dataset = load_dataset(name)
        except KeyError:
            raise InputError(f"{name} is no id that ir_datasets knows.") from None
        if not dataset.has_docpairs():
            raise InputError(f"{name} has no docpairs; look among the other parts of this dataset in ir_datasets.")
        return dataset

    @classmethod
    def from_dataset(cls, dataset: Any, rows: int | None = None, **options: Any) -> Triples:
        """A Hugging Face dataset, streamed or not, with the columns `query`, `positive` and `negatives` or `negative`.

        Args:
            dataset: What `datasets.load_dataset` gives for one split.
            rows: How many rows a streamed dataset has, where it does not know.
            **options: As the class takes them.
        """
        if rows is None:
            rows = len(dataset) if hasattr(dataset, "__len__") else _rows_of_stream(dataset)
        return cls(_DatasetRows(dataset), rows, **options)

    def __len__(self) -> int:
        return self.pairs_per_epoch

    def __getitem__(self, number: int) -> TrainingPair:
        turn, position = divmod(number, self.rows)
        index, place = divmod(position, BLOCK_ROWS)
        block = self._block(index)
        order = list(range(len(block)))
        random.Random(f"block {self.seed} {turn} {index}").shuffle(order)
        row = block[order[place]]
        draw = random.Random(f"triple {self.seed} {number}")
        negative, *further = draw_some(draw, list(row.negatives) or self._others(row, block), self.negatives)
        return TrainingPair(row.query, row.positive, negative, tuple(further), number)

    def _others(self, row: Triple, block: list[Triple]) -> list[str]:
        others = [other.positive for other in block if other.positive != row.positive and other.query != row.query]
        if not others:
            raise InputError(f"the triple of the query {row.query[:40]!r} has no negatives, and no other row to take.")
        return others

    # --- Reading forward ---------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._process = -1
        self._stream: Iterator[Triple] = iter(())
        self._next_index = 0
        self._current: tuple[int, list[Triple]] = (-1, [])

    def _block(self, index: int) -> list[Triple]:
        """A block of rows; a later one is reached by reading on, an earlier one by starting over."""
        # A worker that was forked shares open files with its parent: it opens its own.
        if self._process != os.getpid():
            self._forget()
        if self._current[0] != index:
            if self._process != os.getpid() or index < self._next_index:
                self._process, self._stream, self._next_index = os.getpid(), self.read(), 0
            skipped = (index - self._next_index) * BLOCK_ROWS
            block = list(islice(self._stream, skipped, skipped + BLOCK_ROWS))
            if len(block) < min(BLOCK_ROWS, self.rows - index * BLOCK_ROWS):
                raise InputError(f"the triples ended after fewer than the {self.rows} rows that were counted.")
            self._current, self._next_index = (index, block), index + 1
        return self._current[1]

    def __getstate__(self) -> dict[str, Any]:
        # An open file does not travel to a worker.
        return {**self.__dict__, "_process": -1, "_stream": None, "_current": (-1, [])}


# Where rows come from. These are classes and not functions inside functions, which cannot be pickled for a worker.


@dataclass(frozen=True)
class _Files:
    paths: Sequence[str | Path]
    counts: list[int]
    """Rows of each file."""

    def __call__(self) -> Iterator[Triple]:
        return _mixed([_file_rows(path) for path in self.paths], self.counts)


@dataclass(frozen=True)
class _DocPairs:
    name: str

    def __call__(self) -> Iterator[Triple]:
        import ir_datasets

        pairs = ir_datasets.load(self.name).docpairs_iter()
        return (Triple(row.query_id, row.doc_id_a, (row.doc_id_b,)) for row in pairs)


@dataclass(frozen=True)
class _DatasetRows:
    dataset: Any

    def __call__(self) -> Iterator[Triple]:
        return (_triple(row, f"row {number} of the dataset") for number, row in enumerate(self.dataset))


def _mixed(files: list[Iterator[Triple]], counts: list[int]) -> Iterator[Triple]:
    """The rows of all files, each file's spread evenly from the beginning to the end."""

    def placed(rows: Iterator[Triple], file: int) -> Iterator[tuple[float, int, Triple]]:
        return (((place + 0.5) / counts[file], file, row) for place, row in enumerate(rows))

    return (row for _, _, row in heapq.merge(*(placed(rows, file) for file, rows in enumerate(files))))


def _file_rows(path: str | Path) -> Iterator[Triple]:
    for number, line in _numbered_lines(path):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}, line {number}: not JSON ({error.msg}).") from None
        yield _triple(row, f"{path}, line {number}")


def check_file(path: str | Path) -> None:
    """See that a file is there, and that its first line is a triple."""
    if next(_file_rows(path), None) is None:
        raise InputError(f"{path}: there are no lines; a file of triples has at least one.")


def _numbered_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    if not str(path).endswith(".xz"):
        yield from read_lines(path)
        return
    try:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            yield from ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except (lzma.LZMAError, EOFError) as error:
        raise InputError(f"{path} is not a whole xz file ({error}); fetch or pack it again.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error.reason}); convert it first.") from error


def _triple(row: Any, where: str) -> Triple:
    if not isinstance(row, dict):
        raise InputError(f"{where}: not an object with the fields query, positive and negatives.")
    for field in ("query", "positive"):
        if not isinstance(row.get(field), str) or not row[field].strip():
            raise InputError(f"{where}: the field {field} has to be a text, and is {row.get(field)!r}.")
    negatives = row.get("negatives") or ([row["negative"]] if row.get("negative") else [])
    if not isinstance(negatives, list) or not all(isinstance(text, str) for text in negatives):
        raise InputError(f"{where}: the field negatives has to be a list of texts.")
    return Triple(row["query"], row["positive"], tuple(negatives))


def _rows_of_stream(dataset: Any) -> int:
    splits = getattr(dataset.info, "splits", None) or {}
    split = splits.get(str(dataset.split)) if dataset.split is not None else None
    if split is None or not split.num_examples:
        raise InputError("the streamed dataset does not know how many rows it has: say it with rows=.")
    return int(split.num_examples)
