"""The contents of a model's files: whether they fit the files' names, and every text that can be read in them."""

from __future__ import annotations

import io
import json
import pickletools
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from docparade.retrieval.errors import InputError

# How files begin that are not texts. A vocabulary is one of SentencePiece, or lines of a token and its number.
BINARY = {
    ".safetensors": rb"........\{",
    ".model": rb"\n|[\w+/=]+ \d+\s",
    ".png": rb"\x89PNG\r\n\x1a\n",
    ".jpg": rb"\xff\xd8\xff",
    ".webp": rb"RIFF....WEBP",
}
TEXTS = re.compile(rb"[\x20-\x7e\x80-\xff]{4,}")
# Among billions of weights, shorter texts would be found by chance.
LONG_TEXTS = re.compile(rb"[\x20-\x7e]{24,}")
IS_LETTER = bytes(0x20 <= byte < 0x7F for byte in range(256))
PIECE, OVERLAP = 1 << 24, 1 << 12
LONGEST_TEXT = 1 << 24
"""Bytes of a compressed text in an image."""
IMPORTS = re.compile(r": \S+ +(?:GLOBAL|STACK_GLOBAL|INST|EXT[124])\b")


def is_text(path: Path) -> bool:
    """Whether a published file is a text, by its name."""
    return path.suffix not in BINARY


def holds_pickle(path: Path) -> bool:
    """Whether a file, whatever its name, can be loaded as a pickle: a bare one, or a zip archive, as of torch."""
    with path.open("rb") as file:
        start = file.read(9)
        if path.suffix == ".safetensors" and _has_mark(path, start):
            return False  # it begins with a length, whose bytes can be those of a pickle
        # From version 2 on, a pickle says so at its start; an older one is plain text.
        return bool(re.match(rb"\x80[\x02-\x05]", start)) or zipfile.is_zipfile(file) or _imports(file)


def _imports(file: io.BufferedReader) -> bool:
    """Whether a file without a pickle's mark is still a pickle that imports something."""
    file.seek(0)
    shown = io.StringIO()
    try:
        pickletools.dis(file, shown)
    except ValueError:  # texts end here, most of them at the first letter
        return False
    return bool(IMPORTS.search(shown.getvalue()))


def check_kind(name: str, path: Path) -> None:
    """Refuse a file that does not begin as its name says."""
    if is_text(path):
        return
    with path.open("rb") as file:
        if not _has_mark(path, file.read(1024)):
            raise InputError(f"{name} does not have the content of a {path.suffix} file; write it again, or remove it.")


def _has_mark(path: Path, start: bytes) -> bool:
    return re.match(BINARY[path.suffix], start, re.DOTALL) is not None


def decode_text(name: str, path: Path) -> str:
    """The text of a file, with letters in place of JSON's codes for them."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InputError(f"{name} is not a text in UTF-8; write it again as one, or remove it.")
    if path.suffix != ".json":
        return text
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda code: chr(int(code[1], 16)), text).replace(r"\/", "/")


def read_header(name: str, path: Path) -> str:
    """The names of a safetensors file's tensors and its metadata."""
    try:
        with safe_open(path, "pt") as file:
            return json.dumps([list(file.keys()), file.metadata() or {}], ensure_ascii=False)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{name} is damaged or incomplete ({error}); save the model again.") from None


def find_texts(path: Path) -> Iterator[str]:
    """The texts among the other bytes of a file. Weights are read piece by piece."""
    if path.suffix == ".safetensors":
        yield from _find_long_texts(path)
        return
    content = path.read_bytes()
    for each in (content, *(_read_png(path.name, content) if path.suffix == ".png" else ())):
        yield _join(TEXTS, each)
        yield _join(TEXTS, each.replace(b"\0", b""))  # UTF-16, in which Windows and cameras write


def _find_long_texts(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        before = b""
        while piece := file.read(PIECE):
            piece = before + piece
            # Most pieces have no long text, which this test shows faster.
            if b"\1" * 24 in piece.translate(IS_LETTER):
                yield _join(LONG_TEXTS, piece)
            before = piece[-OVERLAP:]


def _join(texts: re.Pattern[bytes], content: bytes) -> str:
    """The texts, a line each, and again without their first letter, which can be the byte of a text's length."""
    found = (each.decode("utf-8", "replace") for each in texts.findall(content))
    return "\n".join(f"{text}\n{text[1:]}" for text in found)


def _read_png(name: str, image: bytes) -> Iterator[bytes]:
    """The texts of a PNG image, each by itself; most of them are compressed."""
    position = 8
    while position + 8 <= len(image):
        length, kind = int.from_bytes(image[position : position + 4], "big"), image[position + 4 : position + 8]
        chunk = image[position + 8 : position + 8 + length]
        _, _, text = chunk.partition(b"\0")
        if kind in (b"tEXt", b"eXIf"):
            yield chunk
        elif kind in (b"zTXt", b"iCCP"):
            yield _inflate(name, text[1:])
        elif kind == b"iTXt":  # before the text are two numbers, a language, and its name in that language
            last = text[2:].split(b"\0", 2)[-1]
            yield _inflate(name, last) if text[:1] == b"\1" else last
        position += length + 12


def _inflate(name: str, text: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(text, LONGEST_TEXT)
    except zlib.error:  # damaged: nobody can read it
        return b""
    if inflater.unconsumed_tail:
        raise InputError(f"{name}: a text in it is longer than {LONGEST_TEXT:,} bytes; make the image without it.")
    return inflated
