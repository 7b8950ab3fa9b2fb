"""Reading and writing text files: strict UTF-8, gzip by name, and never a half-written file."""

import errno
import glob
import gzip
import os
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from docparade.retrieval.errors import InputError

BYTE_ORDER_MARK = "\ufeff"
TEMPORARY = ".docparade-"
"""how the name of a file begins that is still being written"""

# Reading and writing an open file raises errors that name no file; by these it is known which of the two failed.
_READ_ERRORS = (errno.EIO, errno.ESTALE)
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def open_text(path: str | Path) -> Iterator[TextIO]:
    """Open a text file to read, unpacking it when its name ends in `.gz`; anything wrong becomes an `InputError`.

    >>> with open_text("queries.tsv.gz") as file:
    ...     first_line = file.readline()
    """
    with _open_bytes(path) as file:
        try:
            yield TextIOWrapper(file, encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8 text ({error.reason}); convert it first.") from error


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of a text file, without line ends and without blank lines.

    Lines are decoded one by one, so that a broken one is named by its number.

    >>> for number, line in read_lines("qrels.txt"):
    ...     query_id, _, document_id, grade = line.split()
    """
    with _open_bytes(path) as file:
        for number, raw in enumerate(file, start=1):
            try:
                line = raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path}, line {number}: not UTF-8 text ({error.reason}); convert it first."
                ) from error
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if line.strip():
                yield number, line


@contextmanager
def atomic_write(path: str | Path, folder: Path | None = None) -> Iterator[TextIO]:
    """Write a text file that appears whole or not at all; packed when its name ends in `.gz`.

    While it is written, it is a temporary file beside it, or in another `folder` of the same file system.

    >>> with atomic_write("run.txt") as file:
    ...     file.write("1 Q0 doc 1 0.5 tag")
    """
    with atomic_path(path, folder) as temporary, temporary.open("xb") as raw:
        if not _is_gzip(path):
            with TextIOWrapper(raw, encoding="utf-8", newline="\n") as text:
                yield text
        else:
            # No name and no time inside: the same content gives the same bytes.
            with (
                gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
                TextIOWrapper(cast(BinaryIO, packed), encoding="utf-8", newline="\n") as text,
            ):
                yield text


@contextmanager
def atomic_path(path: str | Path, folder: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path; what was written there takes the place of `path` when the block ends well.

    The temporary path is beside it, or in another `folder` of the same file system.

    Where that fails, it is an `InputError`; an error of the block about another file stays what it is.

    >>> with atomic_path("figure.png") as temporary:
    ...     figure.savefig(temporary)
    """
    target = check_output(path)
    # The suffix stays, because writers such as matplotlib choose the format by it.
    temporary = (folder or target.parent) / f"{TEMPORARY}{uuid.uuid4().hex}.{target.name[-100:]}"
    try:
        yield temporary
        # On the disk before it has its name: after a power cut, a file that is there is whole.
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    except OSError as error:
        if not _is_about(temporary, error, _WRITE_ERRORS):
            raise
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder, with those above it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written: {error.strerror}; see to its space and permissions, and start again."
        ) from None


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove temporary files that a killed process left: all in a folder and below it, or those of one file in it.

    Only the process that holds the folder's or the file's lock may do so: another one's file may be in the making.
    """
    found = folder.rglob(f"{TEMPORARY}*") if name is None else folder.glob(f"{TEMPORARY}*.{glob.escape(name[-100:])}")
    for temporary in list(found):
        temporary.unlink(missing_ok=True)


def check_output(path: str | Path) -> Path:
    """The file that a path leads to; a path that no file can be written to is an `InputError`, before any long work.

    >>> check_output("run.txt")
    """
    try:
        target = Path(path).resolve()
        if target.exists() and not target.is_file():
            raise InputError(f"{path} is not a regular file; name a file to write to.")
        if not target.parent.is_dir():
            raise InputError(f"{path} cannot be written: the folder {target.parent} does not exist; make it first.")
    except (OSError, RuntimeError) as error:  # a name that is too long, a forbidden folder, links in a circle
        raise InputError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.") from error
    return target


@contextmanager
def _open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    try:
        with gzip.open(path, "rb") if _is_gzip(path) else Path(path).open("rb") as file:
            yield cast(BinaryIO, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file ({error}); fetch or pack it again.") from error
    except OSError as error:
        if not _is_about(path, error, _READ_ERRORS):
            raise
        if isinstance(error, FileNotFoundError):
            raise InputError(f"{path} does not exist.") from error
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error


def _is_about(path: str | Path, error: OSError, nameless: tuple[int, ...]) -> bool:
    """Whether an error names this file, or names none and is one of those that come from using it."""
    return error.errno in nameless if error.filename is None else str(error.filename) == str(path)


def _is_gzip(path: str | Path) -> bool:
    return str(path).endswith(".gz")
