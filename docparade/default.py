"""The ranker that comes with docparade: `load_default` loads it, and commands use it where no model is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docparade.modeling import DocumentRanker

DEFAULT_RANKER = Path(__file__).parent / "default_ranker"
"""Its folder; the README.md in it is its model card."""


def load_default() -> DocumentRanker:
    """Load the ranker that comes with docparade. It needs no training and no download.

    Example:
        ```python
        model = docparade.load_default()
        model.rank("why is the sky blue", long_documents)
        ```
    """
    from docparade.reranking.loading import load_ranker

    return load_ranker(str(DEFAULT_RANKER))
