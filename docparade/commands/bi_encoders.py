"""Loading a bi-encoder whose vectors a command keeps or searches."""

from typing import TYPE_CHECKING, Any

from docparade.retrieval.errors import InputError

if TYPE_CHECKING:
    from docparade.modeling import DocumentRanker


def load_bi_encoder(source: str, option: str, **options: Any) -> "DocumentRanker":
    """Load a bi-encoder onto the device of this process; a cross-encoder is refused.

    Args:
        source: A folder or a Hub id.
        option: The option that names it, for errors.
        **options: Arguments of `from_pretrained`.

    Example:
        ```python
        ranker = load_bi_encoder("sentence-transformers/all-MiniLM-L6-v2", "--model")
        ```
    """
    from docparade.reranking.loading import load_ranker
    from docparade.reranking.processes.process_group import join_process_group

    device = join_process_group().device
    ranker = load_ranker(source, option, **options)
    if ranker.vector_head is None:
        raise InputError(f"{option} {source} is a cross-encoder, which has no vectors; name a bi-encoder.")
    return ranker.to(device)
