"""A ranker that was trained here is a source of weights wherever a Hub model is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.marks import others_slow
from support.project import DOCUMENTS, QUERY
from support.scores import model_scores
from transformers import AutoModel, AutoModelForSequenceClassification

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification, to_int8

SETTINGS = {"window": 12, "stride": 8, "max_passages": 5, "max_length": 24, "max_query_tokens": 8}
PAIRS = [(QUERY, document) for document in DOCUMENTS]
ARCHITECTURES = ["bert", "electra", "roberta", "distilbert", "albert", "mpnet"]


@pytest.fixture
def saved(encoder_folder: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """The folder of a ranker: `saved(family, aggregation, architecture)`."""

    def save(family: type[DocumentRanker], aggregation: str, architecture: str = "bert") -> Path:
        folder = encoder_folder(architecture)
        torch.manual_seed(3)
        family.from_encoder(folder, aggregation=aggregation, **SETTINGS).save_pretrained(tmp_path / "ranker")
        return tmp_path / "ranker"

    return save


def scores(model: DocumentRanker) -> torch.Tensor:
    return torch.tensor(model_scores(model, PAIRS))


def assert_reads_alike(model: DocumentRanker, tmp_path: Path) -> None:
    """The engine, the padded `forward`, one passage alone, and the model after saving and loading give one score."""
    found = scores(model)
    batch = model.processor([QUERY] * len(DOCUMENTS), DOCUMENTS)
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits[:, 0], found, rtol=1e-5, atol=1e-5)
        alone = model.processor([QUERY], ["terms"])
        assert alone["input_ids"].shape[1] == 1
        torch.testing.assert_close(
            model(**alone).logits[0], torch.tensor(model.score([(QUERY, "terms")])), rtol=1e-5, atol=1e-5
        )
    model.save_pretrained(tmp_path / "again")
    torch.testing.assert_close(scores(AutoModel.from_pretrained(tmp_path / "again")), found, rtol=1e-5, atol=1e-5)


# Each architecture is a source and a target of both families, with all four pairs of families over two of them.
@pytest.mark.parametrize(
    ("architecture", "source", "target"),
    others_slow(
        [
            (architecture, source, target if number % 2 else source)
            for number, architecture in enumerate(ARCHITECTURES)
            for source, target in (("maxp", "parade"), ("parade", "maxp"))
        ],
        fast=(0, 3),
    ),
)
def test_from_encoder_takes_the_encoder_of_a_ranker(
    source: str, target: str, architecture: str, saved: Callable[..., Path], tmp_path: Path
) -> None:
    families = {
        "maxp": (MaxPForSequenceClassification, "max"),
        "parade": (ParadeForSequenceClassification, "transformer"),
    }
    folder = saved(*families[source], architecture)
    family, aggregation = families[target]
    model = family.from_encoder(folder, aggregation=aggregation, **SETTINGS)
    assert isinstance(model, family)
    first = AutoModel.from_pretrained(folder).encoder.base_model.state_dict()
    taken = model.encoder.base_model.state_dict()
    kept = taken.keys() & first.keys()
    assert len(kept) > 10
    assert all(torch.equal(taken[name], first[name]) for name in kept)
    assert_reads_alike(model, tmp_path)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_from_cross_encoder_takes_the_scorer_of_a_ranker(
    architecture: str, saved: Callable[..., Path], tmp_path: Path
) -> None:
    folder = saved(MaxPForSequenceClassification, "max", architecture)
    model = MaxPForSequenceClassification.from_cross_encoder(folder, aggregation="max", **SETTINGS)
    torch.testing.assert_close(scores(model), scores(AutoModel.from_pretrained(folder)))
    assert_reads_alike(model, tmp_path)


def test_a_parade_ranker_is_no_cross_encoder(saved: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"PARADE ranker.*from_encoder"):
        MaxPForSequenceClassification.from_cross_encoder(saved(ParadeForSequenceClassification, "avg"))


def test_integers_are_no_source(saved: Callable[..., Path], tmp_path: Path) -> None:
    to_int8(AutoModel.from_pretrained(saved(MaxPForSequenceClassification, "max"))).save_pretrained(tmp_path / "int8")
    for build in (ParadeForSequenceClassification.from_encoder, MaxPForSequenceClassification.from_cross_encoder):
        with pytest.raises(ValueError, match="8-bit integers"):
            build(tmp_path / "int8")


def test_birch_on_a_checkpoint_of_another_aggregation(saved: Callable[..., Path], tmp_path: Path) -> None:
    folder = saved(MaxPForSequenceClassification, "max")
    for load in (AutoModel, MaxPForSequenceClassification):
        model = load.from_pretrained(folder, aggregation="birch")
        assert model.config.k == 3
        torch.testing.assert_close(model.aggregator.rank_weights.detach(), torch.full((3,), 1 / 3))
    assert AutoModel.from_pretrained(folder, aggregation="birch", k=2).aggregator.rank_weights.shape == (2,)
    # Birch's own checkpoint has to have them.
    model.save_pretrained(tmp_path / "birch")
    from safetensors.torch import load_file, save_file

    weights = load_file(tmp_path / "birch" / "model.safetensors")
    del weights["aggregator.rank_weights"]
    save_file(weights, tmp_path / "birch" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks 1 weights.*rank_weights"):
        AutoModel.from_pretrained(tmp_path / "birch")


def test_fields_that_are_changed_at_loading_are_checked(saved: Callable[..., Path]) -> None:
    folder = saved(MaxPForSequenceClassification, "max")
    with pytest.raises(ValueError, match="passage_score is 'odds'"):
        AutoModel.from_pretrained(folder, passage_score="odds")
    with pytest.raises(ValueError, match="aggregation is 'best'"):
        MaxPForSequenceClassification.from_pretrained(folder, aggregation="best")


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_from_encoder_puts_a_new_head_on_a_cross_encoder(labels: int, encoder_folder: Callable[..., Path]) -> None:
    folder = encoder_folder("bert", labels)
    old = AutoModelForSequenceClassification.from_pretrained(folder)
    model = MaxPForSequenceClassification.from_encoder(folder, **SETTINGS)
    assert model.encoder.classifier.weight.shape == (1, 32)
    assert not torch.equal(model.encoder.classifier.weight, old.classifier.weight)
    assert torch.equal(model.encoder.bert.pooler.dense.weight, old.bert.pooler.dense.weight)


def test_a_rankers_settings_are_kept(encoder_folder: Callable[..., Path], tmp_path: Path) -> None:
    options = {"window": 9, "stride": 7, "max_length": 40, "max_query_tokens": 8, "passage_score": "probability"}
    folder = encoder_folder("bert", labels=2)
    MaxPForSequenceClassification.from_cross_encoder(folder, **options).save_pretrained(tmp_path)
    scorer = MaxPForSequenceClassification.from_cross_encoder(tmp_path)
    assert scorer.config.passage_score == "probability"
    for model in (scorer, ParadeForSequenceClassification.from_encoder(tmp_path, aggregation="attn", stride=5)):
        assert (model.processor.window, model.processor.max_length, model.processor.max_passages) == (9, 40, None)
    assert (scorer.processor.stride, model.processor.stride) == (7, 5)
    assert (
        ParadeForSequenceClassification.from_encoder(tmp_path, preset="li2023", max_length=96).processor.window == 225
    )


def test_other_shapes_are_told(saved: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"shapes .*config\.json"):
        AutoModel.from_pretrained(saved(MaxPForSequenceClassification, "birch"), k=5)
