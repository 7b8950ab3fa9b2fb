"""PDF files from strangers are read in a process of their own, with limits of time, memory and pages.

A small PDF file can keep its reader busy for hours, or ask for all memory. That then happens to a process that is
ended, and not to the page that everybody uses.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from docparade.retrieval.errors import InputError

from .pdf_file import read_pdf_text

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PdfLimits:
    """What reading a PDF file may take."""

    seconds: float = 20
    memory: int = 2**30
    """Bytes of address space, on Linux; macOS and Windows have no such limit."""
    pages: int = 2_000


def read_pdf_in_process(path: Path, limits: PdfLimits, max_characters: int | None = None) -> tuple[str, str]:
    """The title and the text of a PDF file; one that cannot be read within the limits is an `InputError`.

    Example:
        ```python
        title, text = read_pdf_in_process(Path("report.pdf"), PdfLimits(seconds=5))
        ```
    """
    task = json.dumps([str(path), max_characters, limits.seconds, limits.memory, limits.pages])
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=task.encode(),
            capture_output=True,
            timeout=limits.seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{path.name} takes too long to read; use its text instead.") from None
    if done.returncode:
        logger.error(f"The process that reads PDF files failed.\n{done.stderr.decode(errors='replace')[-4000:]}")
        raise InputError(f"{path.name} cannot be read as PDF; it may be damaged.")
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise InputError(answer["error"])
    return answer["title"], answer["text"]


def _limit(seconds: float, memory: int) -> None:
    """Set limits to this process, which also hold when the one that started it has ended."""
    try:
        import resource
    except ImportError:  # on Windows; the time is limited from outside, too
        return
    processor_seconds = int(seconds) + 10
    resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds))
    with suppress(ValueError, OSError):  # on macOS
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _answer(path: Path, max_characters: int | None, max_pages: int) -> dict[str, str]:
    """What is said about a file: its title and text, or what is wrong with it."""
    try:
        title, text = read_pdf_text(path, max_characters, max_pages)
    except InputError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": f"{path.name} takes too much memory to read; use its text instead."}
    return {"title": title, "text": text}


def _main() -> None:
    path, max_characters, seconds, memory, pages = json.load(sys.stdin)
    _limit(seconds, memory)
    with redirect_stdout(sys.stderr):  # whatever a library prints is no answer
        answer = _answer(Path(path), max_characters, pages)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    _main()
