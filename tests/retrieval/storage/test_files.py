"""A file that exists is whole, and whatever is wrong with one is said in one sentence."""

import errno
import gzip
import resource
import stat
from pathlib import Path

import pytest

from docparade.retrieval.collections.catalog import load_collection
from docparade.retrieval.errors import InputError
from docparade.retrieval.storage.files import (
    atomic_path,
    atomic_write,
    check_output,
    check_output_folder,
    open_text,
    read_columns,
    read_lines,
)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    with atomic_write(tmp_path / name) as file:
        file.write("eins\nzwei ü\n")
    with open_text(tmp_path / name) as file:
        assert file.read() == "eins\nzwei ü\n"
    assert list(read_lines(tmp_path / name)) == [(1, "eins"), (2, "zwei ü")]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_gzip_is_real_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        with atomic_write(tmp_path / name) as file:
            file.write("text\n")
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"text\n"
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert (tmp_path / "a.gz").read_bytes()[4:8] == bytes(4)  # no time in the header


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_failed_write_leaves_what_was_there(tmp_path: Path, name: str) -> None:
    with atomic_write(tmp_path / name) as file:
        file.write("old\n")
    with pytest.raises(RuntimeError), atomic_write(tmp_path / name) as file:
        file.write("half of the new" * 100_000)
        raise RuntimeError
    with open_text(tmp_path / name) as file:
        assert file.read() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").write_text("", encoding="utf-8")
    with atomic_write(tmp_path / "ours") as file:
        file.write("")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


def test_a_link_keeps_pointing(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with atomic_write(tmp_path / "link") as file:
        file.write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text(encoding="utf-8") == "new"


@pytest.mark.parametrize("path", ["/dev/null", "."])
def test_only_regular_files_are_replaced(path: str) -> None:
    with pytest.raises(InputError, match="not a regular file"), atomic_path(path):
        pass
    assert Path(path).exists()


def test_a_name_that_is_too_long_is_one_sentence() -> None:
    name = "a" * 300
    with pytest.raises(InputError, match="written: File name too long"), atomic_write(name):
        pass
    with pytest.raises(InputError, match="read: File name too long"), open_text(name):
        pass
    with pytest.raises(InputError, match="opened: File name too long"):
        load_collection(name)


def test_a_link_to_itself_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match="loop"), atomic_write(tmp_path / "loop"):
        pass


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere does not exist"), atomic_write(tmp_path / "nowhere" / "f"):
        pass


def test_an_output_is_checked_without_leaving_anything(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    assert check_output(tmp_path / "new") == tmp_path / "new"
    assert check_output(tmp_path / "link") == tmp_path / "old"
    check_output_folder(tmp_path / "a" / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "old"]
    assert (tmp_path / "old").read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("nowhere/f", "--output nowhere/f cannot be written: the folder {here}/nowhere does not exist; make it first."),
        (".", "--output . is not a regular file; name a file to write to."),
        ("/proc/f", "--output /proc/f cannot be written: No such file or directory; name another place."),
        ("loop", "--output loop cannot be written: Symlink loop from '{here}/loop'; name another place."),
        ("x" * 300, f"--output {'x' * 300} cannot be written: File name too long; name another place."),
    ],
)
def test_an_output_that_cannot_be_written_is_named(
    path: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError) as caught:
        check_output(path, "--output")
    assert str(caught.value) == sentence.format(here=tmp_path)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("file/below", "--output file/below cannot be made: {here}/file is a file; name another folder."),
        ("/proc/new", "--output /proc/new cannot be written: No such file or directory; name another place."),
        ("x" * 300, f"--output {'x' * 300} cannot be written: File name too long; name another place."),
    ],
)
def test_a_folder_that_cannot_be_written_is_named(
    path: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        check_output_folder(path, "--output")
    assert str(caught.value) == sentence.format(here=tmp_path)


def test_columns_are_counted(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a  b\n\na\tb c\n", encoding="utf-8")
    lines = read_columns(tmp_path / "f", "passage document")
    assert next(lines) == (1, ["a", "b"])
    with pytest.raises(InputError, match=r"f, line 3: .*2 columns, 'passage document', .*3\.$"):
        next(lines)
    with pytest.raises(InputError, match=r"line 1: .*2 columns separated by tabs, .*1\.$"):
        list(read_columns(tmp_path / "f", "passage document", separator="\t"))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_file_that_cannot_grow_is_named(tmp_path: Path, name: str) -> None:
    """A limit on the size of files stands for a full disk: such errors name no file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        too_large = pytest.raises(InputError, match=rf"{name} .*File too large")
        with too_large, atomic_write(tmp_path / name) as file:
            file.writelines(f"{number * 7919}\n" for number in range(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_file_that_cannot_be_made_or_moved_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    named = "f cannot be written: No such file"
    with pytest.raises(InputError, match=named), atomic_path(tmp_path / "folder" / "f") as temporary:
        (tmp_path / "folder").rmdir()
        temporary.write_text("", encoding="utf-8")
    with pytest.raises(InputError, match=named), atomic_path(tmp_path / "f"):
        pass


OTHER_ERRORS = {
    "another file": FileNotFoundError(errno.ENOENT, "No such file or directory", "other.txt"),
    "no file": ConnectionError("the server closed the connection"),
}


@pytest.mark.parametrize("error", OTHER_ERRORS.values(), ids=OTHER_ERRORS.keys())
def test_an_error_about_something_else_stays_what_it_is(tmp_path: Path, error: OSError) -> None:
    (tmp_path / "old").write_text("text", encoding="utf-8")
    for use in (atomic_path, atomic_write, open_text):
        with pytest.raises(type(error)) as caught, use(tmp_path / "old"):
            raise error
        assert caught.value is error
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_full_disk_is_not_blamed_on_the_file_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("text", encoding="utf-8")
    with pytest.raises(OSError, match="No space left"), open_text(tmp_path / "old"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbf1 2\r\n\r\n3\r\n")
    assert list(read_lines(tmp_path / "f")) == [(1, "1 2"), (3, "3")]
    with open_text(tmp_path / "f") as file:
        assert file.readline() == "1 2\n"


def test_broken_text_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"good\nbad \xff\n")
    with pytest.raises(InputError, match="f, line 2: not UTF-8"):
        list(read_lines(tmp_path / "f"))
    with pytest.raises(InputError, match="not UTF-8"), open_text(tmp_path / "f") as file:
        file.read()


def test_broken_gzip_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"line\n" * 10_000)
    (tmp_path / "short.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "not.gz").write_bytes(b"plain text")
    for name in ("short.gz", "not.gz"):
        with pytest.raises(InputError, match=rf"{name} .*gzip"):
            list(read_lines(tmp_path / name))


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing does not exist"):
        list(read_lines(tmp_path / "nothing"))
    with pytest.raises(InputError, match="cannot be read"):
        list(read_lines(tmp_path))
