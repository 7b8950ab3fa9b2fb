"""`docparade convert`: pickled weights, and ELECTRA's linear head, in the form that docparade loads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.project import DOCUMENTS, PROJECT, QUERY
from support.scores import model_scores
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer, ElectraModel

from docparade import MaxPForSequenceClassification, ParadeForSequenceClassification

Command = Callable[..., tuple[int, str, str]]
PAIRS = [(QUERY, document) for document in DOCUMENTS]
SETTINGS: dict[str, Any] = {"window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 8}


@pytest.fixture
def pickled(encoder_folder: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of a folder whose weights are pickled: `pickled(architecture, labels, rename, extra)`."""

    def make(
        architecture: str,
        labels: int | None = None,
        rename: Callable[[str], str] = str,
        extra: dict[str, Any] | None = None,
    ) -> Path:
        source, folder = encoder_folder(architecture, labels), tmp_path / "pickled"
        folder.mkdir()
        for file in source.iterdir():
            if file.suffix == ".json":
                (folder / file.name).write_bytes(file.read_bytes())
        weights = {rename(name): tensor for name, tensor in load_file(source / "model.safetensors").items()}
        torch.save({**weights, **(extra or {})}, folder / "pytorch_model.bin")
        return folder

    return make


def linear_head(labels: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(labels, 32, generator=generator), torch.randn(labels, generator=generator)


def linear_scores(electra: Path, weight: Tensor, bias: Tensor) -> Tensor:
    """Scores of documents by the formula: the linear layer's class 1, or its only one, of the best passage's vector."""
    model = MaxPForSequenceClassification.from_encoder(electra, "max", **SETTINGS)
    batch = model.require_processor()([QUERY] * len(DOCUMENTS), DOCUMENTS)
    flat = {name: values.flatten(0, 1) for name, values in batch.items() if name != "passage_mask"}
    with torch.no_grad():
        vectors = ElectraModel.from_pretrained(electra)(**flat).last_hidden_state[:, 0]
        scores = (vectors @ weight.T + bias)[:, -1].view(batch["passage_mask"].shape)
    return scores.masked_fill(~batch["passage_mask"], float("-inf")).amax(dim=1)


@pytest.mark.parametrize(
    ("layer", "labels", "has_dense", "option"),
    [
        ("classifier.out_proj", 2, False, []),  # what Capreolus' code reads
        ("classifier.out_proj", 2, True, ["--linear-head"]),  # beside a dense layer that it does not use
        ("classifier", 1, False, []),
    ],
)
def test_electra_with_a_linear_head(
    layer: str,
    labels: int,
    has_dense: bool,
    option: list[str],
    pickled: Callable[..., Path],
    encoder_folder: Callable[..., Path],
    command_line: Command,
    tmp_path: Path,
) -> None:
    weight, bias = linear_head(labels)
    head = {f"{layer}.weight": weight, f"{layer}.bias": bias}
    if has_dense:
        head |= {"classifier.dense.weight": torch.randn(32, 32), "classifier.dense.bias": torch.randn(32)}
    old = {"electra.embeddings.position_ids": torch.arange(96)[None]}
    folder = pickled("electra", rename=lambda name: f"electra.{name}", extra=head | old)
    code, _, err = command_line("convert", str(folder), "--output", "converted", *option)
    assert code == 0, err
    assert "the head is one linear layer" in err
    assert "left out" not in err
    expected = linear_scores(encoder_folder("electra"), weight, bias)
    ranker = MaxPForSequenceClassification.from_cross_encoder("converted", "max", **SETTINGS)
    torch.testing.assert_close(torch.tensor(model_scores(ranker, PAIRS)), expected, rtol=1e-5, atol=1e-5)
    # Other tools read the folder as any classifier; PARADE takes its body.
    plain = AutoModelForSequenceClassification.from_pretrained("converted")
    assert plain.num_labels == labels
    assert plain.config.classifier_dropout == 0
    ParadeForSequenceClassification.from_encoder("converted", "avg", **SETTINGS)
    config = json.loads(Path("converted/config.json").read_text())
    assert str(tmp_path) not in json.dumps(config)


def test_electras_own_head_is_kept(
    pickled: Callable[..., Path], encoder_folder: Callable, command_line: Command
) -> None:
    code, _, err = command_line("convert", str(pickled("electra", 2)), "--output", "converted")
    assert code == 0, err
    assert "the head is ELECTRA's own, of two layers" in err
    expected = load_file(encoder_folder("electra", 2) / "model.safetensors")
    found = load_file("converted/model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "albert"])
def test_any_architecture(
    architecture: str, pickled: Callable[..., Path], encoder_folder: Callable[..., Path], command_line: Command
) -> None:
    """Also with the names that layers of normalization had in old files."""
    old = (
        {".LayerNorm.weight": ".LayerNorm.gamma", ".LayerNorm.bias": ".LayerNorm.beta"}
        if architecture == "bert"
        else {}
    )

    def rename(name: str) -> str:
        return next((name.removesuffix(new) + before for new, before in old.items() if name.endswith(new)), name)

    folder = pickled(architecture, 1, rename=rename, extra={"unknown.weight": torch.zeros(2)})
    code, _, err = command_line("convert", str(folder), "--output", "converted")
    assert code == 0, err
    assert "has no place for 1 tensors, such as unknown.weight; they are left out" in err
    source = encoder_folder(architecture, 1)
    rankers = [
        MaxPForSequenceClassification.from_cross_encoder(path, "max", **SETTINGS) for path in (source, "converted")
    ]
    assert rankers[1].score(PAIRS) == pytest.approx(rankers[0].score(PAIRS), abs=1e-6)
    assert AutoTokenizer.from_pretrained("converted").is_fast


def test_weights_in_several_files(pickled: Callable[..., Path], command_line: Command) -> None:
    folder = pickled("bert", 1)
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    (folder / "pytorch_model.bin").unlink()
    places = {name: f"part-{number % 2}.bin" for number, name in enumerate(weights)}
    for part in ("part-0.bin", "part-1.bin"):
        torch.save({name: weights[name] for name in weights if places[name] == part}, folder / part)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    code, _, err = command_line("convert", str(folder), "--output", "converted")
    assert code == 0, err
    found = load_file("converted/model.safetensors")
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    (folder / "part-1.bin").unlink()
    code, _, err = command_line("convert", str(folder), "--output", "again")
    assert code == 2
    assert "has no part-1.bin" in err


class Payload:
    """Unpickling this writes a file."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("open('executed', 'w').close()",))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"bert.weight": Payload()}, "pytorch_model.bin is damaged, or holds something else than tensors"),
        ({"state_dict": {"bert.weight": torch.zeros(1)}}, "does not hold a model's tensors by name"),
        ([torch.zeros(1)], "does not hold a model's tensors by name"),
        ({"bert.weight": torch.zeros(1)}, "lacks 41 weights of BertForSequenceClassification, such as"),
        (b"no pickle at all", "pytorch_model.bin is damaged"),
        (b"", "pytorch_model.bin is damaged"),
        (None, "has no pytorch_model.bin"),
    ],
)
def test_no_code_is_run_and_nothing_is_written_for_other_files(
    content: Any, said: str, pickled: Callable[..., Path], command_line: Command
) -> None:
    folder = pickled("bert", 1)
    file = folder / "pytorch_model.bin"
    file.unlink()
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        torch.save(content, file)
    code, out, err = command_line("convert", str(folder), "--output", "converted")
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not Path("converted").exists()
    assert not Path("executed").exists()


def test_what_cannot_be_converted(
    pickled: Callable[..., Path], encoder_folder: Callable[..., Path], command_line: Command
) -> None:
    bert = pickled("bert", 1)
    for arguments, said in [
        ((str(encoder_folder("bert", 1)),), "has model.safetensors already: there is nothing to convert"),
        ((str(bert), "--linear-head"), "--linear-head is for ELECTRA"),
        (("nowhere/at/all",), "there is no such folder"),
        (
            (str(encoder_folder("electra")), "--linear-head"),
            "has no classifier.out_proj.weight and no classifier.weight",
        ),
    ]:
        code, _, err = command_line("convert", *arguments, "--output", "converted")
        assert code == 2
        assert said in err
    Path("there").mkdir()
    code, _, err = command_line("convert", str(bert), "--output", "there")
    assert (code, "--output there already exists" in err) == (2, True)


def test_a_model_that_has_to_be_converted_says_so(
    pickled: Callable[..., Path], encoder_folder: Callable[..., Path], command_line: Command, tmp_path: Path
) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "one.txt").write_text("A document.")
    bert = pickled("bert", 1)
    for build in (
        MaxPForSequenceClassification.from_encoder,
        MaxPForSequenceClassification.from_cross_encoder,
        ParadeForSequenceClassification.from_encoder,
    ):
        with pytest.raises(OSError, match=r"pickled has no model\.safetensors.*Converting pickled weights"):
            build(bert)
    electra = encoder_folder("electra")
    weights = {f"electra.{name}": tensor for name, tensor in load_file(electra / "model.safetensors").items()}
    weights |= dict(zip(("classifier.out_proj.weight", "classifier.out_proj.bias"), linear_head(), strict=True))
    folder = tmp_path / "linear"
    folder.mkdir()
    for file in electra.glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    settings = json.loads((folder / "config.json").read_text())
    settings["architectures"] = ["ElectraForSequenceClassification"]
    (folder / "config.json").write_text(json.dumps(settings))
    from safetensors.torch import save_file

    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for source in (folder, "Capreolus/electra-base-msmarco"):
        with pytest.raises(ValueError, match=rf"head of {source} is one linear layer.*Converting pickled weights"):
            MaxPForSequenceClassification.from_cross_encoder(source)
    # The command line names the command.
    for source, option in ((bert, ""), (folder, " --linear-head")):
        code, _, err = command_line("rank", "query", str(documents), "--model", str(source))
        assert code == 2
        assert f"docparade convert {source}{option} --output FOLDER" in err
    assert "\n## Converting pickled weights\n" in (PROJECT / "docs" / "loading.md").read_text(encoding="utf-8")
