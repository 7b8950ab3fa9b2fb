"""An aggregation is a class and a line in its table, and so is a reader: nothing else has to know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from support.project import DOCUMENTS, QUERY
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.experiments.recipes.model_recipe import ModelRecipe
from docparade.hub_cards import write_card
from docparade.modeling import READERS, SCORE_AGGREGATORS, Aggregation, Aggregator, MaxPConfig, Reader, ReaderSettings
from docparade.modeling.ranker_source import Source, Start

SETTINGS = {"window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 8}


class SoftmaxPassage(Aggregator):
    """The mean of the passages' scores, weighted by their softmax."""

    weight_means = "the softmax of the passages' scores"
    settings: ClassVar[dict[str, Any]] = {"sharpness": 1.0}
    title = "SoftmaxP"
    does = "the mean of its passages' scores, weighted by their softmax with the sharpness {sharpness}"
    drawn = ("softmax", "weighted mean")
    papers = ("zhang2021",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.sharpness = config.sharpness

    def forward(self, passages: Tensor, mask: Tensor) -> Aggregation:
        weights = (passages * self.sharpness).masked_fill(~mask, float("-inf")).softmax(dim=1)
        return Aggregation((passages.masked_fill(~mask, 0) * weights).sum(dim=1), weights)


@dataclass(frozen=True)
class MeanOfTokensSettings(ReaderSettings):
    """Which element of the tokens' vectors is the score, and how it is scaled."""

    kind = "mean_of_tokens"

    element: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.element < 0:
            raise ValueError(f"element is {self.element!r}, and has to be a whole number from 0.")


class MeanOfTokens(Reader):
    """The score of a passage is the mean of one element of its tokens' vectors."""

    settings_class = MeanOfTokensSettings
    features = frozenset({"score"})
    card_tag = "token-reader"
    card_limits = ("It looks at one element of the vectors.",)
    papers = ("nogueira2020",)
    drawn_encoder = "mean of tokens"

    @classmethod
    def describe_reading(cls, feature: str, config: Mapping[str, Any], processor: Mapping[str, Any]) -> str:
        """Names the element."""
        return f"A passage's {feature} is the mean of element {config['reader']['element']} of its tokens."

    @classmethod
    def start(cls, source: Source, wanted: Mapping[str, Any]) -> Start | None:
        """Any encoder without a head."""
        if source.has_head("ForSequenceClassification"):
            return None
        return Start(source.load(AutoModel), MeanOfTokensSettings(element=3, scale=2.0))

    @property
    def all_states(self) -> bool:
        return True

    def features_of(self, output: Any, inputs: dict[str, Tensor]) -> Tensor:
        settings, real = self.config.reader, inputs["attention_mask"]
        values = output.last_hidden_state[..., settings.element] * real
        return settings.scale * values.sum(dim=1) / real.sum(dim=1)


@pytest.fixture
def own_aggregation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCORE_AGGREGATORS, "softmax", SoftmaxPassage)


@pytest.fixture
def own_reader() -> Iterator[None]:
    before = dict(READERS)
    READERS.clear()
    # Before the cross-encoder, which is the last to be offered a plain model.
    READERS.update({"mean_of_tokens": MeanOfTokens, **before})
    yield
    READERS.clear()
    READERS.update(before)


def softmax_of_passages(model: DocumentRanker, sharpness: float) -> dict[int, float]:
    expected = {}
    for ranked in model.rank(QUERY, DOCUMENTS):
        scores = torch.tensor([passage.score for passage in ranked.passages])
        expected[ranked.index] = float((scores * (scores * sharpness).softmax(dim=0)).sum())
    return expected


def ranked_scores(model: DocumentRanker) -> dict[int, float]:
    return {ranked.index: ranked.score for ranked in model.rank(QUERY, DOCUMENTS) if not ranked.empty}


def compare(found: dict[int, float], expected: dict[int, float]) -> None:
    assert found and found == pytest.approx({index: expected[index] for index in found}, abs=1e-5)


@pytest.mark.usefixtures("own_aggregation")
def test_an_aggregation_is_a_class_and_a_line(
    encoder_folder: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = encoder_folder("bert", 1)
    model = MaxPForSequenceClassification.from_cross_encoder(folder, "softmax", **SETTINGS)
    compare(ranked_scores(model), softmax_of_passages(model, 1.0))
    options: dict[str, Any] = {**SETTINGS, "sharpness": 0.2}
    model = MaxPForSequenceClassification.from_cross_encoder(folder, "softmax", **options)
    compare(ranked_scores(model), softmax_of_passages(model, 0.2))
    model.save_pretrained(tmp_path)
    assert "does not contain the code of its aggregation 'softmax'" in caplog.text
    loaded = AutoModel.from_pretrained(tmp_path)
    assert loaded.config.sharpness == 0.2
    compare(ranked_scores(loaded), ranked_scores(model))
    changed = AutoModel.from_pretrained(tmp_path, sharpness=5.0)
    compare(ranked_scores(changed), softmax_of_passages(changed, 5.0))

    card = write_card(tmp_path).read_text()
    assert "| method | SoftmaxP |" in card
    assert "weighted by their softmax with the sharpness 0.2" in card
    assert "─┼─► softmax ─► weighted mean ─► score" in card
    assert "zhang2021comparing" in card


@pytest.mark.usefixtures("own_aggregation")
def test_a_recipe_takes_the_settings_of_an_aggregation() -> None:
    section = {"family": "maxp", "cross_encoder": "org/name", "aggregation": "softmax", "sharpness": 2}
    assert ModelRecipe.of(section, "model").config_options == {"aggregation": "softmax", "sharpness": 2.0}


@pytest.mark.usefixtures("own_aggregation")
def test_an_aggregation_without_a_description_has_a_card(
    encoder_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SoftmaxPassage, "does", "")
    MaxPForSequenceClassification.from_cross_encoder(encoder_folder("bert", 1), "softmax", **SETTINGS).save_pretrained(
        tmp_path
    )
    assert "the aggregation “softmax”" in write_card(tmp_path).read_text()


@pytest.mark.usefixtures("own_reader")
def test_a_reader_is_a_class_and_a_line(
    encoder_folder: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = MaxPForSequenceClassification.from_cross_encoder(encoder_folder("bert"), "max", **SETTINGS)
    assert model.config.reader == MeanOfTokensSettings(element=3, scale=2.0)
    scores = ranked_scores(model)
    compare(scores, {index: mean_of_tokens(model, DOCUMENTS[index]) for index in scores})
    model.save_pretrained(tmp_path)
    assert "does not contain the code of its reader 'mean_of_tokens'" in caplog.text
    loaded = AutoModel.from_pretrained(tmp_path)
    assert isinstance(loaded.reader, MeanOfTokens) and loaded.config.reader == model.config.reader
    compare(ranked_scores(loaded), scores)
    card = write_card(tmp_path).read_text()
    assert "A passage's score is the mean of element 3 of its tokens." in card
    assert "query + passage 1 ─► mean of tokens ─► s1 ─┐" in card
    assert "- token-reader" in card and "It looks at one element" in card and "nogueira2020document" in card
    # A cross-encoder is still read by its own reader, and another ranker can be built on this one.
    plain = MaxPForSequenceClassification.from_cross_encoder(encoder_folder("bert", 1), "max", **SETTINGS)
    assert plain.reader.settings_class.kind == "cross_encoder"
    again = MaxPForSequenceClassification.from_cross_encoder(tmp_path, "avg")
    assert isinstance(again.reader, MeanOfTokens)
    with pytest.raises(ValueError, match="element is -1"):
        MaxPConfig(model.encoder.config, reader={"kind": "mean_of_tokens", "element": -1})


def mean_of_tokens(model: DocumentRanker, document: Any) -> float:
    """The greatest score of a passage, each read alone by the encoder."""
    batch = model.require_processor()([QUERY], [document])
    scores = []
    encoder: PreTrainedModel = AutoModel.from_config(model.encoder.config).eval()
    encoder.load_state_dict(model.encoder.state_dict())
    for passage in range(batch["input_ids"].size(1)):
        inputs = {name: values[0, passage : passage + 1] for name, values in batch.items() if name != "passage_mask"}
        real = inputs["attention_mask"].bool()
        inputs = {name: values[real][None] for name, values in inputs.items()}
        with torch.no_grad():
            scores.append(2 * float(encoder(**inputs).last_hidden_state[0, :, 3].mean()))
    return max(scores)
