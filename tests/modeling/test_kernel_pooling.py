"""KNRM and CEDR-KNRM against their formulas, written again on the encoder's and the tokenizer's own outputs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.project import LICENSE
from transformers import AutoModel, T5Config

from docparade import CedrConfig, CedrForSequenceClassification, DocumentRanker, MaxPForSequenceClassification
from docparade.modeling import KERNEL_AGGREGATORS
from docparade.modeling.engine import read_pairs
from docparade.retrieval.errors import InputError
from docparade.trainer.layer_selection import take_layers

QUERY = "grant of patent license"
# Passages of whole words, whose texts have the same tokens alone.
READING = {"unit": "word", "window": 7, "stride": 5, "max_length": 64, "max_query_tokens": 20}
CENTERS = [1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9]
# What differs: the exact kernel's width, the logarithm, separators, layers of the head.
FORMULAS = {
    "paper": (0.001, lambda x: math.log(x + 1e-6), False, {"knrm": 0, "max": 32, "avg": 32}, torch.relu),
    "capreolus": (0.01, lambda x: 0.01 * math.log(max(x, 1e-10)), True, dict.fromkeys(["knrm", "max", "avg"], 1024), 1),
}


def score_by_formula(model: DocumentRanker, text_of_passages: list[str], aggregation: str, formula: str) -> float:
    """The score of a document, token by token."""
    exact, log, separators, head_size, activation = FORMULAS[formula]
    tokenizer, encoder = model.processor.tokenizer, model.encoder
    count = encoder.config.num_hidden_layers
    layers = [count] if aggregation == "knrm" else range(count + 1)
    sums: dict[tuple[int, int, int], float] = {}
    vectors = []
    for text in text_of_passages:
        pair = tokenizer(QUERY, text or "a", return_tensors="pt")
        owners = pair.sequence_ids(0)
        if not text:  # the tokenizer takes an empty text for none
            kept = [place for place, owner in enumerate(owners) if owner != 1]
            owners = [owners[place] for place in kept]
            pair = {name: values[:, kept] for name, values in pair.items()}
        query = [place for place, owner in enumerate(owners) if owner == 0]
        passage = [place for place, owner in enumerate(owners) if owner == 1]
        if separators:  # after the query, all but the last special token: that is the passage's
            query += [place for place, owner in enumerate(owners[:-1]) if owner is None and place > query[-1]]
            passage.append(len(owners) - 1)
        with torch.no_grad():
            states = encoder(**pair, output_hidden_states=True).hidden_states
        vectors.append(states[-1][0, 0])
        for layer in layers:
            vector = states[layer][0] / states[layer][0].norm(dim=-1, keepdim=True)
            for term, place in enumerate(query):
                for kernel, center in enumerate(CENTERS):
                    width = exact if kernel == 0 else 0.1
                    close = torch.exp(-((vector[passage] @ vector[place] - center) ** 2) / (2 * width**2))
                    sums[layer, kernel, term] = sums.get((layer, kernel, term), 0.0) + float(close.sum())
    features = torch.tensor(
        [
            sum(log(sums[layer, kernel, term]) for term in range(len(query)))
            for layer in layers
            for kernel in range(len(CENTERS))
        ]
    )
    stacked = torch.stack(vectors)
    cls = {"knrm": stacked[0, :0], "max": stacked.amax(dim=0), "avg": stacked.mean(dim=0)}[aggregation]
    values = torch.cat([features, cls])
    head = model.aggregator
    assert (0 if head.hidden is None else head.hidden.out_features) == head_size[aggregation]
    if head.hidden is not None:
        values = head.hidden.weight @ values + head.hidden.bias
        values = activation(values) if callable(activation) else values
    return float(head.score.weight[0] @ values + head.score.bias)


@pytest.fixture
def build(encoder_folder: Callable[..., Path]) -> Callable[..., CedrForSequenceClassification]:
    def make(aggregation: str = "max", architecture: str = "bert", **options: object) -> CedrForSequenceClassification:
        folder = encoder_folder(architecture)
        torch.manual_seed(0)
        return CedrForSequenceClassification.from_encoder(folder, aggregation, **READING, **options)

    return make


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize(
    "aggregation, architecture", [("knrm", "bert"), ("max", "bert"), ("avg", "bert"), ("max", "roberta")]
)
def test_scores_are_those_of_the_formula(
    aggregation: str, architecture: str, formula: str, build: Callable[..., CedrForSequenceClassification]
) -> None:
    model = build(aggregation, architecture, formula=formula)
    texts = [" ".join(LICENSE.split()[start : start + words]) for start, words in ((0, 24), (40, 5), (9, 0))]
    for reading in read_pairs(model, [(QUERY, text) for text in texts]):
        # Tokens of RoBERTa include the space before a word.
        text = reading.document.text
        passages = [" " * (start > 0) + text[start:end] for start, end in reading.spans]
        with torch.no_grad():
            expected = score_by_formula(model, passages, aggregation, formula)
            alone = [score_by_formula(model, [passage], aggregation, formula) for passage in passages]
        assert reading.model_score == pytest.approx(expected, rel=2e-5, abs=2e-5)
        assert reading.passage_scores == pytest.approx(alone, rel=2e-5, abs=2e-5)
        assert sum(reading.weights) == pytest.approx(len(passages) if aggregation == "knrm" else 1)


def test_queries_of_other_lengths_change_nothing(build: Callable[..., CedrForSequenceClassification]) -> None:
    """Rows of query tokens that another query of the batch has, and this one does not, add nothing."""
    model = build("knrm")
    text = LICENSE[:400]
    queries = ["the work", QUERY, " ".join(LICENSE.split()[:9])]
    alone = [model.score([(query, text)])[0] for query in queries]
    assert len({round(score, 3) for score in alone}) == 3
    assert model.score([(query, text) for query in queries]) == pytest.approx(alone, rel=1e-5)


def test_a_query_that_is_cut_is_matched_as_far_as_it_is_read(
    build: Callable[..., CedrForSequenceClassification],
) -> None:
    model, text = build("knrm"), LICENSE[:300]
    tokens = model.processor.tokenizer(QUERY, add_special_tokens=False)["input_ids"]
    expected = model.score([("grant of", text)])
    cut = len(model.processor.tokenizer("grant of", add_special_tokens=False)["input_ids"])
    assert cut < len(tokens)
    model.processor = model.processor.with_options(max_query_tokens=cut)
    assert model.score([(QUERY, text)]) == pytest.approx(expected, rel=1e-6)


def test_layers_can_be_chosen(build: Callable[..., CedrForSequenceClassification]) -> None:
    assert build("knrm").config.matched_layers == build("knrm", match_layers=[-1]).config.matched_layers == [2]
    last, both = build("max", match_layers=[-1]), build("max", match_layers=[0, 2])
    assert (last.aggregator.counts, both.aggregator.counts, build("max").aggregator.counts) == (11, 22, 33)
    # The embeddings know no context: every passage has the same ones for the same token at the same place.
    model = build("knrm", match_layers=[0])
    assert model.score([(QUERY, LICENSE[:200])]) != build("knrm").score([(QUERY, LICENSE[:200])])
    with pytest.raises(ValueError, match=r"match_layers names 3, .* 0 .* to 2"):
        build("max", match_layers=[3])


def test_an_encoder_without_states_of_every_token_is_refused(
    build: Callable[..., CedrForSequenceClassification],
) -> None:
    with pytest.raises(ValueError, match=r"funnel.*match_layers=\[-1\]"):
        build("max", "funnel").score([(QUERY, LICENSE[:200])])
    assert build("max", "funnel", match_layers=[-1]).score([(QUERY, LICENSE[:200])])


def test_learned_kernels_are_trained_and_saved(
    build: Callable[..., CedrForSequenceClassification], tmp_path: Path
) -> None:
    model = build("knrm", formula="capreolus")
    assert model.reader.kernel_centers.tolist() == pytest.approx(CENTERS)
    assert model.reader.kernel_widths.tolist() == pytest.approx([0.01] + 10 * [0.1])
    assert not [name for name, _ in build("knrm").named_parameters() if "kernel" in name]
    model(**model.processor([QUERY], [LICENSE[:300]])).logits.sum().backward()
    assert model.reader.kernel_centers.grad.any() and model.reader.kernel_widths.grad.any()
    with torch.no_grad():
        model.reader.kernel_widths += 0.2
    model.save_pretrained(tmp_path)
    pairs = [(QUERY, LICENSE[:300])]
    loaded = AutoModel.from_pretrained(tmp_path)
    assert loaded.score(pairs) == model.score(pairs) != build("knrm", formula="capreolus").score(pairs)
    # The file says all, whatever the defaults are later.
    saved = json.loads((tmp_path / "config.json").read_text())
    assert (saved["exact_width"], saved["kernel_log"], saved["head_size"]) == (0.01, "scaled", 1024)
    other = CedrConfig.from_pretrained(tmp_path, formula="paper")
    assert (other.exact_width, other.match_separators, other.head_size) == (0.001, False, 0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"formula": "papers"}, "formula is 'papers', .*paper, capreolus"),
        ({"match_layers": []}, r"match_layers is \[\]"),
        ({"exact_width": 0}, "exact_width is 0"),
        ({"kernel_log": "log"}, "kernel_log is 'log'"),
        ({"head_size": -1}, "head_size is -1"),
        ({"head_activation": "none"}, "head_activation is 'none'"),
        ({"learn_kernels": "yes"}, "learn_kernels is 'yes'"),
        ({"encoder_config": T5Config()}, "type t5"),
        ({"aggregation": "attn"}, "aggregation is 'attn'.*KERNEL_AGGREGATORS"),
        ({"reader": {"kind": "bi_encoder", "pooling": ["cls"]}}, "layers"),
    ],
)
def test_wrong_settings_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CedrConfig(**options)


def test_inputs_without_a_separator_are_refused(build: Callable[..., CedrForSequenceClassification]) -> None:
    with pytest.raises(ValueError, match="separator"):
        build("knrm")(torch.full((1, 1, 9), 7))


def test_a_cedr_ranker_is_no_cross_encoder(build: Callable[..., CedrForSequenceClassification], tmp_path: Path) -> None:
    build("knrm").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="CEDR ranker"):
        MaxPForSequenceClassification.from_cross_encoder(tmp_path)


def test_fewer_layers_fit_a_ranker_that_matches_the_last(build: Callable[..., CedrForSequenceClassification]) -> None:
    assert take_layers(build("knrm"), [0]).config.matched_layers == [1]
    with pytest.raises(InputError, match=r"layers \[0, 1, 2\]"):
        take_layers(build("max"), [0])


def test_every_method_is_tested() -> None:
    assert set(FORMULAS["paper"][3]) == set(KERNEL_AGGREGATORS)
