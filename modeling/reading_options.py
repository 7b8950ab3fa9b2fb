"""`ReadingOptions`: how documents are read when a model ranks them, checked in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict

from .checks import check_flag, check_limit

if TYPE_CHECKING:
    from .documents import DocumentLike
    from .engine_kept import KeptVectors
    from .passages import EncodedDocument

EncodeDocuments = Callable[[Sequence["DocumentLike"]], list["EncodedDocument"]]
"""`DocumentProcessor.encode_documents`, or a function that returns its results without tokenizing."""


class ReadingArguments(TypedDict, total=False):
    """`ReadingOptions` as keyword arguments, for type checkers."""

    batch_tokens: int | None
    progress: bool | None
    keep_passages: int | None
    max_passages_per_query: int | None
    choose_by: KeptVectors | None
    vectors: KeptVectors | None
    encode_documents: EncodeDocuments | None


@dataclass(frozen=True)
class ReadingOptions:
    """How documents are read. `rank`, `rank_all`, `score`, `rerank` and the others take the fields as arguments.

    Example:
        ```python
        model.rank("why is the sky blue", documents, keep_passages=4)
        ```
    """

    batch_tokens: int | None = None
    """Tokens that go through the encoder at once; `None` suits the device."""
    progress: bool | None = None
    """Whether to show progress; `None` shows it where the work is long."""
    keep_passages: int | None = None
    """How many passages of a document the encoder reads at most: the first, and the most promising others. Faster, but
    not exact; `None` is all."""
    max_passages_per_query: int | None = None
    """How many passages of all documents of a query are read at most: the most promising ones, but first the best of
    each document. Documents that are not read at all are ranked below the others, the most promising first."""
    choose_by: KeptVectors | None = None
    """Passage vectors of these documents from any bi-encoder, by which passages are chosen in place of the query's
    words: the result of its `encode_documents`, or a `VectorCache`."""
    vectors: KeptVectors | None = None
    """For a bi-encoder: its own passage vectors of these documents; then only the query is read."""
    encode_documents: EncodeDocuments | None = None
    """In place of the processor's method, for documents that were tokenized before, such as a `TokenCache`'s."""

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "keep_passages", "max_passages_per_query"):
            check_limit(name, getattr(self, name))
        if self.progress is not None:
            check_flag("progress", self.progress)
        for name in ("choose_by", "vectors"):
            _check_vectors(name, getattr(self, name))
        chosen = [name for name in ("keep_passages", "max_passages_per_query") if getattr(self, name) is not None]
        if len(chosen) > 1:
            raise ValueError("keep_passages and max_passages_per_query both limit what is read: leave one of them out.")
        if self.vectors is not None and (chosen or self.choose_by is not None):
            name = chosen[0] if chosen else "choose_by"
            raise ValueError(f"{name} is for reading texts, and with vectors nothing is read: leave one of them out.")
        if self.choose_by is not None and not chosen:
            raise ValueError("choose_by chooses passages: say how many with keep_passages or max_passages_per_query.")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ReadingOptions:
        """The options given as keyword arguments; an unknown one is refused."""
        names = [field.name for field in fields(cls)]
        if unknown := sorted(options.keys() - set(names)):
            raise TypeError(f"{', '.join(unknown)}: no reading option; there are {', '.join(names)}.")
        return cls(**options)


def _check_vectors(name: str, vectors: Any) -> None:
    """Refuse an argument that is not kept vectors, such as a list."""
    if vectors is not None and not (hasattr(vectors, "find") and hasattr(vectors, "model")):
        raise TypeError(f"{name} is a {type(vectors).__name__}: give what encode_documents returned, or a VectorCache.")


READ_ALL = ReadingOptions()
"""Every passage of every document is read."""
