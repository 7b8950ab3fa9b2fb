"""A small collection, a tiny recipe for it, and the commands that run recipes."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from docparade import cli
from support.project import WORDS

QUERIES = 9
# What has to be the same, byte for byte, however often an experiment was interrupted.
RESULTS = (
    *("runs/*", "measures.*", "model/*.safetensors", "model/measured.json", "resolved.yaml", "folds.json"),
    *("fold-*/runs/*", "fold-*/measures.*"),
)


@contextmanager
def recipe_folder(folder: Path, recipe: Mapping[str, Any]) -> Iterator[Path]:
    """Work in a folder with the collection `small` and the recipe `tiny.yaml`; what is cached stays in it."""
    make_collection(folder / "small")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(dict(recipe)), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCPARADE_CACHE", str(folder / "cache"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.chdir(folder)
        yield folder


def make_collection(folder: Path) -> None:
    """Nine queries of two words, and thirty documents that hold some of these words; most of those are relevant."""
    folder.mkdir()
    draw = random.Random(0)
    terms = draw.sample([word for word in WORDS if word.isalpha() and len(word) > 5], QUERIES)
    documents, judgments = [], []
    for number in range(30):
        held = draw.sample(terms, 3)
        text = draw.choices(WORDS, k=20) + held + draw.choices(WORDS, k=20)
        documents.append({"doc_id": f"d{number}", "text": " ".join(text)})
        judgments += [f"q{terms.index(term)} 0 d{number} 1" for term in held if draw.random() < 0.7]
    (folder / "docs.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    (folder / "queries.tsv").write_text("".join(f"q{i}\t{t} {draw.choice(terms)}\n" for i, t in enumerate(terms)))
    (folder / "qrels.txt").write_text("\n".join(judgments) + "\n")


def tiny_recipe(encoder: str | Path, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A recipe with folds, for the collection in the folder `small`, with some values changed."""
    recipe = {
        "name": "tiny",
        "model": {
            "encoder": str(encoder),
            "family": "maxp",
            "aggregation": "max",
            "window": 12,
            "stride": 8,
            "max_passages": 5,
            "max_length": 32,
            "max_query_tokens": 16,
        },
        "data": {"name": "small", "collection": "small", "folds": {"count": 3}},
        "training": {
            "num_train_epochs": 3,
            "pairs_per_epoch": 12,
            "batch_size": 4,
            "learning_rate": "1e-3",
            "measure": "nDCG@5",
            "rerank_depth": 5,
        },
        "rerank": {"depth": 8},
        "measures": "nDCG@5 AP@100",
    }
    return updated(recipe, changes or {})


def updated(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested content with some values changed, key by key."""
    nested = {k: updated(content[k], v) for k, v in changes.items() if isinstance(v, Mapping) and k in content}
    return {**content, **changes, **nested}


def read_files(folder: Path, *patterns: str) -> dict[str, bytes]:
    """The files of a folder that fit one of the patterns, by their path in it."""
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    assert found, f"{folder} has no {patterns}"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(found)}


def docparade(*words: str) -> tuple[int, str, str]:
    """Run the command line's own `main` in the current folder; gives its exit code, standard output and error."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["docparade", *words])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
    return int(exit_.value.code or 0), out.getvalue(), err.getvalue()


def succeed(*words: str) -> str:
    """The standard output of a command that succeeds."""
    code, out, err = docparade(*words)
    assert code == 0, err
    return out


def fail(*words: str) -> str:
    """The one sentence with which a command refuses its input."""
    code, _, err = docparade(*words)
    assert code == 2, err
    lines = [line for line in err.splitlines() if line.startswith("docparade: ")]
    assert len(lines) == 1
    return lines[0]
