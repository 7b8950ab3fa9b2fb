"""A full disk, a damaged checkpoint, a folder that was moved: one sentence, and the run goes on to the same numbers."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.recipes import RESULTS, fail, read_files, recipe_folder, succeed, tiny_recipe

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.retrieval.errors import InputError
from docparade.trainer.checkpoints import check_checkpoint

WORDS = ("train", "tiny.yaml", "--data.fold", "1", "--output")


@pytest.fixture(scope="module")
def world(encoder_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with recipe_folder(tmp_path_factory.mktemp("checkpoints"), tiny_recipe(encoder_folder("bert"))) as folder:
        yield folder


@pytest.fixture(scope="module")
def whole(world: Path) -> Path:
    succeed(*WORDS, "whole")
    return world / "whole"


def fail_with_file_limit(limit: int, *words: str) -> str:
    """What a command says if no file can grow beyond a number of bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        return fail(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.pt"])
def test_a_full_disk_while_a_training_saves(file: str, whole: Path, world: Path) -> None:
    limit = (whole / "checkpoints/checkpoint-9" / file).stat().st_size - 1000
    folder = f"full-{Path(file).stem}"
    said = fail_with_file_limit(limit, *WORDS, folder)
    assert said.startswith(f"docparade: {folder}/checkpoints") and " cannot be written: " in said
    assert said.endswith("; check free space and permissions, and start again.")
    assert not (world / folder / "model").exists()
    succeed(*WORDS, folder)
    assert read_files(world / folder, *RESULTS) == read_files(whole, *RESULTS)


@pytest.mark.slow
def test_a_full_disk_while_the_best_model_is_saved(whole: Path, world: Path) -> None:
    copy = unfinished_copy(whole, world / "full-best")
    size = (copy / "checkpoints/checkpoint-9/model.safetensors").stat().st_size
    said = fail_with_file_limit(size - 1000, *WORDS, copy.name)
    assert said.startswith(f"docparade: {copy.name}/model.unfinished cannot be written: ")
    assert not (copy / "model").exists()
    succeed(*WORDS, copy.name)
    assert read_files(copy, *RESULTS) == read_files(whole, *RESULTS)


@pytest.mark.slow
def test_a_full_disk_while_a_ranker_is_exported(tiny_ranker: Callable[..., DocumentRanker], world: Path) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(world / "ranker")
    size = (world / "ranker/model.safetensors").stat().st_size
    said = fail_with_file_limit(size // 8, "export", "--model", "ranker", "--output", "small-ranker")
    assert said.startswith("docparade: small-ranker cannot be written: File too large")
    assert not list(world.glob("*small-ranker*"))


@pytest.mark.slow
def test_files_in_the_way_of_folders(whole: Path, world: Path) -> None:
    for name in ("checkpoints", "runs"):
        copy = unfinished_copy(whole, world / f"in-the-way-of-{name}")
        shutil.rmtree(copy / name, ignore_errors=True)
        (copy / name).write_text("")
        assert f"{copy.name}/{name} cannot be written: File exists; check free space" in fail(*WORDS, copy.name)
        (copy / name).unlink()
        succeed(*WORDS, copy.name)
        assert read_files(copy, *RESULTS) == read_files(whole, *RESULTS)


def unfinished_copy(whole: Path, copy: Path) -> Path:
    """A run that was stopped after its last checkpoint."""
    shutil.copytree(whole, copy)
    for name in ("model", "runs"):
        shutil.rmtree(copy / name)
    (copy / "measures.json").unlink()
    return copy


@pytest.mark.parametrize(
    "file", ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"]
)
@pytest.mark.parametrize("how", ["missing", "empty", "cut"])
def test_a_damaged_checkpoint_is_named(how: str, file: str, whole: Path, tmp_path: Path) -> None:
    checkpoint = shutil.copytree(whole / "checkpoints/checkpoint-9", tmp_path / "checkpoint-9")
    check_checkpoint(checkpoint)
    damaged = checkpoint / file
    content = damaged.read_bytes()
    damaged.unlink()
    if how != "missing":
        damaged.write_bytes(content[: 0 if how == "empty" else len(content) // 2])
    what = "missing" if how == "missing" else "damaged"
    with pytest.raises(InputError, match=rf"{checkpoint}: {file} is {what}"):
        check_checkpoint(checkpoint)


@pytest.mark.slow
def test_the_checkpoint_before_a_damaged_one_is_used(whole: Path, world: Path) -> None:
    copy = unfinished_copy(whole, world / "damaged")
    checkpoint = copy / "checkpoints/checkpoint-9"
    (checkpoint / "optimizer.pt").write_bytes(b"")
    said = fail(*WORDS, copy.name)
    assert "training cannot continue from damaged/checkpoints/checkpoint-9: " in said
    assert said.endswith("; remove the folder to continue from the checkpoint before.")
    assert not (copy / "model").exists()
    shutil.rmtree(checkpoint)
    succeed(*WORDS, copy.name)
    assert read_files(copy, *RESULTS) == read_files(whole, *RESULTS)


@pytest.mark.slow
def test_a_run_that_was_moved_ends_with_its_best_model(whole: Path, world: Path) -> None:
    """The state of the Trainer names the best checkpoint by its old path."""
    (world / "elsewhere").mkdir()
    copy = unfinished_copy(whole, world / "elsewhere/moved")
    (world / "whole").rename(world / "away")
    try:
        succeed(*WORDS, "elsewhere/moved")
    finally:
        (world / "away").rename(world / "whole")
    assert read_files(copy, *RESULTS) == read_files(whole, *RESULTS)


@pytest.mark.slow
def test_a_best_checkpoint_that_is_damaged_or_gone(whole: Path, world: Path) -> None:
    copy = unfinished_copy(whole, world / "gone")
    [best] = [path for path in copy.glob("checkpoints/checkpoint-*") if path.name != "checkpoint-9"]
    (best / "model.safetensors").write_bytes(b"")
    said = fail(*WORDS, copy.name)
    assert f"training cannot continue from gone/checkpoints/{best.name}: model.safetensors is damaged" in said
    shutil.rmtree(best)
    said = fail(*WORDS, copy.name)
    remedy = "remove gone/checkpoints to train again."
    assert f"gone/checkpoints/{best.name}, the best checkpoint, is missing; {remedy}" in said
