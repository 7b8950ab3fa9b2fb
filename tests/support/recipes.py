"""A small collection, and the commands that run recipes on it."""

from __future__ import annotations

import json
import random
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from docparade import cli
from support.project import WORDS

QUERIES = 9


def make_collection(folder: Path) -> None:
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


def tiny_recipe(encoder: str | Path) -> dict[str, Any]:
    """A recipe with folds, for the collection in the folder `small`."""
    return {
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
            "disable_tqdm": True,
        },
        "rerank": {"depth": 8},
        "measures": "nDCG@5 AP@100",
    }


def docparade(*words: str) -> tuple[int, str, str]:
    """The command line's own `main`, in the folder of the world: exit code, what it printed, what it noted."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["docparade", *words])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
    return int(exit_.value.code or 0), out.getvalue(), err.getvalue()


def succeed(*words: str) -> str:
    code, out, err = docparade(*words)
    assert code == 0, err
    return out


def fail(*words: str) -> str:
    """The one sentence of a mistake."""
    code, _, err = docparade(*words)
    assert code == 2, err
    lines = [line for line in err.splitlines() if line.startswith("docparade: ")]
    assert len(lines) == 1
    return lines[0]
