"""`docparade train`, `crossval` and `distill` in processes of their own: what goes where, and on how many processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.commands import CommandOutput, run_command
from support.recipes import make_collection, tiny_recipe

SHORT = {
    "model": {"max_passages": 3},
    "training": {"num_train_epochs": 1, "pairs_per_epoch": 8, "rerank_depth": 3, "logging_steps": 1},
    "rerank": {"depth": 3},
}


@pytest.fixture(scope="module")
def folder(encoder_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection, and a recipe that logs the loss of every step."""
    made = tmp_path_factory.mktemp("train")
    make_collection(made / "small")
    (made / "tiny.yaml").write_text(yaml.safe_dump(tiny_recipe(encoder_folder("bert"), SHORT)), encoding="utf-8")
    return made


def launch(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    settings = {"DOCPARADE_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, **settings, "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def trained(folder: Path) -> CommandOutput:
    return run_command(folder, "train", "tiny.yaml", "--data.fold", "1", "--json", "--output", "one")


def check_streams(done: CommandOutput) -> None:
    """Results on standard output, the losses on standard error, and no bar where there is no terminal."""
    [results] = json.loads(done.stdout).values()
    assert results["runs"].keys() >= {"first stage", "reranked"}
    assert "'loss': " in done.stderr
    assert "%|" not in done.stderr and "\r" not in done.stderr


def test_train_prints_json_alone(trained: CommandOutput) -> None:
    check_streams(trained)


@pytest.mark.slow
def test_crossval_prints_json_alone(folder: Path) -> None:
    check_streams(run_command(folder, "crossval", "tiny.yaml", "--fold", "1", "--json", "--output", "folds"))


@pytest.mark.slow
def test_distill_prints_json_alone(folder: Path, trained: CommandOutput) -> None:
    words = ["tiny.yaml", "--teacher", "one/model", "--layers", "1", "--data.fold", "1", "--json"]
    check_streams(run_command(folder, "distill", *words))
    assert (folder / "outputs" / "tiny-distilled" / "model").is_dir()


@pytest.mark.slow
def test_the_table_is_all_of_standard_output(folder: Path, trained: CommandOutput) -> None:
    done = run_command(folder, "train", "tiny.yaml", "--data.fold", "1", "--output", "one")
    assert done.stdout.startswith("test: ") and "{" not in done.stdout
    assert "all results are in one, the ranker in one/model." in done.stderr


TWO_PROCESSES = {
    # On a CPU, `accelerate launch --cpu --num_processes 2` would start a single process.
    "accelerate": "accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no "
    "--dynamo_backend no --main_process_port 0 -m",
    "torchrun": "torch.distributed.run --standalone --nproc_per_node 2 -m",
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", TWO_PROCESSES)
def test_launchers_run_the_module(launcher: str, folder: Path) -> None:
    words = ["docparade", "train", "tiny.yaml", "--data.fold", "1", "--json", "--output", launcher]
    done = launch(folder, *TWO_PROCESSES[launcher].split(), *words)
    settings = json.loads((folder / launcher / "model" / "measured.json").read_text())["arguments"]
    assert settings["per_device_train_batch_size"] == 2, "4 pairs are shared by two processes"
    assert json.loads(done.stdout)["test"]["runs"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--teacher", "nowhere/at/all", "--layers", "1"], "--teacher: nowhere/at/all cannot be loaded: there is no"),
        (["--teacher", "small", "--layers", "1"], "--teacher: small cannot be loaded: the folder holds no model"),
        (["--teacher", "x", "--encoder", "./nowhere"], "--encoder: ./nowhere cannot be loaded: there is no"),
        (
            ["--teacher", "x", "--encoder", "package:nothing/x"],
            "--encoder: the package nothing, which has these weights, is not installed",
        ),
        (["--teacher", "x", "--layers", "one"], "--layers is 'one', and must be whole numbers"),
        (["--teacher", "x"], "name the student"),
    ],
)
def test_a_missing_student_or_teacher_is_refused_before_any_work(
    words: list[str],
    sentence: str,
    folder: Path,
    command_line: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    code, out, err = command_line("distill", "tiny.yaml", *words, "--data.fold", "1", "--output", "never")
    assert (code, out) == (2, "") and sentence in err
    assert len(err.splitlines()) == 1 and not (folder / "never").exists()
