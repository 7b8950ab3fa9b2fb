"""Recipes by name, from any folder: listed, shown, extended by a user's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.project import PROJECT

from docparade.experiments import load_recipe
from docparade.experiments.recipes.recipe_files import shipped_recipes
from docparade.retrieval.errors import InputError

Command = Callable[..., tuple[int, str, str]]
RECIPES = PROJECT / "configs" / "recipes"
FILES = {path.relative_to(RECIPES).with_suffix("").as_posix(): path for path in RECIPES.rglob("*.yaml")}


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_name_is_the_file_that_comes_with_docparade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped_recipes().keys() == FILES.keys()
    assert load_recipe("quickstart").to_yaml() == load_recipe(FILES["quickstart"]).to_yaml()
    # A file or folder of the same name does not change what the name means.
    (tmp_path / "quickstart").write_text("name: other")
    assert load_recipe("quickstart").name == "quickstart"


def test_a_recipe_of_ones_own_builds_on_those_of_docparade(tmp_path: Path) -> None:
    own = write(tmp_path / "mine.yaml", {"extends": "quickstart", "name": "mine", "data": "cranfield"})
    recipe = load_recipe(own, overrides=[("data.folds", "null")])
    assert recipe.stages[0].training == load_recipe("quickstart").stages[0].training
    assert recipe.data.collection == ("cranfield",)
    table = write(tmp_path / "table.yaml", {"extends": "zhang2021-table2", "seed": 7})
    # The variant's label names a model and data that come with docparade.
    chosen = load_recipe(table, "gov2-title,electra-base")
    assert (chosen.seed, chosen.stages[0].model.encoder) == (7, "google/electra-base-discriminator")


def test_files_beside_a_recipe_come_first(tmp_path: Path) -> None:
    own = write(tmp_path / "recipes" / "mine.yaml", {"extends": "ghasemi2021", "model": "bert-base"})
    assert load_recipe(own).stages[0].model.encoder == "google-bert/bert-base-uncased"
    write(tmp_path / "models" / "bert-base.yaml", {"encoder": "org/my-bert"})
    assert load_recipe(own).stages[0].model.encoder == "org/my-bert"
    write(tmp_path / "recipes" / "ghasemi2021.yaml", {"extends": "ghasemi2021", "seed": 7})
    assert load_recipe(own).seed == 7


def test_a_copy_may_keep_the_name(tmp_path: Path) -> None:
    own = write(tmp_path / "quickstart.yaml", {"extends": "quickstart", "seed": 7})
    assert load_recipe(own).seed == 7


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("quikstart", "there is no recipe quikstart; did you mean quickstart?"),
        ("li2023-table", "did you mean li2023-table"),
        ("x", "there are cip2021, cranfield-minilm, "),
        ("mine", "for the file in this folder, write mine.yaml"),
        (
            "configs/recipes/quickstart.yaml",
            "the recipe that comes with docparade is called quickstart",
        ),
        ("nowhere.yaml", "nowhere.yaml does not exist."),
        (".", ". is a folder; name a recipe in it"),
    ],
)
def test_an_unknown_name(name: str, sentence: str, command_line: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine")
    for command in ("train", "crossval", "recipes"):
        code, out, err = command_line(command, name)
        assert (code, out) == (2, "")
        assert sentence in err and len(err.splitlines()) == 1


def test_an_unknown_name_inside_a_recipe(tmp_path: Path) -> None:
    own = write(tmp_path / "mine.yaml", {"extends": "quickstat"})
    with pytest.raises(InputError, match=r"mine\.yaml, extends: .*quickstat;.*quickstart"):
        load_recipe(own)
    own = write(tmp_path / "mine.yaml", {"extends": "quickstart", "model": "electra-bas"})
    with pytest.raises(InputError, match=r"electra-bas;.*electra-base"):
        load_recipe(own)


def test_all_are_listed(command_line: Command) -> None:
    code, out, err = command_line("recipes")
    assert code == 0, err
    for name in FILES:
        assert f"  {name} " in out
    code, out, _ = command_line("recipes", "--json")
    listed = {one["name"]: one for one in json.loads(out)}
    assert code == 0 and listed.keys() == FILES.keys()
    assert all(one["about"] and Path(one["file"]).samefile(FILES[name]) for name, one in listed.items())
    # A whole sentence, also where the comment at the top of the recipe goes on.
    assert listed["quickstart"]["about"].endswith("and after learning from some pairs.")
    assert listed["default/documents"]["about"].endswith("kept vectors of passages.")
    assert listed["ghasemi2021"]["variants"] == {
        "candidates": ["reranker", "full-ranker"],
        "judgments": ["labeled", "source-relevant"],
    }
    # What ir_datasets downloads is free; Robust04 and GOV2 are had from NIST and Glasgow.
    known = {name: one["free"] for name, one in listed.items()}
    assert known["quickstart"] and known["ghasemi2021"] and known["cip2021"]
    assert known["li2023"] is False and known["li2023-table3"] is False
    assert known["yang2019-microblog"] is None


@pytest.mark.parametrize("width", [80, 120])
def test_the_list_fits_the_terminal(width: int, command_line: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = command_line("recipes")
    assert max(map(len, out.splitlines())) <= width


def test_one_is_shown_and_can_be_copied(command_line: Command, tmp_path: Path) -> None:
    code, out, err = command_line("recipes", "quickstart")
    assert code == 0, err
    path, *lines = out.splitlines()
    assert Path(path.removeprefix("# ")).samefile(FILES["quickstart"])
    assert lines == FILES["quickstart"].read_text().splitlines()
    (tmp_path / "copy.yaml").write_text(out)
    assert load_recipe(tmp_path / "copy.yaml").to_yaml() == load_recipe("quickstart").to_yaml()
    code, out, _ = command_line("recipes", "quickstart", "--json")
    assert json.loads(out)["content"] == FILES["quickstart"].read_text()


def test_a_run_cannot_go_into_a_file(command_line: Command, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for output in ("taken", "taken/below"):
        code, _, err = command_line("train", "quickstart", "--output", output)
        assert code == 2 and f"--output {output} cannot be made: {tmp_path / 'taken'} is a file" in err
    code, _, err = command_line("train", "quickstart", "--output", "/proc/run")
    assert code == 2 and "--output /proc/run cannot be written" in err
    assert list(tmp_path.iterdir()) == [tmp_path / "taken"]
