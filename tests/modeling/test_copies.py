"""Several copies of the code in one process: each checkpoint that is loaded with trust_remote_code brings its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from support.project import DOCUMENTS, QUERY, run_elsewhere

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification

# Takes step after step, and after each of them scores with every model that is there by then.
STEPS = """
import json, sys
from importlib import import_module
steps, folders, query, documents = json.load(sys.stdin)
pairs = [(query, document) for document in documents]
loaded, found = [], []

def load(step):
    kind, _, name = step.partition(" ")
    if kind == "import":
        import_module(name)
    elif kind == "AutoModel":
        from transformers import AutoModel
        model = AutoModel.from_pretrained(folders[name], trust_remote_code=True)
        loaded.append((name, model.score))
    else:
        from sentence_transformers import CrossEncoder
        model = CrossEncoder(folders[name], trust_remote_code=True)
        loaded.append((name, lambda pairs: model.predict(pairs).tolist()))

for step in steps:
    load(step)
    found += [(step, name, score(pairs)) for name, score in loaded]
print(json.dumps(found))
"""

ORDERS = [
    ["AutoModel maxp", "AutoModel parade", "import docparade", "AutoModel maxp"],
    ["import docparade", "AutoModel maxp", "AutoModel parade"],
    ["CrossEncoder maxp", "CrossEncoder parade", "AutoModel maxp", "import docparade"],
    ["AutoModel parade", "CrossEncoder maxp", "import docparade", "CrossEncoder parade"],
]


@pytest.mark.slow
@pytest.mark.parametrize("steps", ORDERS, ids="-".join)
def test_a_copy_alone_scores_as_beside_another(
    steps: list[str], tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    if any(step.startswith("CrossEncoder") for step in steps) and find_spec("sentence_transformers") is None:
        pytest.skip("sentence-transformers is not installed")
    models = {
        "maxp": tiny_ranker(MaxPForSequenceClassification, "max"),
        "parade": tiny_ranker(ParadeForSequenceClassification, "attn"),
    }
    for name, model in models.items():
        model.save_pretrained(tmp_path / name)
    folders = {name: str(tmp_path / name) for name in models}
    # A CrossEncoder takes texts alone.
    texts = [document if isinstance(document, str) else document["text"] for document in DOCUMENTS]
    found = json.loads(run_elsewhere(STEPS, [steps, folders, QUERY, texts], tmp_path))
    expected = {name: torch.tensor(model.score([(QUERY, text) for text in texts])) for name, model in models.items()}
    assert all(len(set(scores.tolist())) > 1 for scores in expected.values())
    assert len({(name, step) for step, name, _ in found}) >= len(steps) - 1
    for step, name, scores in found:
        torch.testing.assert_close(
            torch.tensor(scores), expected[name], rtol=1e-5, atol=1e-5, msg=f"{name} after {step}: {scores}"
        )


# What is new in a model that was loaded so has its first values, its processor may come from anywhere, and it saves in
# silence.
REMOTE = """
import json, sys
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoProcessor
folders, query, documents = json.load(sys.stdin)
pairs = [(query, document) for document in documents]
birch = AutoModel.from_pretrained(folders["maxp"], trust_remote_code=True, aggregation="birch")
config = AutoConfig.from_pretrained(folders["parade"], trust_remote_code=True, aggregation="transformer")
fresh = AutoModelForSequenceClassification.from_config(config, trust_remote_code=True)
model = AutoModel.from_pretrained(folders["maxp"], trust_remote_code=True)
scores = [model.score(pairs)]
model.processor = AutoProcessor.from_pretrained(folders["maxp"], trust_remote_code=True)
scores.append(model.score(pairs))
import docparade
model.processor = docparade.DocumentProcessor.from_pretrained(folders["maxp"])
scores.append(model.score(pairs))
model.save_pretrained(folders["again"])
largest = float(fresh.aggregator.cls_embedding.detach().abs().max())
print(json.dumps([birch.aggregator.rank_weights.tolist(), largest, scores]))
"""


@pytest.mark.slow
def test_a_copy_of_the_code_is_whole(
    tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tiny_ranker(MaxPForSequenceClassification, "max")
    model.save_pretrained(tmp_path / "maxp")
    tiny_ranker(ParadeForSequenceClassification, "attn").save_pretrained(tmp_path / "parade")
    folders = {name: str(tmp_path / name) for name in ("maxp", "parade", "again")}
    weights, largest, found = json.loads(run_elsewhere(REMOTE, [folders, QUERY, DOCUMENTS], tmp_path))
    assert weights == pytest.approx([1 / 3] * 3)
    assert 0 < largest < 1
    expected = pytest.approx(model.score([(QUERY, document) for document in DOCUMENTS]), abs=1e-5)
    assert found == [expected] * 3
    assert "does not contain the code" not in capfd.readouterr().err
