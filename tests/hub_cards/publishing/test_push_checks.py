"""What is refused before it is published, and what a dry run shows; no network is needed."""

from __future__ import annotations

import getpass
import json
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.hub_cards import Preview, preview_folder, push_folder
from docparade.hub_cards.publishing.private_data import PrivateData
from docparade.retrieval.errors import InputError

# Not written in one piece, so that nobody takes it for a real one.
TOKEN = "hf_" + "aBcDeFgH" * 4
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def saved(tiny_ranker: Callable[..., DocumentRanker], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs") / "model"
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "model")


def preview(folder: Path, **options: str) -> Preview:
    return preview_folder(folder, "archive/maxp-tiny", **{"license": "apache-2.0", "language": "en", **options})


def refused(folder: Path, **options: str) -> str:
    with pytest.raises(InputError) as error:
        preview(folder, **options)
    sentence = str(error.value)
    assert "\n" not in sentence and tempfile.gettempdir() + "/docparade-" not in sentence
    return sentence


def test_a_dry_run_changes_nothing(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    shown = preview(folder)
    assert shown.sizes[WEIGHTS] == (folder / WEIGHTS).stat().st_size
    assert "license: apache-2.0" in shown.card and 'from_pretrained("archive/maxp-tiny"' in shown.card
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert preview(folder.parent).sizes == shown.sizes  # as in the output folder of a recipe


def test_no_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docparade.hub_cards.publishing.hub_push.get_token", lambda: None)
    with pytest.raises(InputError, match=r"token.*hf auth login"):
        push_folder(folder, "archive/maxp-tiny", license="apache-2.0", language="en")


# --- The folder ------------------------------------------------------------------------------------------------------


def test_folders_that_are_not_complete(folder: Path, tmp_path: Path, encoder_folder: Callable[..., Path]) -> None:
    assert "nowhere is not a folder" in refused(tmp_path / "nowhere")
    assert "config.json is not the configuration of a docparade ranker" in refused(encoder_folder("bert"))
    for name in (WEIGHTS, "tokenizer.json", "processor_config.json", "sentences.py", "pipeline.py"):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        assert f"there is no {name}" in refused(folder)
        (folder / name).write_bytes(content)
    (folder / "config.json").write_text("{")
    assert "config.json cannot be read" in refused(folder)


def test_fields_of_the_card(folder: Path) -> None:
    assert "has no license and no language: give --license and --language" in refused(folder, license="", language="")
    assert "license is 'My license'" in refused(folder, license="My license")
    (folder / "README.md").write_text("---\nlicense: mit\nlanguage: en\n---\n# Mine\n")
    assert preview(folder, license="", language="").card.endswith("# Mine\n")  # written by hand, and left as it is


def test_names_on_the_hub(folder: Path) -> None:
    for name in ("maxp-tiny", "a/b/c", "a b/c", ""):
        with pytest.raises(InputError, match="give user/name"):
            preview_folder(folder, name)


# --- Weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_are_not_numbers(value: float, dtype: torch.dtype, folder: Path) -> None:
    weights = {name: tensor.to(dtype) for name, tensor in load_file(folder / WEIGHTS).items()}
    name = sorted(weights)[3]
    weights[name].view(-1)[0] = value
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    assert f"{WEIGHTS}: {name} has weights that are not finite numbers" in refused(folder)


def test_damaged_weights(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-40])
    assert "weights cannot be read" in refused(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "vectors.pkl", "model.ckpt", "extra.pt"])
def test_pickles(name: str, folder: Path) -> None:
    (folder / name).write_bytes(b"\x80\x04.")
    assert f"{name} is a pickle, which can run code" in refused(folder)
    (folder / WEIGHTS).unlink()
    assert f"{name} is a pickle" in refused(folder)


def test_the_state_of_a_training_is_left_out(folder: Path) -> None:
    names = ["optimizer.pt", "rng_state_0.pth", "scheduler.pt", "trainer_state.json", "training_args.bin"]
    for name in names:
        (folder / name).write_text(TOKEN)
    assert preview(folder).left_out == names


# --- Private data ----------------------------------------------------------------------------------------------------


PRIVATE = [
    (f"{Path.home()}/data/robust04", "the path"),
    (f"{tempfile.gettempdir()}/run-7", "the path"),
    (f"{Path(__file__).resolve()}", "the path"),
    ("/home/ann/outputs/model", "the path /home/ann"),
    ("/Users/ann/model", "the path /Users/ann"),
    (r"C:\\Users\\ann\\model", "the path C:"),
    ("file:///data/model", "the path file:///data/model"),
    (TOKEN, "an access token"),
]


@pytest.mark.parametrize(
    "name, text, what",
    [
        *(("config.json", *each) for each in PRIVATE),
        *((name, *PRIVATE[0]) for name in ("measured.json", "README.md", "tokenizer_config.json", "handler.py")),
    ],
)
def test_private_data_in_texts(name: str, text: str, what: str, folder: Path) -> None:
    if name == "README.md":
        (folder / name).write_text(f"---\nlicense: mit\nlanguage: en\n---\n# Mine\nat {text}\n")
    elif name == "handler.py":
        (folder / name).write_text(f"{(folder / name).read_text()}\n# {text}\n")
    else:
        content = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
        (folder / name).write_text(json.dumps({**content, "note": text}, indent=1))
    found = refused(folder)
    assert f"{name}, line " in found and f"contains {what}" in found and TOKEN not in found


@pytest.mark.parametrize("text, what", [PRIVATE[0], PRIVATE[-1]])
def test_private_data_in_the_header_of_weights(text: str, what: str, folder: Path) -> None:
    save_file(load_file(folder / WEIGHTS), folder / WEIGHTS, metadata={"format": "pt", "source": text})
    assert f"{WEIGHTS}, its header: contains {what}" in refused(folder)


def test_names_of_user_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "marjolein")
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-17.archive.example")
    private = PrivateData.of_this_machine(set())
    for text in ("by marjolein", "marjolein@x", '"host": "gpu-17"', "gpu-17.archive.example"):
        found = private.find(text)
        assert found is not None and "a user or host name of this machine" in found[1]
    for text in ("Marjoleins", "marjolein-tiny", "gpu-170", ""):
        assert private.find(text) is None
    assert private.find('{"marjolein": 17}', is_vocabulary=True) is None
    # A name that is public anyway, or a word of the code, tells nothing; nor does one that every machine has.
    assert PrivateData.of_this_machine({"marjolein"}).find("by marjolein") is None
    monkeypatch.setattr(getpass, "getuser", lambda: "root")
    assert PrivateData.of_this_machine(set()).find("the root of the mean square") is None


@pytest.mark.parametrize(
    "text",
    [
        "https://huggingface.co/home/ann and s3://home/ann/x",
        "see [docs](/docs/hub)",
        "#!/usr/bin/env python, 1/2, and/or, n/a, ~/data",
        "outputs/quickstart/model",
        "set HF_TOKEN=hf_xxx",
    ],
)
def test_what_is_not_private(text: str) -> None:
    assert PrivateData.of_this_machine(set()).find(text) is None


# --- Adapters --------------------------------------------------------------------------------------------------------


def test_adapters_name_their_ranker(tmp_path: Path, saved: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModel

    model = get_peft_model(AutoModel.from_pretrained(saved), LoraConfig(r=2, target_modules=r".*\.(query|value)"))
    model.save_pretrained(str(tmp_path))
    config = (tmp_path / "adapter_config.json").read_bytes()
    assert "names no ranker on the Hub (base_model_name_or_path is" in refused(tmp_path)
    shown = preview(tmp_path, base_model="archive/maxp-tiny")
    assert {"README.md", "adapter_config.json", "adapter_model.safetensors"} == shown.sizes.keys()
    assert "base_model: archive/maxp-tiny" in shown.card and "More Information Needed" not in shown.card
    assert (tmp_path / "adapter_config.json").read_bytes() == config
