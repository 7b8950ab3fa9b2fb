"""Checkpoints: loaded without docparade, saved again, refused when damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.project import DOCUMENTS, FAMILIES, PROJECT, QUERY, run_elsewhere
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification

# Runs where docparade cannot be imported. Loads, scores, saves again, and loads that with every Auto class.
WITHOUT_DOCPARADE = """
import json, sys
sys.modules["docparade"] = None  # whoever imports it gets an ImportError
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoProcessor, pipeline
query, documents, first, second, third = json.load(sys.stdin)
found = []
model = AutoModel.from_pretrained(first, trust_remote_code=True)
found.append(model.score([(query, document) for document in documents]))
model.save_pretrained(second)
model = AutoModelForSequenceClassification.from_pretrained(second, trust_remote_code=True)
found.append(model.score([(query, document) for document in documents]))
model.save_pretrained(third)
assert AutoConfig.from_pretrained(third, trust_remote_code=True).model_type == model.config.model_type
assert AutoProcessor.from_pretrained(third, trust_remote_code=True).window == model.processor.window
ranker = pipeline("text-ranking", model=third, trust_remote_code=True)
ranking = sorted(ranker({"query": query, "documents": documents}), key=lambda ranked: ranked["index"])
found.append([ranked["score"] for ranked in ranking])
assert type(model).__module__.startswith("transformers_modules")
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("family, aggregation", [FAMILIES[number] for number in (5, 11, 13)])
def test_remote_code_equals_the_package_and_survives_saving(
    family: type[DocumentRanker], aggregation: str, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    model = tiny_ranker(family, aggregation)
    folders = [str(tmp_path / name) for name in ("first", "second", "third")]
    model.save_pretrained(folders[0])
    cache = tmp_path / "cache"
    cache.mkdir()
    found = json.loads(run_elsewhere(WITHOUT_DOCPARADE, [QUERY, DOCUMENTS, *folders], cache))
    ours = torch.tensor(model.score([(QUERY, document) for document in DOCUMENTS]))
    for scores in found:
        torch.testing.assert_close(torch.tensor(scores), ours, rtol=1e-5, atol=1e-5)
    # Every file of the code is still there: also those that the model itself does not need.
    assert {path.name for path in Path(folders[0]).iterdir()} == {path.name for path in Path(folders[2]).iterdir()}
    for name in ("config.json", "processor_config.json", "modules.json"):
        assert json.loads((Path(folders[0]) / name).read_text()) == json.loads((Path(folders[2]) / name).read_text())


def test_a_checkpoint_holds_all_its_code(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    tiny_ranker(ParadeForSequenceClassification, "max").save_pretrained(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"model.safetensors", "config.json", "processor_config.json", "tokenizer.json", "modules.json"} <= names
    # All files of the room but the other families', and what registers the installed package.
    code = {path.name for path in (PROJECT / "modeling").glob("*.py")}
    assert {name for name in names if name.endswith(".py")} == code - {
        "__init__.py",
        "registration.py",
        "modeling_cedr.py",
        "modeling_maxp.py",
    }
    auto_map = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert auto_map == {
        "AutoConfig": "configuration_ranker.ParadeConfig",
        "AutoModel": "modeling_parade.ParadeForSequenceClassification",
        "AutoModelForSequenceClassification": "modeling_parade.ParadeForSequenceClassification",
    }


def test_the_package_is_preferred_to_the_checkpoints_code(
    tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(tmp_path)
    (tmp_path / "modeling_maxp.py").write_text("raise SystemExit('the code of a checkpoint was run')")
    for trust in (None, False, True):
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path, trust_remote_code=trust)
        assert type(model) is MaxPForSequenceClassification


# --- Damage ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> Path:
    tiny_ranker(ParadeForSequenceClassification, "attn").save_pretrained(tmp_path)
    return tmp_path


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_missing_weights(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(OSError, match=r"model\.safetensors"):
        AutoModel.from_pretrained(checkpoint)


def test_missing_tensors(checkpoint: Path) -> None:
    """transformers would fill them in at random."""
    from safetensors.torch import load_file, save_file

    weights = load_file(checkpoint / "model.safetensors")
    del weights["aggregator.attention.weight"]
    save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks 1 weights.*aggregator\.attention\.weight"):
        AutoModel.from_pretrained(checkpoint)


def test_truncated_weights(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(OSError, match=rf"{path} is damaged"):
        AutoModel.from_pretrained(checkpoint)


def test_pickled_weights_alone(checkpoint: Path) -> None:
    from safetensors.torch import load_file

    torch.save(load_file(checkpoint / "model.safetensors"), checkpoint / "pytorch_model.bin")
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(OSError, match=r"model\.safetensors"):
        AutoModel.from_pretrained(checkpoint)
    with pytest.raises(ValueError, match="unpickle"):
        AutoModel.from_pretrained(checkpoint, use_safetensors=False)


def test_wrong_aggregation(checkpoint: Path) -> None:
    edit_config(checkpoint, aggregation="attention")
    with pytest.raises(ValueError, match=r"aggregation is 'attention'.*attn"):
        AutoModel.from_pretrained(checkpoint)


def test_another_aggregation_than_the_weights_have(checkpoint: Path) -> None:
    edit_config(checkpoint, aggregation="transformer")
    with pytest.raises(ValueError, match=r"lacks \d+ weights"):
        AutoModel.from_pretrained(checkpoint)


def test_unknown_encoder(checkpoint: Path) -> None:
    encoder = {**AutoConfig.from_pretrained(checkpoint).encoder_config.to_dict(), "model_type": "bort"}
    edit_config(checkpoint, encoder_config=encoder)
    with pytest.raises(ValueError, match="model_type 'bort'"):
        AutoModel.from_pretrained(checkpoint)


def test_broken_json(checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text("{")
    with pytest.raises(OSError, match=r"config\.json"):
        AutoModel.from_pretrained(checkpoint)


def test_no_processor(checkpoint: Path) -> None:
    (checkpoint / "processor_config.json").unlink()
    model = AutoModel.from_pretrained(checkpoint)
    with pytest.raises(ValueError, match="no processor"):
        model.rank("query", ["document"])


def test_not_a_ranker(encoder_folder: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"'bert'.*from_encoder"):
        ParadeForSequenceClassification.from_pretrained(encoder_folder("bert"))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        AutoModel.from_pretrained(tmp_path / "nowhere")


def test_saving_again_leaves_nothing_of_the_old_behind(checkpoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint, copy, ignore=shutil.ignore_patterns("copy"))
    AutoModel.from_pretrained(copy).save_pretrained(copy)
    assert {path.name for path in copy.iterdir()} == {p.name for p in checkpoint.iterdir()} - {"copy"}


# --- Code from outside -----------------------------------------------------------------------------------------------


TOKENIZER_WITH_CODE = {"auto_map": {"AutoTokenizer": [None, "evil.Evil"]}, "tokenizer_class": "Evil"}
MODEL_WITH_CODE = {"auto_map": {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}, "model_type": "evil"}
BUILDERS = [
    (MaxPForSequenceClassification.from_encoder, None),
    (MaxPForSequenceClassification.from_cross_encoder, 1),
    (ParadeForSequenceClassification.from_encoder, None),
]


def add_code(folder: Path, file: str, changes: dict[str, object]) -> None:
    """Let a file of a folder name code, which ends the process if it is run."""
    (folder / "evil.py").write_text("raise SystemExit('the code was run')")
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was asked at the terminal, where transformers asks whether to run code; the answer is yes."""
    asked: list[object] = []
    monkeypatch.setattr("builtins.input", lambda *words: asked.append(words) or "y")
    return asked


@pytest.mark.parametrize("build, labels", BUILDERS)
def test_code_of_an_encoder_is_not_run(
    build: Callable[..., DocumentRanker],
    labels: int | None,
    encoder_folder: Callable[..., Path],
    tmp_path: Path,
    questions: list[object],
) -> None:
    folder = shutil.copytree(encoder_folder("bert", labels), tmp_path / "encoder")
    add_code(folder, "config.json", MODEL_WITH_CODE)
    with pytest.raises(ValueError, match="contains custom code"):
        build(folder)
    assert not questions


@pytest.mark.parametrize("build, labels", BUILDERS)
def test_code_of_an_encoders_tokenizer_is_not_run(
    build: Callable[..., DocumentRanker],
    labels: int | None,
    encoder_folder: Callable[..., Path],
    tmp_path: Path,
    questions: list[object],
) -> None:
    """transformers has the tokenizer of the encoder's type without that code."""
    folder = shutil.copytree(encoder_folder("bert", labels), tmp_path / "encoder")
    add_code(folder, "tokenizer_config.json", TOKENIZER_WITH_CODE)
    model = build(folder, max_length=96, max_query_tokens=9)
    assert type(model.processor.tokenizer).__module__.startswith("transformers.")
    assert model.processor.encode_query("license") == AutoTokenizer.from_pretrained(encoder_folder("bert")).encode(
        "license", add_special_tokens=False
    )
    assert not questions


@pytest.mark.parametrize("trust", [None, False, True])
def test_code_of_a_checkpoints_tokenizer_is_not_run(
    trust: bool | None, checkpoint: Path, questions: list[object]
) -> None:
    add_code(checkpoint, "tokenizer_config.json", TOKENIZER_WITH_CODE)
    with pytest.raises(ValueError, match=r"file of the tokenizer: .*contains custom code"):
        AutoModel.from_pretrained(checkpoint, trust_remote_code=trust)
    assert not questions
