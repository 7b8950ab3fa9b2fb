"""From a recipe's model to a ranker: a ranker of ours goes wherever a model of the Hub does, and keeps its settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from docparade import (
    CedrForSequenceClassification,
    DocumentProcessor,
    DocumentRanker,
    MaxPForSequenceClassification,
    ParadeForSequenceClassification,
)
from docparade.experiments.model_building import build_model, set_processor
from docparade.experiments.recipes.model_recipe import ModelRecipe, preset_settings
from docparade.experiments.recipes.recipe_loading import load_recipe
from docparade.modeling import FAMILIES, SCORE_AGGREGATORS, VECTOR_AGGREGATORS
from docparade.modeling.processing_settings import MONOT5_PROMPT
from docparade.retrieval import InputError

# Settings that no preset has.
OWN: dict[str, Any] = {
    "unit": "word",
    "window": 11,
    "stride": 7,
    "max_passages": 6,
    "selection": "first",
    "max_query_tokens": 9,
    "max_length": 64,
    "repeat_title": True,
    "title_words": 5,
    "heading_words": 4,
    "strip_tags": True,
    "seed": 3,
    "separate": False,
    "query_prompt": "",
    "passage_prompt": "",
    "prompt": "",
    "instruction": "",
}
PAIRS = [("grant of license", "the work is licensed " * 30), ("contributor", {"title": "work", "text": "patent " * 9})]


@pytest.fixture(scope="module")
def saved(encoder_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A folder with a ranker of each family."""
    source = encoder_folder("bert")
    torch.manual_seed(0)
    rankers = {
        "maxp": MaxPForSequenceClassification.from_encoder(source, "max", **OWN),
        "parade": ParadeForSequenceClassification.from_encoder(source, "transformer", **OWN),
        "cedr": CedrForSequenceClassification.from_encoder(source, "knrm", **OWN),
    }
    folder = tmp_path_factory.mktemp("rankers")
    for name, ranker in rankers.items():
        for weights in ranker.parameters():
            nn.init.normal_(weights, std=0.2)
        ranker.save_pretrained(folder / name)
    return {name: str(folder / name) for name in rankers}


def build(**section: Any) -> DocumentRanker:
    return build_model(ModelRecipe.of(section, "recipe.yaml, model"), "recipe.yaml, model")


def body(ranker: DocumentRanker) -> dict[str, torch.Tensor]:
    """The weights of the encoder without its head; PARADE leaves out a pooler that it does not use."""
    weights = ranker.encoder.base_model.state_dict()
    return {name: weight for name, weight in weights.items() if "pooler" not in name}


def assert_same_weights(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_two_labels_and_a_softmax(encoder_folder: Callable[..., Path], tmp_path: Path) -> None:
    section = {"encoder": str(encoder_folder("bert")), "family": "maxp", **OWN}
    ranker = build(**section, num_labels=2, passage_score="probability")
    assert ranker.encoder.classifier.out_features == 2
    assert build(**section, passage_score="probability").encoder.classifier.out_features == 2
    assert build(**section, num_labels=2).config.passage_score == "logit"
    ranker.save_pretrained(tmp_path)
    assert build(checkpoint=str(tmp_path), family="maxp").score(PAIRS) == pytest.approx(ranker.score(PAIRS), abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("source", FAMILIES)
def test_a_ranker_is_an_encoder(source: str, family: str, saved: dict[str, str]) -> None:
    trained = FAMILIES[source].from_pretrained(saved[source])
    built = build(family=family, encoder=saved[source], aggregation="avg", **OWN)
    assert (built.config.model_type, built.config.aggregation) == (family, "avg")
    assert not isinstance(built.encoder, DocumentRanker)
    assert len(built.score(PAIRS)) == 2
    assert_same_weights(body(built), body(trained))
    assert built.require_processor().settings == OWN


@pytest.mark.parametrize("aggregation", SCORE_AGGREGATORS)
def test_a_maxp_ranker_is_a_cross_encoder(aggregation: str, saved: dict[str, str]) -> None:
    trained = MaxPForSequenceClassification.from_pretrained(saved["maxp"])
    built = build(family="maxp", cross_encoder=saved["maxp"], aggregation=aggregation, **OWN)
    assert not isinstance(built.encoder, DocumentRanker)
    assert_same_weights(built.encoder.state_dict(), trained.encoder.state_dict())
    if aggregation == "max":
        assert built.score(PAIRS) == pytest.approx(trained.score(PAIRS), abs=1e-5)


@pytest.mark.parametrize("source", ["parade", "cedr"])
def test_a_ranker_without_passage_scores_is_no_cross_encoder(source: str, saved: dict[str, str]) -> None:
    with pytest.raises(InputError, match=rf"recipe\.yaml, model: .* is a {source.upper()} ranker"):
        build(family="maxp", cross_encoder=saved[source], **OWN)
    with pytest.raises(InputError, match=rf"use family {source}"):
        build(family="maxp", checkpoint=saved[source])


@pytest.mark.parametrize("aggregation", [None, *SCORE_AGGREGATORS])
def test_a_maxp_checkpoint_continues_with_any_aggregation(aggregation: str | None, saved: dict[str, str]) -> None:
    trained = MaxPForSequenceClassification.from_pretrained(saved["maxp"])
    built = build(family="maxp", checkpoint=saved["maxp"], **({"aggregation": aggregation} if aggregation else {}))
    assert built.config.aggregation == (aggregation or "max")
    assert_same_weights(built.encoder.state_dict(), trained.encoder.state_dict())
    if aggregation in (None, "max"):
        assert built.score(PAIRS) == trained.score(PAIRS)


@pytest.mark.parametrize("k", [None, 2])
def test_birch_on_a_maxp_checkpoint_starts_with_equal_weights(k: int | None, saved: dict[str, str]) -> None:
    options = {} if k is None else {"k": k}
    built = build(family="maxp", checkpoint=saved["maxp"], aggregation="birch", **options)
    count = k or 3
    assert built.config.k == count
    assert built.aggregator.rank_weights.tolist() == pytest.approx([1 / count] * count)


@pytest.mark.parametrize("source", FAMILIES)
@pytest.mark.parametrize("aggregation", VECTOR_AGGREGATORS)
def test_a_parade_ranker_continues_from_any_checkpoint(source: str, aggregation: str, saved: dict[str, str]) -> None:
    trained = FAMILIES[source].from_pretrained(saved[source])
    built = build(family="parade", checkpoint=saved[source], aggregation=aggregation)
    assert (built.config.model_type, built.config.aggregation) == ("parade", aggregation)
    assert len(built.score(PAIRS)) == 2
    assert_same_weights(body(built), body(trained))
    assert built.require_processor().settings == OWN
    if (source, aggregation) == ("parade", "transformer"):
        assert built.score(PAIRS) == trained.score(PAIRS)


@pytest.mark.parametrize("source", FAMILIES)
@pytest.mark.parametrize("aggregation", ["knrm", "avg"])
def test_a_cedr_ranker_continues_from_any_checkpoint(source: str, aggregation: str, saved: dict[str, str]) -> None:
    trained = FAMILIES[source].from_pretrained(saved[source])
    built = build(family="cedr", checkpoint=saved[source], aggregation=aggregation, kernel_log="scaled")
    assert (built.config.model_type, built.config.aggregation) == ("cedr", aggregation)
    assert built.config.kernel_log == "scaled"
    assert_same_weights(body(built), body(trained))
    assert built.require_processor().settings == OWN
    if (source, aggregation) == ("cedr", "knrm"):
        assert torch.equal(built.aggregator.score.weight, trained.aggregator.score.weight)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_keeps_the_settings_that_the_recipe_does_not_name(family: str, saved: dict[str, str]) -> None:
    def settings(**section: Any) -> dict[str, Any]:
        return build(family=family, checkpoint=saved[family], **section).require_processor().settings

    assert settings() == OWN
    assert settings(max_passages=2) == {**OWN, "max_passages": 2}
    assert settings(window=20, stride=None) == {**OWN, "window": 20, "stride": None}
    # A preset is all settings of a paper.
    paper = settings(preset="zhang2021", max_length=90, max_passages=4)
    assert paper == {
        **preset_settings("zhang2021"),
        "max_length": 90,
        "max_passages": 4,
        "prompt": "",
        "instruction": "",
    }


def test_fewer_passages_are_read_as_a_loaded_ranker_reads_them(saved: dict[str, str]) -> None:
    trained = ParadeForSequenceClassification.from_pretrained(saved["parade"])
    trained.require_processor().max_passages = 2
    built = build(family="parade", checkpoint=saved["parade"], max_passages=2)
    assert built.config.max_passages == 6
    assert built.score(PAIRS) == trained.score(PAIRS)


def test_settings_that_conflict_with_the_checkpoints_own_are_refused(saved: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"^recipe\.yaml, model: stride=12 .*window=11"):
        build(family="maxp", checkpoint=saved["maxp"], stride=12)
    with pytest.raises(InputError, match=r"^recipe\.yaml, model: max_length=97 .*96"):
        build(family="maxp", checkpoint=saved["maxp"], max_length=97)


def test_set_processor_changes_what_it_is_given_and_nothing_else(tiny_ranker: Callable[..., DocumentRanker]) -> None:
    ranker = tiny_ranker(MaxPForSequenceClassification, "max", seed=5)
    before = ranker.require_processor()
    set_processor(ranker, {"max_passages": None}, "here")
    assert ranker.require_processor().settings == {**before.settings, "max_passages": None}
    with pytest.raises(InputError, match=r"^here: unit is 'page'"):
        set_processor(ranker, {"unit": "page"}, "here")
    ranker.processor = before


def test_the_resolved_recipe_says_what_was_run(saved: dict[str, str], tmp_path: Path) -> None:
    content = {"name": "x", "data": {"collection": "cranfield"}, "model": {"family": "maxp", "aggregation": "max"}}

    def resolved(**model: Any) -> dict[str, Any]:
        path = tmp_path / "x.yaml"
        path.write_text(yaml.safe_dump({**content, "model": {**content["model"], **model}}), encoding="utf-8")
        recipe = load_recipe(path)
        path.write_text(recipe.to_yaml(), encoding="utf-8")
        assert load_recipe(path).to_yaml() == recipe.to_yaml()
        return recipe.stages[0].model.to_dict()

    # All passages, which the configuration of a PARADE model has no number for.
    assert resolved(encoder="org/encoder", family="parade", aggregation="attn")["max_passages"] is None
    # Of a checkpoint what the recipe names; of an encoder every setting, so that later defaults change nothing.
    named = {"family": "maxp", "aggregation": "max", "checkpoint": saved["maxp"], "max_passages": 3}
    assert resolved(checkpoint=saved["maxp"], max_passages=3) == named
    full = resolved(encoder="org/encoder", max_passages=3)
    named = preset_settings("li2023")
    of_models = ["prompt", "instruction"]
    assert {name: full[name] for name in OWN if name not in of_models} == {**named, "max_passages": 3}
    assert [*named, *of_models] == list(DocumentProcessor.from_pretrained(saved["maxp"]).settings)


@pytest.mark.parametrize("family", ["maxp", "parade"])
def test_a_ranker_on_a_bi_encoder_continues(
    family: str, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    """As it is; another family on its encoder reads query and passage together."""
    trained = tiny_ranker(FAMILIES[family], "max", pooling="mean", query_prompt="the terms: ")
    trained.save_pretrained(tmp_path / "trained")
    built = build(family=family, checkpoint=str(tmp_path / "trained"))
    assert built.score(PAIRS) == pytest.approx(trained.score(PAIRS), abs=1e-5)
    built = build(family="parade", checkpoint=str(tmp_path / "trained"), aggregation="attn")
    assert not built.reader.separate
    assert_same_weights(body(built), body(trained))
    processor = built.require_processor()
    assert (processor.separate, processor.query_prompt, processor.window) == (False, "", 12)
    assert len(built.score(PAIRS)) == 2


def test_a_bi_encoder_is_built_with_its_own_settings(encoder_folder: Callable[..., Path], tmp_path: Path) -> None:
    """Its prompts and length are kept, unless the recipe names others; the resolved recipe builds the same."""
    modules = pytest.importorskip("sentence_transformers.sentence_transformer").modules
    encoder = modules.Transformer(str(encoder_folder("bert")))
    encoder.max_seq_length = 40
    parts = [encoder, modules.Pooling(encoder.get_embedding_dimension(), pooling_mode="cls")]
    prompts = {"query": "terms: ", "document": "license: "}
    sentence_transformers = pytest.importorskip("sentence_transformers")
    sentence_transformers.SentenceTransformer(modules=parts, prompts=prompts, device="cpu").save(str(tmp_path / "bi"))
    given = {"family": "maxp", "bi_encoder": str(tmp_path / "bi"), "window": 12, "stride": 8, "max_query_tokens": 8}
    section = ModelRecipe.of(given, "recipe.yaml, model")
    ranker = build_model(section, "recipe.yaml, model")
    assert ranker.config.reader.pooling == ["cls"]
    settings = ranker.require_processor().settings
    assert (settings["query_prompt"], settings["passage_prompt"], settings["max_length"]) == (
        "terms: ",
        "license: ",
        40,
    )
    again = build_model(ModelRecipe.of(section.to_dict(), "resolved.yaml, model"), "resolved.yaml, model")
    assert again.require_processor().settings == settings
    named = ModelRecipe.of({**given, "query_prompt": "", "max_length": 32}, "recipe.yaml, model")
    other = build_model(named, "recipe.yaml, model").require_processor()
    assert (other.query_prompt, other.passage_prompt, other.max_length) == ("", "license: ", 32)


@pytest.mark.parametrize("late", [False, True])
def test_a_bi_encoder_compares_tokens_as_it_did_unless_the_recipe_says(
    late: bool, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_ranker(FAMILIES["maxp"], "max", pooling="mean", late_interaction=late).save_pretrained(tmp_path)
    for said, expected in [({}, late), ({"late_interaction": True}, True), ({"late_interaction": False}, False)]:
        given = {"family": "maxp", "bi_encoder": str(tmp_path), **said}
        section = ModelRecipe.of(given, "recipe.yaml, model")
        for content in (given, section.to_dict()):
            built = build_model(ModelRecipe.of(content, "recipe.yaml, model"), "recipe.yaml, model")
            assert (built.config.reader.kind == "late_interaction") is expected


def recipe_model(name: str, variant: str = "", **changes: Any) -> DocumentRanker:
    """The ranker of a recipe that comes with docparade, with changes as on the command line."""
    overrides = [(f"model.{key}", str(value)) for key, value in {**changes, "max_length": 90}.items()]
    stage = load_recipe(name, variant, overrides).stages[0]
    return build_model(stage.model, f"{name}, model")


def test_a_passage_model_trained_here_is_the_start_of_the_papers_models(
    encoder_folder: Callable[..., Path], tmp_path: Path
) -> None:
    """What docparade train li2023-passage leaves takes the place of Capreolus/electra-base-msmarco in every recipe."""
    torch.manual_seed(0)
    trained = recipe_model("li2023-passage", encoder=encoder_folder("electra"))
    assert (trained.config.model_type, trained.config.aggregation) == ("maxp", "first")
    trained.save_pretrained(tmp_path)
    for name, variant in [("li2023", ""), ("li2023-table2", "cnn"), ("li2023-table8", "parade")]:
        built = recipe_model(name, variant, encoder=tmp_path)
        assert built.config.model_type == "parade"
        assert_same_weights(body(built), body(trained))
        assert built.require_processor().window == 225
    cross_encoders = [
        ("li2023-table2", "birch"),
        ("li2023-table7", "maxp"),
        ("zhang2021-table2", "electra-base-msmarco"),
    ]
    for name, variant in cross_encoders:
        # Its head has one label, so there is no probability.
        built = recipe_model(name, variant, cross_encoder=tmp_path, passage_score="logit")
        assert built.config.aggregation == ("birch" if variant == "birch" else "max")
        assert_same_weights(built.encoder.state_dict(), trained.encoder.state_dict())
        one_passage = [("grant of license", "the work")]
        assert built.score(one_passage) == pytest.approx(trained.score(one_passage), abs=1e-5)
    # With a new head.
    built = recipe_model("zhang2021-table2", "electra-base", encoder=tmp_path)
    assert_same_weights(body(built), body(trained))


def test_an_encoder_decoder_has_words_and_a_prompt(seq2seq_folder: Callable[..., Path], tmp_path: Path) -> None:
    """Also with a preset's passages, after saving, and from the resolved recipe."""
    given = {"family": "maxp", "cross_encoder": str(seq2seq_folder()), "true_token": "yes", "preset": "zhang2021"}
    section = ModelRecipe.of(given, "recipe.yaml, model")
    ranker = build_model(section, "recipe.yaml, model")
    assert (ranker.config.reader.true_token, ranker.config.reader.false_token) == ("yes", "false")
    assert (ranker.processor.prompt, ranker.processor.window) == (MONOT5_PROMPT, 150)
    again = build_model(ModelRecipe.of(section.to_dict(), "resolved.yaml, model"), "resolved.yaml, model")
    assert again.require_processor().settings == ranker.require_processor().settings
    assert again.score(PAIRS) == pytest.approx(ranker.score(PAIRS), abs=1e-6)
    ranker.save_pretrained(tmp_path)
    other = build(family="maxp", checkpoint=str(tmp_path), preset="li2023", aggregation="avg")
    assert (other.processor.prompt, other.processor.window) == (MONOT5_PROMPT, 225)
    set_processor(other, preset_settings("yang2019"), "recipe.yaml, rerank.processor")
    assert (other.processor.prompt, other.processor.unit) == (MONOT5_PROMPT, "sentence")
    with pytest.raises(InputError, match=r"false_token .*cross_encoder"):
        ModelRecipe.of({"encoder": "org/encoder", "family": "maxp", "false_token": "no"}, "recipe.yaml, model")
    with pytest.raises(InputError, match="true_token is 'relevant'"):
        build(family="maxp", cross_encoder=str(seq2seq_folder()), true_token="relevant")
