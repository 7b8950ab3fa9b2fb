"""`docparade table` really run: all variants of a tiny recipe, interrupted and continued."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.recipes import docparade, fail, recipe_folder, succeed, tiny_recipe

from docparade.experiments.tables.variants import list_variants, run_variants

VARIED = {
    "model": {"max_passages": 2},
    "data": {"folds": {"count": 2}},
    "training": {"num_train_epochs": 1, "pairs_per_epoch": 4, "rerank_depth": 2},
    "rerank": {"depth": 3},
    "variants": {
        "aggregation": {"maxp": {"model": {"aggregation": "max"}}, "avgp": {"model": {"aggregation": "avg"}}},
        "folds": {"crossval": {"rerank": {"untrained": True}}, "one": {"data": {"fold": 1}}},
    },
    "table": {
        "columns": "folds",
        "runs": ["first stage", "untrained", "reranked"],
        "leave_out": [["avgp", "crossval"]],
    },
}
NAMES = ["tiny-avgp-one", "tiny-maxp-crossval", "tiny-maxp-one"]


@pytest.fixture(scope="module")
def world(encoder_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with recipe_folder(tmp_path_factory.mktemp("world"), tiny_recipe(encoder_folder("bert"), VARIED)) as folder:
        yield folder


@pytest.fixture(scope="module")
def interrupted(world: Path) -> dict[Path, int]:
    """All but the last variant are run, the first one by another command; gives the times of what is there."""
    succeed("train", "tiny.yaml", "--variant", "avgp,one")
    begun: list[str] = []

    def interrupt(sentence: str) -> None:
        begun.append(sentence)
        if "3 of 3" in sentence:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_variants(list_variants("tiny.yaml"), interrupt)
    assert begun == [f"running variant {i} of 3: {NAMES[i - 1]}, in outputs/{NAMES[i - 1]}." for i in (2, 3)]
    return {path: path.stat().st_mtime_ns for path in (world / "outputs").rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def table(interrupted: dict[Path, int]) -> tuple[int, str, str]:
    """The same command again."""
    states = [line.split() for line in succeed("table", "tiny.yaml", "--dry-run").splitlines() if " tiny-" in line]
    assert states == [*([name, "done"] for name in NAMES[:2]), [NAMES[2], "not", "run"]]
    return docparade("table", "tiny.yaml", "--save", "table.csv", "--plot", "figure.svg")


@pytest.mark.slow
def test_only_what_is_missing_is_run(table: tuple[int, str, str], interrupted: dict[Path, int], world: Path) -> None:
    code, _, err = table
    assert code == 0, err
    begun = [line for line in err.splitlines() if line.startswith("docparade: ") and " variant " in line]
    assert begun == [f"docparade: running variant 3 of 3: {NAMES[2]}, in outputs/{NAMES[2]}."]
    assert {path: path.stat().st_mtime_ns for path in interrupted} == interrupted
    assert all((world / "outputs" / name / "measures.json").is_file() for name in NAMES)
    assert json.loads(succeed("table", "tiny.yaml", "--dry-run", "--json")) == [
        {"variant": name, "state": "done", "folder": f"outputs/{name}"} for name in NAMES
    ]


@pytest.mark.slow
def test_the_table_is_what_the_variants_measured(table: tuple[int, str, str], world: Path) -> None:
    content = json.loads(succeed("table", "tiny.yaml", "--collect-only", "--json"))
    assert content["missing"] == []
    cells = {
        (*row["labels"].values(), cell["labels"]["folds"], cell["measure"]): cell["value"]
        for row in content["rows"]
        for cell in row["cells"]
    }
    shown = cells["maxp", "reranked", "one", "AP@100"]
    for name in NAMES:
        _, aggregation, folds = name.split("-")
        measured = json.loads((world / "outputs" / name / "measures.json").read_text())["test"]["runs"]
        untrained = ["untrained"] if folds == "crossval" else []
        assert list(measured) == ["first stage", *untrained, "reranked"], "two folds have no validation queries"
        for measure in ("nDCG@5", "AP@100"):
            for run in (*untrained, "reranked"):
                assert cells.pop((aggregation, run, folds, measure)) == measured[run]["means"][measure]
            assert cells["first stage", folds, measure] == measured["first stage"]["means"][measure]
    assert {value for key, value in cells.items() if "first stage" not in key} == {None}
    _, out, err = table
    assert f"{shown:.4f}" in out
    rows = (world / "table.csv").read_text().splitlines()
    assert len(rows) == 5 and str(shown) in rows[4]
    assert (world / "figure.svg").read_text().startswith("<?xml")
    assert "docparade: the table is in table.csv." in err and "docparade: the plot is in figure.svg." in err


def test_a_missing_input_of_the_last_variant_shows_before_the_first_is_run(world: Path) -> None:
    axis = {"last": {"good": {}, "bad": {"model": {"encoder": "./nowhere"}}}}
    (world / "late.yaml").write_text(
        json.dumps(tiny_recipe("./nowhere", {**VARIED, "name": "late", "variants": axis, "table": {}}))
    )
    assert "model.encoder" in fail("table", "late.yaml") and not (world / "outputs" / "late-good").exists()
    assert "a plot needs an axis from left to right" in fail("table", "late.yaml", "--plot", "late.png")
    (world / "outputs" / "late-bad" / "model").mkdir(parents=True)
    assert "late-bad is not empty, and holds no results of a recipe" in fail("table", "late.yaml")
    assert not (world / "outputs" / "late-good").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--collect-only", "--dry-run"],
            "--collect-only shows measures and --dry-run lists variants; use one of them.",
        ),
        (["--save", "table.txt"], "--save table.txt: the name of a table must end in .md or .csv."),
        (["--plot", "figure.xyz"], "figure.xyz: the name of a picture must end in one of"),
        (["--rows", "encoder"], "tiny.yaml, table: there is no axis encoder; the axes are aggregation, folds, run."),
        (["--variant", "sump"], "tiny.yaml: there is no variant sump; choose among aggregation: avgp, maxp; folds"),
        (["--table.rows", "folds"], "there is no key table"),
        (["--training.learning_rate", "2e-3", "--collect-only"], "holds the results of another recipe"),
    ],
)
def test_bad_options_are_one_sentence(
    words: list[str], sentence: str, table: tuple[int, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sentence in fail("table", "tiny.yaml", *words)


@pytest.mark.slow
def test_a_baseline_that_is_left_out_is_said(table: tuple[int, str, str], world: Path) -> None:
    content = tiny_recipe("encoder", {**VARIED, "table": {"baseline": "maxp"}})
    (world / "tested.yaml").write_text(json.dumps(content))
    _, _, err = docparade("table", "tested.yaml", "--variant", "avgp", "--dry-run")
    assert "without maxp, which --variant leaves out, nothing is tested for significance." in err
    content["table"] = {"baseline": "first stage", "runs": "reranked"}  # left out by nobody, but not shown
    (world / "tested.yaml").write_text(json.dumps(content))
    code, _, err = docparade("table", "tested.yaml", "--collect-only", "--output", "nothing")
    assert code == 0 and "nothing is tested" not in err
