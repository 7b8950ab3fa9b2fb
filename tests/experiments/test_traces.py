"""What a run writes holds nothing of the machine it ran on: no paths that the user did not write, no secrets."""

from __future__ import annotations

import shutil
import socket
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.recipes import recipe_folder, succeed, tiny_recipe

TOKEN = "hf_secretsecretsecretsecretsecretsecret"
USER = "somebody-by-name"


@pytest.fixture(scope="module")
def world(encoder_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a recipe that names everything by relative paths, and a package that carries weights."""
    folder = tmp_path_factory.mktemp("traces")
    shutil.copytree(encoder_folder("bert"), folder / "encoder")
    package = folder / "site-packages/weights_of_a_package"
    shutil.copytree(encoder_folder("bert"), package / "model")
    (package / "__init__.py").write_text("")
    with recipe_folder(folder, tiny_recipe("encoder")), pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", TOKEN)
        patch.setenv("HOME", f"/home/{USER}")
        for name in ("USER", "LOGNAME"):
            patch.setenv(name, USER)
        patch.syspath_prepend(package.parent)
        yield folder


def traces(folder: Path) -> list[tuple[str, str]]:
    """File and what it holds of the machine."""
    project = str(Path(__file__).parents[2])
    secrets = [TOKEN, USER, str(Path.cwd()), str(Path.home()), tempfile.gettempdir(), project]
    if len(socket.gethostname()) > 5:  # shorter ones are found in weights by chance
        secrets.append(socket.gethostname())
    return [
        (str(path.relative_to(folder)), secret)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for content in contents(path)
        for secret in secrets
        if secret.encode() in content
    ]


def contents(path: Path) -> list[bytes]:
    """The bytes of a file; of what torch saves, those inside the archive."""
    if not zipfile.is_zipfile(path):
        return [path.read_bytes()]
    with zipfile.ZipFile(path) as archive:
        return [archive.read(name) for name in archive.namelist()]


COMMANDS = {
    "train": ("train", "tiny.yaml", "--data.fold", "1"),
    "lora": ("train", "tiny.yaml", "--data.fold", "1", "--lora", "true"),
    "package": ("train", "tiny.yaml", "--data.fold", "1", "--model.encoder", "package:weights_of_a_package/model"),
    "lora on a package": (
        *("train", "tiny.yaml", "--data.fold", "1", "--lora", "true"),
        *("--model.encoder", "package:weights_of_a_package/model"),
    ),
    "distill": ("distill", "tiny.yaml", "--teacher", "train/model", "--layers", "1", "--data.fold", "1"),
    "crossval": ("crossval", "tiny.yaml", "--fold", "1"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "package" else pytest.mark.slow) for name in COMMANDS]
)
def test_a_run_holds_nothing_of_the_machine(name: str, world: Path) -> None:
    folder = name.replace(" ", "-")
    if name == "distill" and not (world / "train/model").is_dir():
        succeed(*COMMANDS["train"], "--output", "train")
    succeed(*COMMANDS[name], "--output", folder)
    assert traces(world / folder) == []
    assert not list((world / folder).rglob("training_args.bin"))
