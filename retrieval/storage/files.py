"""Read and write text files: strict UTF-8, gzip by name, and never a half-written file."""

import errno
import glob
import gzip
import os
import tempfile
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
"""prefix of a file that is still being written"""

# Errors from an open file do not name it; these numbers tell whether reading or writing failed.
_READ_ERRORS = (errno.EIO, errno.ESTALE)
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def open_text(path: str | Path) -> Iterator[TextIO]:
    """Open a text file for reading; one whose name ends in `.gz` is unpacked. Errors become an `InputError`.

    ```python
    with open_text("queries.tsv.gz") as file:
        first_line = file.readline()
    ```
    """
    with _open_bytes(path) as file:
        try:
            yield TextIOWrapper(file, encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8 text ({error.reason}); convert it first.") from error


def file_version(path: Path) -> dict[str, object]:
    """Size and times of a file, by which a change is noticed, also if the old size and time are restored.

    A program can set the time of the last change of the contents, but not that of the last change of the file itself.
    """
    status = path.stat()
    return {"size": status.st_size, "changed": [status.st_mtime_ns, status.st_ctime_ns]}


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of a text file, without line ends and blank lines.

    Lines are decoded one by one, so that an error names the line.

    ```python
    for number, line in read_lines("qrels.txt"):
        query_id, _, document_id, grade = line.split()
    ```
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


def is_text(value: object) -> bool:
    """Whether a value is a string that a file can have: JSON can write a lone surrogate, which UTF-8 cannot.

    >>> is_text("ü"), is_text("\\ud800"), is_text(7)
    (True, False, False)
    """
    return isinstance(value, str) and value.encode("utf-8", "replace").decode("utf-8") == value


def read_columns(
    path: str | Path, form: str, separator: str | None = None, comment: str = "", further: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, columns) of a text file whose lines have the columns that `form` names.

    Lines that begin with `comment` are skipped; with `further`, a line may have more columns.

    >>> with atomic_write("passages.tsv") as file:
    ...     _ = file.write("p1 d1\\n")
    >>> list(read_columns("passages.tsv", "passage document"))
    [(1, ['p1', 'd1'])]
    """
    count = len(form.split())
    for number, line in read_lines(path):
        if comment and line.lstrip().startswith(comment):
            continue
        columns = line.split(separator)
        if len(columns) < count or (len(columns) > count and not further):
            tabs = " separated by tabs" if separator == "\t" else ""
            raise InputError(
                f"{path}, line {number}: a line has {count} columns{tabs}, '{form}', and this one has {len(columns)}."
            )
        yield number, columns


@contextmanager
def atomic_write(path: str | Path, folder: Path | None = None) -> Iterator[TextIO]:
    """Write a text file that appears whole or not at all; packed if its name ends in `.gz`.

    Until it is complete, it is a temporary file beside `path`, or in another `folder` on the same file system.

    >>> with atomic_write("queries.txt") as file:
    ...     _ = file.write("1\\n2\\n")
    >>> list(read_lines("queries.txt"))
    [(1, '1'), (2, '2')]
    """
    with atomic_path(path, folder) as temporary, temporary.open("xb") as raw:
        if not _is_gzip(path):
            with TextIOWrapper(raw, encoding="utf-8", newline="\n") as text:
                yield text
        else:
            # Without a name and a time in the header, the same content gives the same bytes.
            with (
                gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
                TextIOWrapper(cast(BinaryIO, packed), encoding="utf-8", newline="\n") as text,
            ):
                yield text


@contextmanager
def atomic_path(path: str | Path, folder: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path; the file written there replaces `path` when the block ends without an error.

    The temporary path is beside `path`, or in another `folder` on the same file system. A failure to write is an
    `InputError`; errors of the block about other files are not changed.

    ```python
    with atomic_path("figure.png") as temporary:
        figure.savefig(temporary)
    ```
    """
    target = _target_of(path)
    # With the same suffix, because writers such as matplotlib choose the format by it.
    temporary = (folder or target.parent) / f"{TEMPORARY}{uuid.uuid4().hex}.{target.name[-100:]}"
    try:
        yield temporary
        # Synced before it is renamed: after a power cut, a file that exists is whole.
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
            f"{folder} cannot be written: {error.strerror}; check free space and permissions, and start again."
        ) from None


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove temporary files that a killed process left: all in a folder and below it, or those of one file in it.

    Only the process that holds the lock of the folder or the file may do this: others may be writing.
    """
    found = folder.rglob(f"{TEMPORARY}*") if name is None else folder.glob(f"{TEMPORARY}*.{glob.escape(name[-100:])}")
    for temporary in list(found):
        temporary.unlink(missing_ok=True)


def check_output(path: str | Path, option: str = "") -> Path:
    """Refuse a path to which no file can be written, before long work; returns the path with links followed.

    `option` is the command line's name of the path, such as `--output`, for the error.

    >>> check_output("missing/run.txt", "--output")
    Traceback (most recent call last):
    docparade.retrieval.errors.InputError: --output missing/run.txt cannot be written: ...
    """
    target = _target_of(path, option)
    _check_writable(target.parent, path, option)
    return target


def check_output_folder(folder: str | Path, option: str = "") -> None:
    """Refuse a folder that cannot be made or written to, before long work; `option` as in `check_output`.

    >>> check_output_folder("outputs/quickstart", "--output")
    """
    with _naming(folder, option):
        existing = Path(folder).resolve()
        while not existing.exists():
            existing = existing.parent
        is_folder = existing.is_dir()
    if not is_folder:
        raise InputError(f"{_named(folder, option)} cannot be made: {existing} is a file; name another folder.")
    _check_writable(existing, folder, option)


def _target_of(path: str | Path, option: str = "") -> Path:
    """The file that a path leads to: a regular one, or none yet in a folder that exists."""
    with _naming(path, option):
        target = Path(path).resolve()
        if target.exists() and not target.is_file():
            raise InputError(f"{_named(path, option)} is not a regular file; name a file to write to.")
        if not target.parent.is_dir():
            raise InputError(
                f"{_named(path, option)} cannot be written: the folder {target.parent} does not exist; make it first."
            )
    return target


def _check_writable(folder: Path, path: str | Path, option: str) -> None:
    with _naming(path, option):
        tempfile.TemporaryFile(dir=folder).close()


@contextmanager
def _naming(path: str | Path, option: str) -> Iterator[None]:
    """Turn what the file system says about an output into an `InputError`."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # a name that is too long, a forbidden folder, links in a circle
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{_named(path, option)} cannot be written: {reason}; name another place.") from error


def _named(path: str | Path, option: str) -> str:
    return f"{option} {path}".strip()


@contextmanager
def _open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    try:
        with gzip.open(path, "rb") if _is_gzip(path) else Path(path).open("rb") as file:
            yield cast(BinaryIO, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a complete gzip file ({error}); download or pack it again.") from error
    except OSError as error:
        if not _is_about(path, error, _READ_ERRORS):
            raise
        if isinstance(error, FileNotFoundError):
            raise InputError(f"{path} does not exist.") from error
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error


def _is_about(path: str | Path, error: OSError, nameless: tuple[int, ...]) -> bool:
    """Whether an error names this file, or names none and has one of the given numbers."""
    return error.errno in nameless if error.filename is None else str(error.filename) == str(path)


def _is_gzip(path: str | Path) -> bool:
    return str(path).endswith(".gz")
