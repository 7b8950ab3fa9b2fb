"""How a `VectorCache` is made: in parts of some documents, which processes share and an interruption keeps."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from docparade.modeling import Document, DocumentRanker
from docparade.modeling.engine_vectors import encode_passages
from docparade.reranking.processes.process_group import get_rank_and_size, should_hide_bar
from docparade.retrieval.errors import InputError
from docparade.retrieval.progress import ProgressLines, show_progress
from docparade.retrieval.storage.arrays import Array, ArrayWriter
from docparade.retrieval.storage.files import atomic_path, make_folder
from docparade.retrieval.storage.string_table import StringTableWriter

from .document_lookup import DocumentLike, Documents, read_blocks
from .fingerprints import BATCH_DOCUMENTS, hash_document
from .vector_types import VectorType

if TYPE_CHECKING:
    from .earlier_vectors import EarlierVectors

Part = Mapping[str, Array]
"""Some documents: `ids`, `contents` (hashes), `counts` (of passages), `unread`, `empty`, and their passages' `spans`,
`vectors` and `scales`. With late interaction, a passage has several vectors, its own and those of its tokens:
`lengths`."""

_PART_ARRAYS = ("ids", "contents", "counts", "unread", "empty", "spans", "lengths", "vectors", "scales")
# Documents of a part with the vectors of tokens, which take some hundred times the space.
BATCH_DOCUMENTS_WITH_TOKENS = 32
BATCH_CHARACTERS_WITH_TOKENS = 1_000_000
"""Of these documents together, or of a longer one alone: some 450 MB of vectors are in memory then."""


@dataclass(frozen=True)
class Encoding:
    """What is encoded, and the folder of its finished parts."""

    model: DocumentRanker
    documents: Documents
    ids: Sequence[str] | None
    vector_type: VectorType
    parts: Path

    def prepare(self) -> None:
        """Make the folder; for the main process, before the others begin."""
        make_folder(self.parts)

    def write_share(self, earlier: EarlierVectors) -> int:
        """Write the parts of this process: every n-th one of n processes. Finished ones are used again.

        Args:
            earlier: The vectors that are copied.

        Returns:
            How many documents were copied.
        """
        rank, size = get_rank_and_size()
        if not self.parts.is_dir():
            raise InputError(
                f"process {rank} does not see {self.parts}, which process 0 made; set DOCPARADE_CACHE to a folder that "
                "all machines share."
            )
        copied = 0
        with self._bar() as bar:
            for number, block in enumerate(self._blocks()):
                if number % size == rank and not _is_part(self._path(number), list(block)):
                    copied += _write_part(self._path(number), self.model, block, self.vector_type, earlier)
                bar.update(len(block))
        return copied

    def read(self) -> Iterator[Part]:
        """All parts, in order, once all are written."""
        for number, _ in enumerate(self._blocks()):
            with np.load(self._path(number)) as part:
                yield {name: part[name] for name in _PART_ARRAYS}

    def _blocks(self) -> Iterator[dict[str, DocumentLike]]:
        if self.model.scores_by_vectors:
            yield from read_blocks(self.documents, self.ids, BATCH_DOCUMENTS)
            return
        for block in read_blocks(self.documents, self.ids, BATCH_DOCUMENTS_WITH_TOKENS):
            yield from _cut(block)

    def _path(self, number: int) -> Path:
        return self.parts / f"{number:08}.npz"

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.documents) if self.ids is None else len(self.ids)

    def _bar(self) -> tqdm | ProgressLines:
        return show_progress(total=len(self), desc="encoding", unit=" documents", hide=should_hide_bar(None))


def _cut(block: Mapping[str, DocumentLike]) -> Iterator[dict[str, DocumentLike]]:
    """Documents in groups of at most `BATCH_CHARACTERS_WITH_TOKENS`, or of one document."""
    group: dict[str, DocumentLike] = {}
    characters = 0
    for name, document in block.items():
        length = len(Document.of(document, f"document {name}").text)
        if group and characters + length > BATCH_CHARACTERS_WITH_TOKENS:
            yield group
            group, characters = {}, 0
        group[name] = document
        characters += length
    yield group


def _is_part(path: Path, ids: list[str]) -> bool:
    """Whether a part is complete, undamaged, and of these documents."""
    try:
        with np.load(path) as part:
            # Reading an array checks its checksum.
            arrays = {name: part[name] for name in _PART_ARRAYS}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error):
        return False
    return list(arrays["ids"]) == ids


def _write_part(
    path: Path,
    model: DocumentRanker,
    block: Mapping[str, DocumentLike],
    vector_type: VectorType,
    earlier: EarlierVectors,
) -> int:
    """Write the vectors of documents, copied where they are kept already. Returns how many documents were copied."""
    documents = {name: Document.of(document, f"document {name}") for name, document in block.items()}
    copied = earlier.take({name: content_number(document) for name, document in documents.items()})
    left = {name: document for name, document in documents.items() if name not in copied}
    found = {**copied, **_encode(model, left, vector_type)}
    part: Part = {array: np.concatenate([found[name][array] for name in block]) for array in _PART_ARRAYS}
    with atomic_path(path) as temporary:
        np.savez(temporary, allow_pickle=False, **part)
    return len(copied)


def _encode(model: DocumentRanker, documents: Mapping[str, Document], vector_type: VectorType) -> dict[str, Part]:
    """Encode documents together; each is a part of its own."""
    parts: dict[str, Part] = {}
    encoded = encode_passages(model, list(documents.values())) if documents else []
    for (name, document), one in zip(documents.items(), encoded, strict=True):
        rows, lengths = flatten_vectors(one.vectors.float().cpu())
        vectors, scales = compress(rows.numpy(), vector_type)
        parts[name] = {
            "ids": np.array([name]),
            "contents": np.array([content_number(document)], dtype=np.uint64),
            "counts": np.array([len(one.vectors)], dtype=np.int64),
            "unread": np.array([one.unread], dtype=np.int32),
            "empty": np.array([one.empty]),
            "spans": np.array(one.spans, dtype=np.int32).reshape(-1, 2),
            "lengths": lengths.numpy(),
            "vectors": vectors,
            "scales": scales,
        }
    return parts


def flatten_vectors(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The vectors of passages without padding, one after another, and how many each passage has."""
    if vectors.dim() == 2:
        return vectors, torch.ones(len(vectors), dtype=torch.int64)
    # A passage's own vector is never padding, even if it is zero.
    real = vectors.any(dim=-1)
    real[:, 0] = True
    return vectors[real], real.sum(dim=1)


def content_number(document: Document) -> int:
    """A 64-bit hash of a document's contents, by which a document that has changed is found."""
    return int.from_bytes(hash_document(document)[:8], "little")


def compress(vectors: Array, vector_type: VectorType) -> tuple[Array, Array]:
    """Vectors as they are stored, and the scale of each; no scales for floats."""
    if vector_type != "int8":
        return vectors.astype(vector_type), np.zeros(0, np.float32)
    scales = np.abs(vectors).max(axis=1) / 127
    scales[scales == 0] = 1
    return np.round(vectors / scales[:, None]).astype(np.int8), scales.astype(np.float32)


def join_parts(folder: Path, parts: Iterable[Part], vector_type: VectorType) -> None:
    """Write the arrays of the cache from its parts."""
    width, end = 0, 0
    with ExitStack() as files:

        def array(name: str, dtype: type | str) -> ArrayWriter:
            return files.enter_context(ArrayWriter(folder / f"{name}.npy", dtype))

        ids = files.enter_context(StringTableWriter(folder, "document"))
        ends, contents = array("passage_ends", np.int64), array("contents", np.uint64)
        unread, empty = array("unread", np.int32), array("empty", np.bool_)
        vectors, spans, lengths = array("vectors", vector_type), array("spans", np.int32), array("lengths", np.int32)
        scales = array("scales", np.float32) if vector_type == "int8" else None
        for part in parts:
            width = part["vectors"].shape[1]
            vectors.extend(part["vectors"].reshape(-1))
            spans.extend(part["spans"].reshape(-1))
            lengths.extend(part["lengths"])
            contents.extend(part["contents"])
            unread.extend(part["unread"])
            empty.extend(part["empty"])
            if scales is not None:
                scales.extend(part["scales"])
            for name in part["ids"]:
                ids.append(str(name))
            ends.extend(end + np.cumsum(part["counts"]))
            end += int(part["counts"].sum())
    np.save(folder / "width.npy", width)
