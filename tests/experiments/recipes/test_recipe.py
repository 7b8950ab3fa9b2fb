"""Recipes: every one of the project's resolves completely, and what is wrong in one is told in one sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ir_datasets
import pytest
import yaml
from hypothesis import given, settings, strategies as st
from support.project import PROJECT
from support.recipes import updated

from docparade.experiments.recipes.data_recipe import DataRecipe, FirstStageRecipe
from docparade.experiments.recipes.merging import read_recipe, variants
from docparade.experiments.recipes.recipe import Recipe, Stage
from docparade.experiments.recipes.recipe_loading import load_recipe
from docparade.experiments.recipes.typed_values import typed
from docparade.retrieval.errors import InputError
from docparade.retrieval.evaluation.measures import evaluate
from docparade.trainer.arguments import RankingTrainingArguments

RECIPES = sorted((PROJECT / "configs" / "recipes").glob("*.yaml"))
SMALL: dict[str, Any] = {
    "name": "small",
    "model": {"encoder": "org/encoder", "family": "maxp", "window": 100, "stride": 50},
    "data": {"collection": "cranfield", "folds": {"count": 5}},
    "training": {"learning_rate": "3e-6"},
}


BAD_NAMES = ("", "..", ".", "a/b", "a\\b", ".hidden", "-rf", "a" * 101, "é" * 51, "a:b")


def write(folder: Path, content: Any, name: str = "recipes/small.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
    return path


def each_label(path: Path) -> list[str]:
    """Every label of every axis, once; all first labels together are the empty choice."""
    return ["", *(label for labels in variants(path).values() for label in labels)]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_resolves_without_data(path: Path, tmp_path: Path) -> None:
    names = set()
    for label in each_label(path):
        recipe = load_recipe(path, label)
        names.add(recipe.name)
        assert recipe.name.startswith(path.stem)
        assert not recipe.paper or recipe.reproduces
        for data in all_data(recipe):
            check_data(data)
    assert len(names) == 1 + sum(len(labels) - 1 for labels in variants(path).values())
    again = load_recipe(write(tmp_path, recipe.to_yaml()))
    assert again.to_yaml() == recipe.to_yaml()


def all_data(recipe: Recipe) -> list[Any]:
    return [*recipe.test, *(data for stage in recipe.stages for data in (stage.data, *stage.validation))]


def check_data(data: Any) -> None:
    """ir_datasets knows the collection, and it has what the recipe asks of it."""
    for name in (*data.collection, *data.triples):
        if name.startswith(("data/", "docparade:")):
            continue
        known = ir_datasets.load(name)
        assert data.triples or data.qrels or known.has_qrels(), name
        assert not data.triples or known.has_docpairs(), name
        assert data.run != "scored_documents" or known.has_scoreddocs(), name
        assert data.query_field is None or data.query_field in known.queries_cls()._fields, name


def test_every_model_and_data_file_is_used() -> None:
    text = "\n".join(path.read_text() for folder in ("recipes", "data") for path in sorted_files(folder))
    for folder in ("models", "data"):
        for path in sorted_files(folder):
            assert path.stem in text, f"no recipe uses {path}"


def sorted_files(folder: str) -> list[Path]:
    return sorted((PROJECT / "configs" / folder).glob("*.yaml"))


def test_the_sizes_of_table_9_start_from_the_models_that_its_other_recipe_trains() -> None:
    made = {load_recipe("li2023-table9-passage", size).name for size in variants("li2023-table9-passage")["size"]}
    used = {load_recipe("li2023-table9", size).stages[0].model.source for size in variants("li2023-table9")["size"]}
    assert used == {f"outputs/{name}/model" for name in made}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_what_is_encoded_at_once_fits_a_gpu_of_24_gb(path: Path) -> None:
    """Plain training keeps about 0.25 GB of activations for 256 tokens in a base encoder, and 0.7 GB in a large one."""
    for label in each_label(path):
        recipe = load_recipe(path, label)
        for stage in recipe.stages if recipe.paper else ():
            # Without a limit, an input is as long as the encoder allows: ModernBERT reads 8192 tokens.
            tokens = inputs_at_once(stage) * (stage.model.processor_options["max_length"] or 8192)
            limit = 8 if "large" in stage.model.source else 64
            assert tokens <= limit * 256, f"{recipe.name}: set training.chunk_passages"


def inputs_at_once(stage: Stage) -> float:
    training, passages = stage.training, stage.model.processor_options["max_passages"]
    if training["chunk_passages"] is not None:
        return int(training["chunk_passages"])
    if stage.data.triples or stage.data.passage_filter:
        passages = 1
    elif training["passage_level"]:
        passages = 1 + training["passage_probability"] * (passages - 1)
    return 2.0 * training["batch_size"] * passages


def test_table_6_measures_the_equations_of_the_paper() -> None:
    grades = {"a": 0, "b": 3, "d": 1, "e": 2, "f": 3}
    ranked = ["d", "a", "unjudged", "b", "e"]
    rel, ideal = [grades.get(document, 0) for document in ranked], [3, 3, 2, 1]

    def dcg(labels: list[int]) -> float:  # equation 9
        return sum((2**label - 1) / math.log(1 + i) for i, label in enumerate(labels, start=1))

    def err(labels: list[int]) -> float:  # equation 11, with the highest label 3
        stop = [(2**label - 1) / 2**3 for label in labels]
        return sum(math.prod(1 - p for p in stop[: r - 1]) * stop[r - 1] / r for r in range(1, len(stop) + 1))

    gains, best = [2**label - 1 for label in rel], [2**label - 1 for label in ideal]
    blended = [  # Sakai's Q: at each relevant rank (relevant so far + gain so far) / (rank + ideal gain so far)
        (sum(gain > 0 for gain in gains[:r]) + sum(gains[:r])) / (r + sum(best[:r]))
        for r in range(1, len(rel) + 1)
        if rel[r - 1] > 0
    ]
    run = {"1": {document: -float(rank) for rank, document in enumerate(ranked)}}
    measures = load_recipe(PROJECT / "configs/recipes/li2023-table6.yaml").measures
    found = list(evaluate({"1": grades}, run, measures).means.values())
    assert found == pytest.approx([dcg(rel) / dcg(ideal), sum(blended) / 4, err(rel) / err(ideal)])


def test_overrides_come_over_variants_and_these_over_the_extended_recipe(tmp_path: Path) -> None:
    write(tmp_path, {"encoder": "org/other", "max_length": 128}, "models/other.yaml")
    write(tmp_path, SMALL, "recipes/base.yaml")
    path = write(
        tmp_path,
        {
            "extends": "base",
            "name": "upper",
            "model": "other",
            "variants": {"rate": {"slow": {"training": {"learning_rate": 1e-6}}, "fast": {"seed": 7}}},
        },
    )
    slow, fast = load_recipe(path), load_recipe(path, "fast")
    assert (slow.name, fast.name) == ("upper-slow", "upper-fast")
    assert (slow.stages[0].training["learning_rate"], slow.seed) == (1e-6, 42)
    assert (fast.stages[0].training["learning_rate"], fast.seed) == (3e-6, 7)
    assert slow.stages[0].model.encoder == "org/other"
    assert slow.stages[0].model.processor_options["window"] == 100
    assert slow.stages[0].model.processor_options["max_length"] == 128
    changed = load_recipe(path, "", [("training.learning_rate", "2e-5"), ("data.collection", "my-folder")])
    assert changed.stages[0].training["learning_rate"] == 2e-5
    assert changed.data.collection == ("my-folder",)
    assert changed.data.folds is not None


def test_another_method_drops_the_parameters_of_the_old_one(tmp_path: Path) -> None:
    stage = {"method": "bm25+rm3", "k1": 1.5, "feedback_terms": 20, "hits": 50}
    path = write(tmp_path, updated(SMALL, {"data": {"first_stage": stage}}))
    plain = load_recipe(path, "", [("data.first_stage.method", "bm25")]).data.first_stage
    assert plain == FirstStageRecipe("bm25", k1=1.5, hits=50)
    overrides = [("data.first_stage.mu", "500"), ("data.first_stage.method", "ql+rm3")]
    assert load_recipe(path, "", overrides).data.first_stage == FirstStageRecipe(
        "ql+rm3", mu=500.0, feedback_terms=20, hits=50
    )
    with pytest.raises(InputError, match=r"feedback_terms .*rm3, .*bm25"):
        load_recipe(path, "", [("data.first_stage", "{method: bm25, feedback_terms: 20}")])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("data.first_stage.mu", "500"), ("data.first_stage.method", "bm25")),
        (("data.first_stage", "{method: ql, mu: 500}"), ("data.first_stage.method", "bm25")),
        (("data.run", "bm25.txt"), ("data.first_stage.method", "bm25")),
        (("model.checkpoint", "outputs/a"), ("model.encoder", "org/other")),
    ],
)
def test_conflicting_overrides_are_refused_in_any_order(
    tmp_path: Path, first: tuple[str, str], second: tuple[str, str]
) -> None:
    path = write(tmp_path, SMALL)
    for overrides in ([first, second], [second, first]):
        if first[0] == "data.first_stage" and overrides[1] == first:
            assert load_recipe(path, "", overrides).data.first_stage == FirstStageRecipe("ql", mu=500.0)
            continue
        with pytest.raises(InputError, match=r"leave (it|one of the two) out"):
            load_recipe(path, "", overrides)


def test_the_last_of_two_overrides_of_one_key_counts(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    overrides = [("data.first_stage.k1", "1.2"), ("data.first_stage.k1", "1.5"), ("data.first_stage", "{b: 0.7}")]
    stage = load_recipe(path, "", overrides).data.first_stage
    assert stage is not None and (stage.k1, stage.b) == (1.5, 0.7)


def test_an_override_holds_for_every_stage_and_for_one_if_it_names_it(tmp_path: Path) -> None:
    content = {**SMALL, "stages": {"first": {"training": {"learning_rate": 1e-3}}, "second": {"data": SMALL["data"]}}}
    del content["data"]
    content["data"] = {"collection": "vaswani"}
    path = write(tmp_path, content)
    assert rates(load_recipe(path)) == [1e-3, 3e-6]
    assert rates(load_recipe(path, "", [("training.learning_rate", "0.5")])) == [0.5, 0.5]
    assert rates(load_recipe(path, "", [("stages.second.training.learning_rate", "0.5")])) == [1e-3, 0.5]


def rates(recipe: Recipe) -> list[float]:
    return [stage.training["learning_rate"] for stage in recipe.stages]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"trainnig": {}}, "there is no key trainnig; did you mean training?"),
        ({"training": {"lerning_rate": 1}}, "training: there is no key lerning_rate; did you mean learning_rate?"),
        ({"training": {"learning_rate": "fast"}}, "training.learning_rate: is 'fast', and has to be a number."),
        ({"training": {"learning_rate": 0}}, "training.learning_rate: is 0.0, and has to be above 0."),
        ({"training": {"loss": "hing"}}, "training.loss: is 'hing', and has to be one of hinge"),
        ({"training": {"log_level": "loud"}}, "training.log_level: is 'loud', and has to be one of detail, debug"),
        ({"training": {"adam_epsilon": 0}}, "training.adam_epsilon: is 0.0, and has to be above 0."),
        (
            {"training": {"eval_strategy": "hourly"}},
            "eval_strategy: is 'hourly', and has to be one of no, steps",
        ),
        ({"training": {"seed": 1}}, "training.seed: does not belong here; set the recipe's seed."),
        ({"training": {"per_device_train_batch_size": 1}}, "set batch_size"),
        ({"training": {"push_to_hub": True}}, "training.push_to_hub: does not belong here; publish the finished model"),
        ({"training": {"negative_ranks": [500]}}, "training.negative_ranks: is [500], and has to be a list of a whole"),
        ({"training": {"measure": "nDGC@20"}}, "'nDGC@20' is not a measure"),
        ({"training": {"passage_level": "yes"}}, "training.passage_level: is 'yes', and has to be true or false."),
        ({"model": {"family": "bert"}}, "model.family: is 'bert', and has to be one of maxp, parade, cedr."),
        ({"model": {"windw": 3}}, "model: there is no key windw; did you mean window?"),
        ({"model": {"stride": 200}}, "stride=200 is longer than window=100"),
        ({"model": {"aggregation": "median"}}, "aggregation is 'median', and has to be one of first, max"),
        ({"model": {"encoder": None}}, "model: names no weights; give exactly one of encoder, cross_encoder"),
        ({"model": {"encoder": "two words"}}, "encoder is 'two words', and has to be a Hub id, a folder"),
        ({"model": {"preset": "zhang"}}, "preset is 'zhang', and has to be one of whole, zhang2021"),
        ({"model": {"num_labels": 2, "family": "parade"}}, "num_labels goes with encoder and family maxp"),
        (
            {"model": {"num_labels": 1, "family": "maxp", "passage_score": "probability"}},
            "needs an encoder with 2 labels, and this one has 1",
        ),
        ({"data": {"folds": {"count": 1}}}, "data.folds: count is 1, and has to be at least 2."),
        ({"data": {"folds": {"count": 5, "file": "folds.json"}}}, "exactly one of count, file and leave_one_out"),
        ({"data": {"run": "bm25.txt", "first_stage": {"k1": 1}}}, "data: give either a run or a first_stage."),
        ({"data": {"first_stage": {"method": "bm52"}}}, "data.first_stage.method: is 'bm52', and has to be one of"),
        ({"data": {"first_stage": {"mu": 500}}}, "data.first_stage: mu belongs to ql, and the method is bm25; leave"),
        ({"data": {"first_stage": {"hits": 0}}}, "data.first_stage: hits is 0, and has to be at least 1."),
        ({"data": {"sample": {"style": "deep"}}}, "data.sample.rate: is missing; give a number."),
        ({"data": {"sample": {"style": "deep", "rate": 2}}}, "data.sample: rate is 2.0, and has to be above 0"),
        ({"data": {"birch": 5}}, "birch is numbers of passages, 1 to 4"),
        ({"data": {"birch": [1, 5]}}, "birch is numbers of passages, 1 to 4"),
        ({"data": {"birch": [2, 2]}}, "birch is [2, 2], and has to name each number of passages once."),
        (
            {"significance": {"correction": "holm"}},
            "significance.correction: is 'holm', and has to be one of bonferroni",
        ),
        ({"significance": "none"}, "significance: is 'none', and has to be a mapping of keys to values."),
        ({"test": {"collection": "cranfield"}}, "data.folds: says what is validated and tested"),
        ({"data": {"passage_filter": {"scorer": "x"}}}, "data: passage_filter does not go with folds"),
        ({"data": {"folds": {"count": None, "file": "f.json", "dev": False}}}, "data.folds: dev goes with count"),
        ({"training": {"examples": "lists"}}, "training.examples is 'lists', whose documents come one at a time"),
        (
            {
                "stages": {"t": {"data": {"triples": "msmarco-passage/train/triples-small"}}, "last": {}},
                "training": {"examples": "lists", "loss": "cross_entropy"},
            },
            "stages.t.training.examples: of triples, lists are read from files of JSON lines alone",
        ),
        (
            {
                "stages": {"t": {"data": {"triples": "a.jsonl"}}, "last": {}},
                "training": {"unretrieved_positives": True},
            },
            "stages.t.training.unretrieved_positives: is for the lists of a collection",
        ),
        ({"training": {"loss": "distillation"}}, "teacher: goes with training.loss distillation or margin_mse"),
        ({"teacher": "org/teacher"}, "teacher: goes with training.loss distillation or margin_mse"),
        ({"stages": {"a": {}, "b": {}}}, "stages.a.data.folds: belong to the last stage"),
        ({"rerank": {"processor": {"max_pasages": 3}}}, "rerank.processor: there is no key max_pasages; did you mean"),
        ({"rerank": {"processor": {"preset": ["li2023"]}}}, "processor.preset: is ['li2023'], and has to be one of"),
        ({"training": {"distillation_alpha": 2}}, "training.distillation_alpha is 2.0, and has to be from 0 to 1."),
        ({"training": {"warmup_steps": -1}}, "training.warmup_steps: is -1.0, and has to be at least 0."),
        (
            {"training": {"learning_rate": float("nan")}},
            "training.learning_rate: is nan, and has to be a finite number.",
        ),
        ({"training": {"num_train_epochs": float("inf")}}, "training.num_train_epochs: is inf, and has to be a finite"),
        ({"training": {"margin": float("nan")}}, "training.margin: is nan, and has to be a finite number."),
        ({"training": {"margin": ".nan"}}, "training.margin: is '.nan', and has to be a number."),
        ({"training": {"margin": "nan"}}, "training.margin: is 'nan', and has to be a finite number."),
        (
            {"training": {"head_learning_rate": "1e400"}},
            "head_learning_rate: is '1e400', and has to be a finite number.",
        ),
        ({"training": {"eval_delay": -float("inf")}}, "training.eval_delay: is -inf, and has to be a finite number."),
        (
            {"data": {"first_stage": {"k1": float("nan")}}},
            "data.first_stage.k1: is nan, and has to be a finite number.",
        ),
        (
            {"model": {"initializer_range": float("nan"), "family": "parade"}},
            "initializer_range: is nan, and has to be a",
        ),
        ({"seed": -1}, "seed is -1, and has to be from 0 to 4294967295."),
        ({"seed": 2**32}, "seed is 4294967296, and has to be from 0 to 4294967295."),
        ({"rerank": {"candidates": "some"}}, "rerank.candidates: is 'some', and has to be one of first_stage, all."),
        ({"measures": "nDCG@x"}, "is not a measure"),
        ({"seed": 1.5}, "seed: is 1.5, and has to be a whole number."),
        ({"name": "two words"}, "name: is 'two words', and has to be letters"),
        *[({"name": name}, "name: is ") for name in BAD_NAMES],
        *[({"data": {"name": name}}, "data: name is ") for name in BAD_NAMES],
        *[
            ({"data": {"collection": "a"}, "test": {"collection": "a", "name": name}}, "test.1: name is ")
            for name in BAD_NAMES
        ],
        *[({"validation": [{"collection": "a", "name": name}]}, "validation.1: name is ") for name in BAD_NAMES],
        *[
            (
                {"data": {"folds": None}, "validation": [{"collection": "a", "folds": {"count": 3}, **more}]},
                "validation.1: folds and birch are for test sets; leave them out.",
            )
            for more in ({}, {"birch": 1}, {"run": "{fold}.txt"}, {"first_stage": {"tune": {"k1": [1.0]}}})
        ],
        *[({"stages": {name: {}}}, "stages: the name of a stage is ") for name in BAD_NAMES],
        *[({"variants": {"size": {name: {}}}}, "variants.size: the label is ") for name in BAD_NAMES],
        ({"stages": ["first"]}, "stages: has to be a mapping of names to stages."),
        ({"extends": "nothing"}, "extends: there is no nothing;"),
        ({"model": "nothing"}, "extends: there is no nothing;"),
        ({"variants": ["a"]}, "variants: is a mapping of axes"),
    ],
)
def test_what_is_wrong_is_one_sentence(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path, updated(SMALL, change))
    with pytest.raises(InputError) as error:
        load_recipe(path)
    assert str(error.value).startswith(str(path))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: [", "not YAML"),
        ("name: a\nseed: 1\nname: b\n", "line 3: not YAML (the key name stands there twice)"),
        ("- a\n", "is no mapping of keys to values"),
        ("extends: small\nname: x\n", "extends this file in turn"),
        ("name: x\nmodel: {encoder: a}\n", "data: is missing"),
        ("seed: 1\n", "name: is missing"),
    ],
)
def test_a_file_that_is_no_recipe(text: str, sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=r"small\.yaml") as error:
        load_recipe(path)
    assert sentence in str(error.value)


def test_a_missing_file_and_an_unknown_variant(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        load_recipe(tmp_path / "nowhere.yaml")
    path = write(tmp_path, {**SMALL, "variants": {"size": {"small": {}, "large": {}}}})
    with pytest.raises(InputError, match=r"huge; .*size: small, large"):
        load_recipe(path, "huge")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    ),
    st.sampled_from([*SMALL, "validation", "test", "stages", "rerank", "seed", "variants", "extends", "teacher"]),
)
@settings(max_examples=40)
def test_whatever_a_section_holds_is_read_or_refused_with_the_file(value: Any, key: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), {**SMALL, key: value})
        try:
            load_recipe(path)
        except InputError as error:
            assert str(path) in str(error)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_may_be_written_as_text(value: float) -> None:
    assert typed(repr(value), float, "x") == value


def test_types_are_kept_apart() -> None:
    assert typed(1, str, "x") == "1"
    assert typed("1", int | str, "x") == "1"
    assert typed([1, 2], tuple[int, int] | None, "x") == (1, 2)
    for value, hint in ((True, int), (1, bool), (1.0, int), ("a", float), (None, int), ([1], tuple[int, int])):
        with pytest.raises(InputError, match=r"^x: is "):
            typed(value, hint, "x")


def test_reading_changes_nothing_in_what_was_read(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    assert read_recipe(path) == SMALL


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("? [a]\n: b\n", "line 1: not YAML (found unhashable key)"),
        ("name: x\nmodel: {encoder: ''}\ndata: {collection: a}\n", "model: encoder is '', and has to be a Hub id"),
    ],
)
def test_what_yaml_allows_and_a_recipe_does_not(text: str, sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as error:
        load_recipe(path)
    assert str(error.value).startswith(str(path))
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    "key",
    [
        "hub_token",
        "save_only_model",
        "ignore_data_skip",
        "dataloader_persistent_workers",
        "dataloader_in_order",
        "auto_find_batch_size",
        "restore_callback_states_from_checkpoint",
        "enable_jit_checkpoint",
        "eval_on_start",
        "accelerator_config",
        "local_rank",
        "label_smoothing_factor",
    ],
)
def test_settings_that_a_run_decides_itself(key: str, tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    with pytest.raises(InputError, match=rf"small\.yaml, training\.{key}: "):
        load_recipe(path, "", [(f"training.{key}", "true")])


def test_overrides_are_checked_like_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    for key, value, sentence in (
        ("training.margin", ".nan", "training.margin: is nan, and has to be a finite number."),
        ("seed", "-1", "seed is -1, and has to be from 0"),
        ("name", "../up", "name: is '../up', and has to be letters"),
        ("training.learning_rate", "9" * 5000, "training.learning_rate: is '9999"),
    ):
        with pytest.raises(InputError) as error:
            load_recipe(path, "", [(key, value)])
        assert sentence in str(error.value)
        assert len(str(error.value)) < 2000


def test_numbers_of_the_arguments_are_finite_in_python(tmp_path: Path) -> None:
    for options, sentence in (
        ({"margin": float("nan")}, "margin is nan, and has to be a finite number."),
        ({"learning_rate": float("inf")}, "learning_rate is inf, and has to be a finite number."),
        ({"warmup_epochs": -float("inf")}, "warmup_epochs is -inf, and has to be a finite number."),
        ({"seed": -1}, "seed is -1, and has to be from 0 to 4294967295."),
        ({"data_seed": 2**32}, "data_seed is 4294967296, and has to be from 0 to 4294967295."),
    ):
        with pytest.raises(InputError) as error:
            RankingTrainingArguments(str(tmp_path), **options)
        assert str(error.value) == sentence


def test_names_that_would_write_the_same_file_are_refused(tmp_path: Path) -> None:
    data = {"collection": "cranfield"}
    sets = [{**data, "name": "a"}, {**data, "name": "a-interpolated"}]
    path = write(tmp_path, {**SMALL, "data": data, "test": sets})
    with pytest.raises(InputError, match=r"test\.2\.name: .*runs/a-interpolated\.txt .*test\.1"):
        load_recipe(path)
    content = {**SMALL, "data": data, "validation": {**data, "name": "a"}, "test": {**data, "name": "validation-a"}}
    with pytest.raises(InputError, match=r"test\.1\.name: .*validation set"):
        load_recipe(write(tmp_path, content))


def test_a_set_without_a_name_has_one_that_is_a_file_name() -> None:
    def label(collection: str) -> str:
        return DataRecipe(collection=(collection,)).label

    assert label("disks45/nocr/trec-robust-2004") == "disks45-nocr-trec-robust-2004"
    assert label("../small") == "small"
    assert label("..") == label(".") == "data"
    assert len(label("a/" * 200)) <= 100


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("paper: 2021-02-31", "not YAML (day is out of range"),
        ("paper: !!python/object/apply:os.getcwd []", "not YAML (could not determine a constructor"),
        ('name: ""\nmodel: {encoder: a}\ndata: {collection: a}', "name: is '', and has to be letters"),
        ("name: x\nmodel: {extends: small.yaml}\ndata: {collection: a}", "small.yaml extends this file in turn"),
        ("name: x\nmodel: {extends: ../recipes/small.yaml}", "small.yaml extends this file in turn"),
        ("name: x\nmodel: {encoder: a}\ndata: {collection: a, gains: 1=b}", "gains: '1=b' is not a grade and its"),
        ("name: x\nmodel: {encoder: a}\ndata: {collection: a, gains: -1=out}", "data: gains: 'out' takes documents"),
        (
            "name: x\nmodel: {encoder: a}\ndata: {collection: a}\nteacher: 'a b'",
            "teacher: is 'a b', and has to be a Hub",
        ),
    ],
)
def test_odd_yaml_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as error:
        load_recipe(path)
    assert str(error.value).startswith(str(path))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000


def test_a_merged_mapping_has_keys_of_its_own(tmp_path: Path) -> None:
    """Also if it is merged in turn, by one that is not as deep."""
    text = "base: &base {paper: a}\nvariants: {axis: {label: &label {<<: *base, paper: b}}}\nrerank: {<<: *label}\n"
    assert read_recipe(write(tmp_path, text))["paper"] == "b"


def test_sections_that_extend_each_other(tmp_path: Path) -> None:
    write(tmp_path, {"extends": "two", "encoder": "x"}, "models/one.yaml")
    write(tmp_path, {"extends": "one"}, "models/two.yaml")
    path = write(tmp_path, {**SMALL, "model": "one"})
    with pytest.raises(InputError, match=r"two\.yaml, extends: one "):
        load_recipe(path)
    # A file may have the name of the one that it extends, if that is another.
    write(tmp_path, {"extends": "electra-base"}, "models/electra-base.yaml")
    assert load_recipe(write(tmp_path, {**SMALL, "model": "electra-base"})).stages[0].model.encoder
