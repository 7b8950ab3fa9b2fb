"""The text of PDF files. Without torch, so that a process with little memory can read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docparade.retrieval.errors import InputError


def read_pdf_text(path: Path, max_characters: int | None = None, max_pages: int | None = None) -> tuple[str, str]:
    """The title and the text of a PDF file; what cannot be read is an `InputError`.

    Args:
        path: The file.
        max_characters: No further pages are read once there are more characters than this.
        max_pages: A file with more pages is refused.
    """
    try:
        from pypdf import PdfReader
    except ImportError:
        raise InputError(f"{path.name}: PDF files are read with pypdf; install it with: pip install pypdf.") from None

    try:
        reader = PdfReader(path)
        # Many files are encrypted with an empty password, and open in every viewer.
        if reader.is_encrypted and not reader.decrypt(""):
            raise InputError(f"{path.name} is encrypted; save a copy without a password.")
        if max_pages is not None and len(reader.pages) > max_pages:
            raise InputError(f"{path.name} has {len(reader.pages):,} pages; {max_pages:,} is the limit.")
        text = _join_pages(reader, max_characters)
        title = str((reader.metadata and reader.metadata.title) or "").strip()
    except (InputError, MemoryError):
        raise
    except Exception as error:  # pypdf raises exceptions of many kinds on damaged files
        if "crypt" in f"{type(error).__name__} {error}".lower():
            raise InputError(f"{path.name} is encrypted; save a copy without a password.") from error
        raise InputError(f"{path.name} cannot be read as PDF; it may be damaged.") from error
    if not text.strip():
        raise InputError(f"{path.name} has no text, only images; a copy with recognized text can be read.")
    return title, text


def _join_pages(reader: Any, max_characters: int | None) -> str:
    pages: list[str] = []
    for page in reader.pages:
        pages.append(page.extract_text())
        if max_characters is not None and sum(map(len, pages)) > max_characters:
            break
    return "\n\n".join(pages)
