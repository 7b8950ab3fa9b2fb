"""Tables of variants: what stands in them is what the variants' own files say."""

from __future__ import annotations

import csv
import io
import json
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy.stats import ttest_rel
from support.recipes import tiny_recipe, updated

from docparade.experiments.recipes.merging import table_section, variants
from docparade.experiments.recipes.recipe_files import shipped_recipes
from docparade.experiments.tables.figure import draw_table, make_panels
from docparade.experiments.tables.layout import Layout, lay_over
from docparade.experiments.tables.measurements import possible_runs
from docparade.experiments.tables.table import Table, build_table
from docparade.experiments.tables.variants import Variant, list_variants
from docparade.retrieval.errors import InputError

MEASURES = ("nDCG@5", "AP@100")
QUERIES = [f"q{number}" for number in range(12)]
AXES = {
    "data": {name: {"data": {"name": name}} for name in ("news", "web")},
    "encoder": {name: {"model": {"encoder": name}} for name in ("small", "large", "huge")},
    "seed": {f"seed{number}": {"seed": number} for number in (1, 2, 3)},
}
Collection = Callable[..., list[Variant]]


def make_variants(folder: Path, axes: dict[str, Any] = AXES, **changes: Any) -> list[Variant]:
    """The variants of a recipe that nobody has run."""
    recipe = updated(tiny_recipe("encoder", {"variants": axes}), changes)
    (folder / "tiny.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    return list_variants(folder / "tiny.yaml", folder=folder / "outputs")


def leave_results(one: Variant, runs: tuple[str, ...] = ("first stage", "reranked"), **content: Any) -> None:
    """The files of a variant that is done; values are drawn by its name, those of the first stage by its data."""
    one.output.path.mkdir(parents=True)
    one.output.resolved.write_text(one.recipe.to_yaml())
    measured = {}
    for run in runs:
        draw = random.Random(one.labels["data"] if run == "first stage" else f"{one.recipe.name} {run}")
        per_query = {name: {query: draw.random() for query in QUERIES} for name in MEASURES}
        means = {name: statistics.fmean(values.values()) for name, values in per_query.items()}
        measured[run] = {"means": means, "significance": {}, "per_query": per_query}
    test = {"queries": len(QUERIES), "first_stage_weight": 0.3, "runs": measured}
    one.output.measures.write_text(json.dumps({"test": test, **content}))


def read(one: Variant, run: str = "reranked") -> dict[str, Any]:
    entry: dict[str, Any] = json.loads((one.output.path / "measures.json").read_text())["test"]["runs"][run]
    return entry


def tabulate(found: list[Variant], **layout: Any) -> Table:
    return build_table("tiny", found, Layout.of(layout, "tiny.yaml, table"), "tiny.yaml, table")


def select(found: list[Variant], **labels: str) -> list[Variant]:
    return [one for one in found if labels.items() <= one.labels.items()]


def numbers(table: Table) -> dict[tuple[str, ...], float | None]:
    """Name of the row, labels of the column and measure -> number."""
    return {
        (row.name, *column.labels.values(), column.measure): cell.value
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
    }


def test_every_number_is_that_of_its_variant(tmp_path: Path) -> None:
    found = make_variants(tmp_path)
    for one in found:
        leave_results(one)
    table = tabulate(found, rows=["encoder", "seed"], columns="data")
    expected = {
        (f"{one.labels['encoder']}, {one.labels['seed']}", one.labels["data"], name): read(one)["means"][name]
        for one in found
        for name in MEASURES
    }
    expected |= {
        ("first stage", one.labels["data"], name): read(one, "first stage")["means"][name]
        for one in found
        for name in MEASURES
    }
    assert numbers(table) == expected
    assert table.rows[0].name == "first stage" and table.missing == []
    assert table.header == ["encoder, seed, run", *(f"{data}, {name}" for data in ("news", "web") for name in MEASURES)]


def test_the_same_numbers_in_every_format(tmp_path: Path) -> None:
    found = make_variants(tmp_path)
    for one in found:
        leave_results(one)
    table = tabulate(found, rows="encoder", columns="data", median="seed", show="AP@100")
    values = [[cell.value for cell in row.cells] for row in table.rows]
    rows = list(csv.reader(io.StringIO(table.to_csv())))
    assert rows[0] == ["encoder", "run", "news", "web"]
    assert [row[:2] for row in rows[1:]] == [["", "first stage"], *([name, "reranked"] for name in AXES["encoder"])]
    assert [[float(cell) for cell in row[2:]] for row in rows[1:]] == values
    shown = table.to_dict()
    assert [[cell["value"] for cell in row["cells"]] for row in shown["rows"]] == values
    assert json.loads(json.dumps(shown)) == shown
    lines = table.to_markdown().splitlines()
    assert lines[0] == "tiny: AP@100, median over seed"
    assert lines[2] == "| encoder, run | news | web |"
    assert lines[4:] == [
        f"| {row.name} | {' | '.join(f'{cell.value:.4f}' for cell in row.cells)} |" for row in table.rows
    ]


@pytest.mark.parametrize(
    ("kind", "summarize"), [("median", statistics.median), ("mean", statistics.fmean), ("best", max)]
)
def test_summaries_are_over_the_variants_that_are_done(
    kind: str, summarize: Callable[[list[float]], float], tmp_path: Path
) -> None:
    found = make_variants(tmp_path)
    [absent] = select(found, data="web", encoder="large", seed="seed2")
    for one in found:
        if one is not absent:
            leave_results(one)
    table = tabulate(found, rows="encoder", columns="data", show="nDCG@5", runs="reranked", **{kind: "seed"})
    for (encoder, data, name), value in numbers(table).items():
        done = [one for one in select(found, data=data, encoder=encoder) if one is not absent]
        assert value == pytest.approx(summarize([read(one)["means"][name] for one in done]), abs=1e-12)
    assert [cell.found for row in table.rows for cell in row.cells] == [3, 3, 3, 2, 3, 3]
    assert table.lines()[1][2].endswith(" (2 of 3)")
    assert table.missing == [absent.recipe.name]
    if kind == "best":
        best = max(select(found, data="news", encoder="small"), key=lambda one: read(one)["means"]["nDCG@5"])
        assert table.lines()[0][1].endswith(f" ({best.labels['seed']})")


def test_missing_variants_are_shown_and_named(tmp_path: Path) -> None:
    found = make_variants(tmp_path)
    assert {cell for line in tabulate(found).lines() for cell in line[1:]} == {"missing"}
    for one in select(found, data="news"):
        leave_results(one)
    started = select(found, data="web")[0]
    started.output.path.mkdir(parents=True)
    started.output.resolved.write_text(started.recipe.to_yaml())
    table = tabulate(found, columns="data", show="AP@100")
    assert {line[2] for line in table.lines()} == {"missing"} and "missing" not in {line[1] for line in table.lines()}
    assert table.missing == [one.recipe.name for one in select(found, data="web")]
    assert table.caption == "9 of 18 variants are missing"
    assert table.to_csv().splitlines()[1].endswith(",")


def test_only_the_first_stage_is_taken_to_be_that_of_missing_variants(tmp_path: Path) -> None:
    axes = {"data": {"news": {}}, "seed": AXES["seed"]}
    found = make_variants(tmp_path, axes, rerank={"untrained": True})
    leave_results(found[0], runs=("first stage", "untrained", "reranked"))
    table = tabulate(found, mean="seed", runs="first stage, untrained, reranked")
    assert {row.name: row.cells[0].missing for row in table.rows} == {"first stage": 0, "untrained": 2, "reranked": 2}


@pytest.mark.slow
def test_a_first_stage_that_differs_has_a_row_each(tmp_path: Path) -> None:
    found = make_variants(tmp_path)
    for one in found:
        leave_results(one, ("first stage", "reranked", *(["untrained"] if one.labels["encoder"] == "huge" else [])))
    table = tabulate(found, runs="first stage,untrained,reranked", median="seed", columns="encoder", show="nDCG@5")
    names = [row.name for row in table.rows]
    assert names == [
        "news, first stage",
        "news, untrained",
        "news, reranked",
        *(name.replace("news", "web") for name in names[:3]),
    ]
    assert [line[1:3] for line in table.lines() if "untrained" in line[0]] == [["", ""]] * 2
    with pytest.raises(InputError, match=r"table: .*birch; .*first stage, reranked, untr"):
        tabulate(found, runs="birch")


def test_tests_are_against_the_same_column_of_the_baseline(tmp_path: Path) -> None:
    found = [one for one in make_variants(tmp_path) if one.labels["seed"] == "seed1"]
    for one in found:
        leave_results(one)
    table = tabulate(found, columns="data", baseline="large")
    count = 0
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            data, name = column.labels["data"], column.measure
            [base] = select(found, data=data, encoder="large")
            if row.name == "large":
                assert cell.test is None
                continue
            run = "first stage" if row.name == "first stage" else "reranked"
            [own] = select(found, data=data, encoder=row.labels["encoder"])
            values = [
                [read(one, of)["per_query"][name][query] for query in QUERIES]
                for one, of in ((own, run), (base, "reranked"))
            ]
            expected = ttest_rel(*values).pvalue
            assert cell.test is not None
            assert cell.test.p_value == pytest.approx(expected)
            assert cell.test.corrected == pytest.approx(min(1, 12 * expected)), "three rows, two columns, two measures"
            assert cell.test.difference == pytest.approx(statistics.fmean(values[0]) - statistics.fmean(values[1]))
            count += 1
    assert count == 12
    assert table.caption == "against large: † p < .05, ‡ p < .01 (paired t-test, Bonferroni over 12 tests)"


def test_tests_are_corrected_as_the_recipe_says(tmp_path: Path) -> None:
    found = make_variants(
        tmp_path, {"data": AXES["data"], "encoder": AXES["encoder"]}, significance={"correction": "none"}
    )
    for one in found:
        leave_results(one)
    table = tabulate(found, columns="data", baseline="large")
    tests = [cell.test for row in table.rows for cell in row.cells if cell.test]
    assert len(tests) == 12 and all(test.corrected == test.p_value for test in tests)
    assert table.caption.endswith("(paired t-test, 12 tests, not corrected)")


@pytest.mark.slow
def test_what_cannot_be_tested_is_refused(tmp_path: Path) -> None:
    found = make_variants(tmp_path)
    for one in found:
        leave_results(one)
    with pytest.raises(InputError, match=r"median .*baseline"):
        tabulate(found, median="seed", baseline="large")
    with pytest.raises(InputError, match=r"table: .*tiny; .*data: news, web; encoder"):
        tabulate(found, baseline="tiny")
    content = json.loads(found[0].output.measures.read_text())
    for values in content["test"]["runs"]["reranked"]["per_query"].values():
        del values["q3"]
    found[0].output.measures.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"baseline large .*news, small, seed1, test, reranked"):
        tabulate(found, baseline="large")


def test_results_of_another_recipe_are_refused(tmp_path: Path) -> None:
    found = make_variants(tmp_path)
    leave_results(found[0])
    again = make_variants(tmp_path, seed=7, training={"learning_rate": "2e-3"})
    with pytest.raises(InputError, match=r"tiny-news-small-seed1 .*\(stages\.training"):
        tabulate(again)
    # Also if the other recipe was stopped after it had trained something, and not before.
    other, last = again[0].output, again[-1].output
    other.measures.unlink()
    assert again[0].find_state() == "started" and again[-1].find_state() == "not run"
    other.checkpoints.mkdir()
    with pytest.raises(InputError, match=r"tiny-news-small-seed1 .*another recipe"):
        again[0].find_state()
    last.runs.mkdir(parents=True)
    with pytest.raises(InputError, match=r"tiny-web-huge-seed3 is not empty"):
        again[-1].find_state()


def test_damaged_measures_are_named(tmp_path: Path) -> None:
    found = make_variants(tmp_path)
    leave_results(found[0])
    for text in ("{", "[]", '{"test": {}}'):
        found[0].output.measures.write_text(text)
        with pytest.raises(InputError, match=r"tiny-news-small-seed1/measures\.json is damaged"):
            tabulate(found)


def test_other_numbers_of_models_have_columns(tmp_path: Path) -> None:
    found = make_variants(tmp_path, {"data": AXES["data"], "encoder": AXES["encoder"]})
    for one, parameters in zip(found, (1_200_000, 2, 3, 1_200_000, 2, 3), strict=True):
        leave_results(one)
        for fold in ("fold-s1", "fold-s2"):
            (one.output.path / fold / "model").mkdir(parents=True)
            record = {"parameters": parameters, "lora": False, "recipe": "tiny", "ms": {"fold-s1": 0.5}.get(fold, 1.0)}
            (one.output.path / fold / "model" / "measured.json").write_text(json.dumps(record))
    table = tabulate(found, columns="data", show="nDCG@5", runs="first stage,reranked")
    assert table.header == ["encoder, run", "news", "web", "parameters"], "all models take 0.75 ms"
    assert [line[3] for line in table.lines()] == ["", "1,200,000", "2", "3"], "the first stage has none"
    by_data = tabulate(found, columns="encoder", show="nDCG@5")
    assert by_data.header == ["data, run", *AXES["encoder"]], "the models of a row differ"


def test_combinations_that_are_no_variants(tmp_path: Path) -> None:
    axes = {"data": AXES["data"], "encoder": AXES["encoder"]}
    found = make_variants(tmp_path, axes, table={"leave_out": [["news", "huge"], ["news", "large"]]})
    assert [one.recipe.name for one in found] == [
        "tiny-news-small",
        "tiny-web-small",
        "tiny-web-large",
        "tiny-web-huge",
    ]
    leave_results(found[1])
    lines = tabulate(found, columns="data", show="AP@100", runs="reranked", leave_out=[["news", "huge"]]).lines()
    assert [line[1] for line in lines] == ["missing", "", ""]


def test_variants_are_chosen_by_labels(tmp_path: Path) -> None:
    make_variants(tmp_path)
    chosen = list_variants(tmp_path / "tiny.yaml", "web, huge,small,seed2", [("lora", "true")], tmp_path)
    assert [one.recipe.name for one in chosen] == ["tiny-web-small-seed2", "tiny-web-huge-seed2"]
    assert all(one.recipe.lora and one.output.path == tmp_path / one.recipe.name for one in chosen)
    with pytest.raises(InputError, match=r"variant big; .*data: news, web; encoder: small, large"):
        list_variants(tmp_path / "tiny.yaml", "big")


def test_options_move_axes() -> None:
    section = {"rows": "encoder, style", "columns": ["data", "rate"], "x": "rate", "median": "seed", "show": "AP"}
    assert lay_over(section, {"rows": None}) == {
        **{"rows": ["encoder", "style"], "columns": ["data", "rate"], "x": ["rate"], "median": ["seed"], "show": "AP"}
    }
    moved = lay_over(section, {"rows": "rate", "best": "seed,style", "baseline": "maxp"})
    assert moved == {
        **{"rows": ["rate"], "columns": ["data"], "show": "AP", "best": ["seed", "style"], "baseline": ["maxp"]}
    }
    layout = Layout.of(moved, "x").complete(
        {
            "data": ["a", "b"],
            "rate": ["1", "2"],
            "encoder": ["c", "d"],
            "style": ["e", "f"],
            "seed": ["g", "h"],
            "run": ["x"],
        },
        "x",
    )
    assert (layout.rows, layout.columns, layout.x) == (("rate", "encoder"), ("data",), ("data",))


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        ({"rows": "model"}, "there is no axis model; the axes are data, encoder, seed, run"),
        ({"rows": "seed", "columns": "seed"}, "the axis seed is named twice"),
        ({"median": "seed", "mean": "data"}, "give at most one of median, mean, best"),
        ({"x": "seed"}, "x is seed, and has to be among the columns"),
        ({"show": "RR"}, "RR was not measured; the recipe's measures are nDCG@5 AP@100"),
        ({"column": "seed"}, "there is no key column; did you mean columns?"),
        ({"runs": ""}, "runs: name at least one"),
    ],
)
def test_bad_layouts_are_one_sentence(layout: dict[str, str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tiny\.yaml, table") as error:
        tabulate(make_variants(tmp_path), **layout)
    assert sentence in str(error.value)


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_has_a_table(name: str, tmp_path: Path) -> None:
    two_of_each = ",".join(label for labels in variants(name).values() for label in labels[:2])
    found = list_variants(name, two_of_each, folder=tmp_path)
    table = build_table(name, found, Layout.of(table_section(name), name), name)
    assert len({one.output.path for one in found}) == len(found) == len(table.missing)


def test_a_baseline_that_is_not_shown(tmp_path: Path) -> None:
    found = make_variants(tmp_path, {"data": AXES["data"]})
    for one in found:
        leave_results(one)
    table = tabulate(found, columns="data", runs="reranked", baseline="first stage")
    assert len(table.rows) == 1
    for one, cell in zip(found, table.rows[0].cells[::2], strict=True):
        before, after = (read(one, run)["per_query"]["nDCG@5"] for run in ("first stage", "reranked"))
        p = ttest_rel(list(before.values()), list(after.values())).pvalue
        assert cell.test is not None and cell.test.p_value == pytest.approx(p)


def test_runs_are_checked_before_anything_is_measured(tmp_path: Path) -> None:
    axes = {"data": {"a": {}, "b": {"rerank": {"untrained": True}}}}
    found = make_variants(tmp_path, axes)
    with pytest.raises(InputError, match=r"rerankd; .*first stage, reranked, inter"):
        tabulate(found, runs="rerankd")
    leave_results(found[0])
    # Only a variant that is not done has this run.
    assert tabulate(found, runs="reranked,untrained").missing == [found[1].recipe.name]
    two = make_variants(tmp_path, axes, data={"folds": {"count": 2}})
    with pytest.raises(InputError, match="run interpolated"):
        tabulate(two[1:], runs="interpolated")
    tested = {"name": "web", "collection": "small", "birch": [1, 3], "folds": {"count": 3}}
    data = {"name": "small", "collection": "small", "folds": None, "validation_share": 0.2}
    birch = make_variants(tmp_path, axes, data=data, test=[tested])
    assert possible_runs(birch) == ["first stage", "reranked", "interpolated", "birch-1s", "birch-3s", "untrained"]


# --- Figures ---------------------------------------------------------------------------------------------------------


def test_a_figure_has_a_line_for_each_row(tmp_path: Path) -> None:
    rates = {"rate": {f"r{rate}": {"training": {"margin": rate}} for rate in ("0.5", "0.1", "0.25")}}
    found = make_variants(tmp_path, {"data": AXES["data"], "encoder": AXES["encoder"], **rates})
    [absent] = select(found, data="web", encoder="huge", rate="r0.1")
    for one in found:
        if one is not absent:
            leave_results(one)
    table = tabulate(found, columns="data, rate", show="nDCG@5")
    news, web = make_panels(table)
    assert (news.title, news.x_label, news.log) == ("news", "rate", False)
    assert (news.positions, news.ticks) == ([0.1, 0.25, 0.5], ["0.1", "0.25", "0.5"])
    for panel in (news, web):
        for encoder, values in panel.lines.items():
            own = {one.labels["rate"]: one for one in select(found, data=panel.title, encoder=encoder)}
            expected = [own[f"r{rate}"] for rate in panel.ticks]
            assert values == [None if one is absent else read(one)["means"]["nDCG@5"] for one in expected]
        assert list(panel.lines) == list(AXES["encoder"])
        assert panel.levels == {
            "first stage": read(select(found, data=panel.title)[1], "first stage")["means"]["nDCG@5"]
        }
    for ending in ("png", "svg"):
        draw_table(tmp_path / f"figure.{ending}", table)
        assert (tmp_path / f"figure.{ending}").stat().st_size > 5000


def test_settings_that_are_varied_one_at_a_time_have_a_panel_each(tmp_path: Path) -> None:
    settings = {name: {} for name in ("window8", "window16", "window32", "stride3", "stride5")}
    found = make_variants(tmp_path, {"data": AXES["data"], "setting": settings})
    for one in found:
        leave_results(one)
    window, stride = make_panels(tabulate(found, columns="setting", show="AP@100", runs="reranked"))
    assert (window.x_label, window.positions, window.log) == ("window", [8, 16, 32], True)
    assert (stride.x_label, stride.positions, stride.log) == ("stride", [3, 5], False)
    assert list(stride.lines) == ["news", "web"]


@pytest.mark.slow
def test_labels_without_numbers_stand_side_by_side(tmp_path: Path) -> None:
    found = make_variants(tmp_path)
    for one in found:
        leave_results(one)
    layout = {"columns": "data, encoder, seed", "x": "encoder, seed", "runs": "reranked"}
    panels = make_panels(tabulate(found, **layout))
    assert [panel.title for panel in panels] == ["news, nDCG@5", "news, AP@100", "web, nDCG@5", "web, AP@100"]
    assert panels[0].ticks[:2] == ["small, 1", "small, 2"] and panels[0].positions == list(range(9))
    assert list(panels[0].lines) == ["tiny"]
    with pytest.raises(InputError, match="--columns"):
        make_panels(tabulate(found))


def test_numbers_of_different_things_are_no_values(tmp_path: Path) -> None:
    found = make_variants(tmp_path, {"data": {name: {} for name in ("robust04", "gov2", "clueweb09")}})
    for one in found:
        leave_results(one)
    [panel] = make_panels(tabulate(found, columns="data", show="AP@100", runs="reranked"))
    assert (panel.x_label, panel.positions, panel.log) == ("data", [0, 1, 2], False)
    assert panel.ticks == ["robust04", "gov2", "clueweb09"]
    assert panel.lines == {"tiny": [read(one)["means"]["AP@100"] for one in found]}
