"""A full disk, a damaged checkpoint, a folder that was moved: one sentence, and the run goes on to the same numbers."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.recipes import RESULTS, fail, read_files, recipe_folder, succeed, tiny_recipe

from docparade import DocumentRanker, MaxPForSequenceClassification

WORDS = ("train", "tiny.yaml", "--data.fold", "1", "--output")


@pytest.fixture(scope="module")
def world(encoder_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with recipe_folder(tmp_path_factory.mktemp("checkpoints"), tiny_recipe(encoder_folder("bert"))) as folder:
        yield folder


@pytest.fixture(scope="module")
def whole(world: Path) -> Path:
    succeed(*WORDS, "whole")
    return world / "whole"


def run_with_file_limit(limit: int, *words: str) -> str:
    """What a command says whose files cannot grow beyond a number of bytes, as if the disk were full."""
    script = "from docparade.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.pt"])
def test_a_full_disk_while_a_training_saves(file: str, whole: Path, world: Path) -> None:
    limit = (whole / "checkpoints/checkpoint-9" / file).stat().st_size - 1000
    folder = f"full-{Path(file).stem}"
    said = run_with_file_limit(limit, *WORDS, folder)
    assert said.startswith(f"docparade: {folder}/checkpoints") and " cannot be written: " in said
    assert said.endswith("; check free space and permissions, and start again.")
    assert not (world / folder / "model").exists()
    succeed(*WORDS, folder)
    assert read_files(world / folder, *RESULTS) == read_files(whole, *RESULTS)


@pytest.mark.slow
def test_a_full_disk_while_the_best_model_is_saved(whole: Path, world: Path) -> None:
    copy = unfinished_copy(whole, world / "full-best")
    size = (copy / "checkpoints/checkpoint-9/model.safetensors").stat().st_size
    said = run_with_file_limit(size - 1000, *WORDS, copy.name)
    assert said.startswith(f"docparade: {copy.name}/model.unfinished cannot be written: ")
    assert not (copy / "model").exists()
    succeed(*WORDS, copy.name)
    assert read_files(copy, *RESULTS) == read_files(whole, *RESULTS)


@pytest.mark.slow
def test_a_full_disk_while_a_ranker_is_exported(tiny_ranker: Callable[..., DocumentRanker], world: Path) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(world / "ranker")
    size = (world / "ranker/model.safetensors").stat().st_size
    said = run_with_file_limit(size // 8, "export", "--model", "ranker", "--output", "small-ranker")
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
@pytest.mark.parametrize("how", ["missing", "empty", pytest.param("cut", marks=pytest.mark.slow)])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    how: str, file: str, whole: Path, world: Path
) -> None:
    copy = unfinished_copy(whole, world / f"damaged-{how}-{file}")
    checkpoint = copy / "checkpoints/checkpoint-9"
    if file == "rng_state.pth":  # which is of no use after the last step
        shutil.rmtree(checkpoint)
        checkpoint = next(copy.glob("checkpoints/checkpoint-*"))
    damaged = checkpoint / file
    if how == "missing":
        damaged.unlink()
    else:
        damaged.write_bytes(damaged.read_bytes()[: 0 if how == "empty" else damaged.stat().st_size // 2])
    said = fail(*WORDS, copy.name)
    assert f"training cannot continue from {copy.name}/checkpoints/{checkpoint.name}: " in said
    assert said.endswith("; remove the folder to continue from the checkpoint before.")
    assert not (copy / "model").exists()
    if how != "cut":
        return
    shutil.rmtree(checkpoint)
    succeed(*WORDS, copy.name)
    assert read_files(copy, *RESULTS) == read_files(whole, *RESULTS)


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
