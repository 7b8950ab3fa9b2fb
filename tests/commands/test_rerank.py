"""`docparade rerank`: which models it takes, what it refuses before it loads one, and what it never overwrites."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.training import world
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from docparade import PRESETS, DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.commands.passage_options import parse_passage_options
from docparade.experiments.model_building import set_processor
from docparade.experiments.recipes.rerank_recipe import RerankRecipe
from docparade.modeling import Document, engine
from docparade.modeling.engine_vectors import PassageVectors
from docparade.modeling.sentences import sentence_spans
from docparade.reranking.caches import vector_encoding
from docparade.reranking.caches.vector_store import VectorStore
from docparade.reranking.loading import load_ranker
from docparade.reranking.processes import resumable_work
from docparade.reranking.rerank_run import rerank
from docparade.retrieval import Run, read_passage_scores, read_run, storage, write_run
from docparade.retrieval.errors import InputError

Command = Callable[..., tuple[int, str, str]]
QUERIES = 3


@pytest.fixture
def folder(
    tiny_ranker: Callable[..., DocumentRanker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A ranker, a collection and a run in the folder in which commands are run."""
    monkeypatch.setenv("DOCPARADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    tiny_ranker(ParadeForSequenceClassification, "max").save_pretrained(tmp_path / "model")
    small = world(QUERIES)
    (tmp_path / "collection").mkdir()
    lines = [json.dumps({**document, "doc_id": name}) for name, document in small.documents.items()]
    (tmp_path / "collection" / "docs.jsonl").write_text("\n".join(lines) + "\n")
    queries = [f"{name}\t{text}\n" for name, text in small.queries.items()]
    (tmp_path / "collection" / "queries.tsv").write_text("".join(queries))
    write_run(small.run, tmp_path / "bm25.txt")
    return tmp_path


def options(**changed: Any) -> list[str]:
    given = {"model": "model", "collection": "collection", "run": "bm25.txt", "output": "out.txt", **changed}
    return ["rerank", *(word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value)))]


def succeed(command_line: Command, **changed: Any) -> str:
    code, out, err = command_line(*options(**changed))
    assert (code, out) == (0, ""), err
    return err


def refuse(command_line: Command, **changed: Any) -> str:
    """The one sentence of a mistake."""
    code, out, err = command_line(*options(**changed))
    assert (code, out) == (2, ""), err
    assert len(err.splitlines()) == 1, err
    return err


def test_a_score_that_is_not_a_number_is_one_sentence(
    folder: Path, command_line: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = engine.aggregate_documents

    def overflow(model: DocumentRanker, documents: Any) -> list[engine.AggregatedDocument]:
        # As loading does, which scores one pair as a test; then weights overflow with some document.
        found = settled(model, documents)
        return found if len(found) == 1 else [one._replace(score=float("nan")) for one in found]

    monkeypatch.setattr(engine, "aggregate_documents", overflow)
    assert "is not a finite number" in refuse(command_line)


def same_run(found: Run, expected: Run) -> None:
    assert found.keys() == expected.keys()
    assert all(scores == pytest.approx(expected[query], abs=1e-5) for query, scores in found.items())


# --- Which models -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cross_encoder(folder: Path, encoder_folder: Callable[..., Path]) -> Path:
    """A plain sequence classifier with room for the passages of a paper's preset."""
    return classifier(folder / "cross-encoder", encoder_folder("bert"))


def classifier(place: Path, like: Path, labels: int = 1) -> Path:
    config = AutoConfig.from_pretrained(like, max_position_embeddings=300, num_labels=labels)
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(place)
    for file in like.glob("*token*"):
        shutil.copy(file, place)
    return place


def test_a_plain_cross_encoder_reads_with_maxp(cross_encoder: Path, command_line: Command, caplog: Any) -> None:
    succeed(command_line, model="cross-encoder", depth=5)
    said = [record.getMessage() for record in caplog.records if "plain cross-encoder" in record.getMessage()]
    assert len(said) == 1 and said[0].startswith(
        "--model: cross-encoder is a plain cross-encoder; it reads all passages of 225 tokens"
    )
    small = world(QUERIES)
    model = MaxPForSequenceClassification.from_cross_encoder(cross_encoder)
    same_run(read_run("out.txt"), rerank(model, small.run, small.queries, small.documents, 5))


def test_a_plain_encoder_decoder_reads_with_maxp(
    folder: Path, seq2seq_folder: Callable[..., Path], command_line: Command, caplog: Any
) -> None:
    shutil.copytree(seq2seq_folder(), folder / "monot5")
    succeed(command_line, model="monot5", depth=3)
    said = [record.getMessage() for record in caplog.records if "plain" in record.getMessage()]
    assert len(said) == 1 and said[0].startswith(
        "--model: monot5 is a plain encoder-decoder, which scores a passage by its answer 'true' or 'false'; it reads"
    )
    small = world(QUERIES)
    model = MaxPForSequenceClassification.from_cross_encoder(folder / "monot5")
    same_run(read_run("out.txt"), rerank(model, small.run, small.queries, small.documents, 3))
    (folder / "monot5" / "model.safetensors").rename(folder / "monot5" / "pytorch_model.bin")
    assert (
        "--model: monot5 cannot be loaded: monot5 has no model.safetensors. Pickled weights are not loaded"
        in refuse(command_line, model="monot5", output="other.txt")
    )


def test_a_ranker_is_loaded_without_a_warning(folder: Path, caplog: Any) -> None:
    load_ranker("model", "--model")
    assert "cross-encoder" not in caplog.text


def test_a_teacher_may_be_a_plain_cross_encoder(cross_encoder: Path) -> None:
    teacher = load_ranker(str(cross_encoder), "recipe.yaml, teacher")
    assert isinstance(teacher, MaxPForSequenceClassification)


def test_an_encoder_without_a_head_is_refused(
    folder: Path,
    encoder_folder: Callable[..., Path],
    command_line: Command,
) -> None:
    plain = encoder_folder("bert")
    assert f"--model: {plain} is a bert model, not a ranker" in refuse(command_line, model=plain)
    # What calls itself a classifier and has no head is no cross-encoder either.
    shutil.copytree(plain, folder / "headless")
    config = json.loads((plain / "config.json").read_text()) | {"architectures": ["BertForSequenceClassification"]}
    (folder / "headless" / "config.json").write_text(json.dumps(config))
    assert "headless is not a cross-encoder: it has no" in refuse(command_line, model="headless")


def test_a_classifier_of_three_labels_is_refused(
    folder: Path,
    encoder_folder: Callable[..., Path],
    command_line: Command,
) -> None:
    classifier(folder / "topics", encoder_folder("bert"), labels=3)
    assert "--model: topics cannot be loaded: The encoder has 3 labels" in refuse(command_line, model="topics")


def test_max_passages_changes_what_is_read(folder: Path, command_line: Command) -> None:
    small = world(QUERIES)
    for given, value in (("2", 2), ("all", None)):
        succeed(command_line, max_passages=given, output=f"{given}.txt")
        model = AutoModel.from_pretrained("model", max_passages=value)
        assert model.processor.max_passages == value
        same_run(read_run(f"{given}.txt"), rerank(model, small.run, small.queries, small.documents))
    assert read_run("2.txt") != read_run("all.txt")


@pytest.mark.parametrize("kind", ["cross-encoder", "bi-encoder"])
def test_a_preset_cuts_documents_into_sentences(
    kind: str, cross_encoder: Path, encoder_folder: Callable[..., Path], command_line: Command
) -> None:
    if kind == "bi-encoder":
        bi = {"pooling": "mean", "window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 12}
        MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **bi).save_pretrained("bi-encoder")
    succeed(command_line, model=kind, preset="yang2019", passage_scores="sentences.jsonl", depth=5)
    model = load_ranker(kind)
    longest = model.encoder.config.max_position_embeddings
    sentences: dict[str, Any] = {"unit": "sentence", "window": 1, "stride": 1, "max_passages": None}
    model.processor = model.require_processor().with_options(
        **sentences, max_query_tokens=None, max_length=longest, strip_tags=True
    )
    small = world(QUERIES)
    same_run(read_run("out.txt"), rerank(model, small.run, small.queries, small.documents, 5))
    # A sentence alone is a document of one passage, and has the sentence's score.
    scores = read_passage_scores("sentences.jsonl")
    query, document = next((q, d) for q, found in scores.items() for d, values in found.items() if len(values) > 1)
    text = " ".join(filter(None, (small.documents[document].get(part) for part in ("title", "text"))))
    alone = model.score([(small.queries[query], text[start:end]) for start, end in sentence_spans(text)])
    assert max(scores[query][document]) == pytest.approx(max(alone), abs=1e-5)
    assert "--preset is 'birch', and must be one of whole, zhang2021" in refuse(command_line, preset="birch")


def test_max_passages_of_a_plain_cross_encoder(cross_encoder: Path, command_line: Command, caplog: Any) -> None:
    succeed(command_line, model="cross-encoder", max_passages=2)
    assert "at most 2 passages" in caplog.text
    succeed(command_line, model="cross-encoder", max_passages="all")
    assert "it reads all passages" in caplog.text


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"window": 6, "stride": 3}, {"window": 6, "stride": 3}),
        ({"unit": "word", "max_passages": 2}, {"unit": "word", "max_passages": 2}),
        # Settings that are named win over the preset's; the tiny encoder has 96 positions.
        ({"preset": "yang2019", "max_passages": 4}, {**PRESETS["yang2019"], "max_length": 96, "max_passages": 4}),
        (
            {"preset": "zhang2021", "window": 9, "stride": 5},
            {**PRESETS["zhang2021"], "max_length": 96, "window": 9, "stride": 5},
        ),
    ],
    ids=" ".join,
)
def test_options_change_how_documents_are_cut(
    folder: Path, command_line: Command, caplog: Any, given: dict[str, Any], settings: dict[str, Any]
) -> None:
    small = world(QUERIES)
    succeed(command_line, **given)
    model = AutoModel.from_pretrained("model")
    own = model.processor
    model.processor = own.with_options(**settings)
    same_run(read_run("out.txt"), rerank(model, small.run, small.queries, small.documents))
    model.processor = own
    assert read_run("out.txt") != rerank(model, small.run, small.queries, small.documents)
    for preset, length in (("yang2019", 512), ("zhang2021", 256)):
        shorter = f"--model: model has inputs of 96 tokens, not of {length}: the encoder reads no more."
        assert (shorter in caplog.text) == (given.get("preset") == preset)


def test_long_queries_are_read_whole_on_request() -> None:
    assert parse_passage_options(None, None, None, None, None, "all") == {"max_query_tokens": None}
    assert parse_passage_options(None, None, None, None, None, "200") == {"max_query_tokens": 200}
    with pytest.raises(InputError, match="--max-query-tokens"):
        parse_passage_options(None, None, None, None, None, "0")


def test_a_preset_is_all_of_its_settings_as_in_recipes(encoder_folder: Callable[..., Path], tmp_path: Path) -> None:
    own = {"preset": "cip2021", "query_prompt": "query: ", "max_length": 96, "seed": 7}
    MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), pooling="mean", **own).save_pretrained(
        tmp_path / "bi"
    )
    reading = parse_passage_options("li2023", None, None, None, "4")
    found = load_ranker(str(tmp_path / "bi"), "--model", reading).require_processor().settings
    # cip2021 reads the first passages, each with the title.
    assert (found["selection"], found["repeat_title"], found["seed"]) == ("first_last_sample", False, 42)
    assert (found["window"], found["max_passages"]) == (225, 4)
    assert (found["separate"], found["query_prompt"]) == (True, "query: ")
    model = load_ranker(str(tmp_path / "bi"))
    # The tiny encoder has 96 positions, to which only the command line keeps by itself.
    chosen = {"preset": "li2023", "max_passages": 4, "max_length": 96}
    recipe = RerankRecipe.of({"processor": chosen}, "recipe.yaml, rerank")
    set_processor(model, recipe.processor_options, "recipe.yaml, rerank.processor")
    assert found == model.require_processor().settings


def test_options_change_how_documents_are_cut_for_kept_vectors(
    folder: Path, encoder_folder: Callable[..., Path], command_line: Command
) -> None:
    bi = {"pooling": "mean", "window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 12}
    model = MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **bi)
    model.save_pretrained("bi-encoder")
    small = world(QUERIES)
    succeed(command_line, model="bi-encoder", vectors="float32", window=6, stride=3)
    own = rerank(model, small.run, small.queries, small.documents)
    model.processor = model.require_processor().with_options(window=6, stride=3)
    same_run(read_run("out.txt"), rerank(model, small.run, small.queries, small.documents))
    assert read_run("out.txt") != own


def keep_bi_encoder(folder: Path, tiny_ranker: Callable[..., DocumentRanker], **options: Any) -> DocumentRanker:
    bi_encoder = tiny_ranker(MaxPForSequenceClassification, "max", pooling="mean", **options)
    bi_encoder.save_pretrained(folder / "bi-encoder")
    return bi_encoder


def test_an_interruption_is_said(folder: Path, command_line: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("docparade.reranking.loading.load_ranker", interrupt)
    code, out, err = command_line(*options())
    assert (code, out) == (130, "") and "interrupted; the same command goes on" in err


@pytest.mark.parametrize("late_interaction", [True, False])
def test_a_bi_encoder_encodes_each_document_once(
    late_interaction: bool,
    folder: Path,
    tiny_ranker: Callable[..., DocumentRanker],
    command_line: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = keep_bi_encoder(folder, tiny_ranker, late_interaction=late_interaction)
    encode, encoded = vector_encoding.encode_passages, []

    def count(ranker: DocumentRanker, documents: list[Document]) -> list[PassageVectors]:
        encoded.extend(document.text for document in documents)
        return encode(ranker, documents)

    monkeypatch.setattr(vector_encoding, "encode_passages", count)
    small = world(QUERIES)
    # Every query has found the same documents.
    found = {name: float(-place) for place, name in enumerate(list(small.documents)[:6])}
    write_run(dict.fromkeys(small.queries, found), "bm25.txt")
    said = succeed(command_line, model="bi-encoder", depth=4)
    size = re.search(r"vectors of 4 documents, about (\S+ MB), are kept in", said)
    assert size, said
    assert sorted(encoded) == sorted(small.documents[name]["text"] for name in list(found)[:4])
    expected = rerank(model, dict.fromkeys(small.queries, found), small.queries, small.documents, 4)
    same_run(read_run("out.txt"), expected)
    first = Path("out.txt").read_bytes()
    succeed(command_line, model="bi-encoder", depth=4, output="again.txt")
    assert len(encoded) == 4 and Path("again.txt").read_bytes() == first
    succeed(command_line, model="bi-encoder", depth=4, vectors="none", output="read.txt")
    same_run(read_run("read.txt"), expected)


@pytest.mark.parametrize(
    "given", [{"vectors": "none"}, {"keep_passages": 2}, {"max_passages_per_query": 4}, {"no_room": True}]
)
def test_texts_are_read_where_vectors_are_not_wanted_or_do_not_fit(
    given: dict[str, Any],
    folder: Path,
    tiny_ranker: Callable[..., DocumentRanker],
    command_line: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_bi_encoder(folder, tiny_ranker, late_interaction=True)
    no_room = "no_room" in given
    monkeypatch.setattr(storage.cache, "free_space", lambda place: 1000 if no_room else None)
    said = succeed(command_line, model="bi-encoder", depth=4, **({} if no_room else given))
    assert ("documents are read again for each query" in said) == no_room
    assert not (folder / "cache" / "vectors").exists()
    # Who names a type gets it.
    succeed(command_line, model="bi-encoder", depth=4, vectors="float32", output="kept.txt")
    assert (folder / "cache" / "vectors").exists()


def test_all_documents_of_a_bi_encoder_need_vectors(
    folder: Path, tiny_ranker: Callable[..., DocumentRanker], command_line: Command
) -> None:
    keep_bi_encoder(folder, tiny_ranker)
    command = ["rerank", "--collection", "collection", "--all-documents", "--model", "bi-encoder", "--output", "o.txt"]
    code, _, err = command_line(*command, "--vectors", "none")
    assert code == 2 and "--vectors none is for --run" in err


@pytest.mark.parametrize("vectors", [[], ["--vectors", "float16"]])
def test_a_query_without_text_is_found_before_documents_are_encoded(
    vectors: list[str],
    folder: Path,
    tiny_ranker: Callable[..., DocumentRanker],
    command_line: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_bi_encoder(folder, tiny_ranker)
    monkeypatch.setattr(vector_encoding, "encode_passages", lambda ranker, documents: pytest.fail("encoded"))
    queries = Path("collection/queries.tsv")
    queries.write_text(re.sub("q2\t.*", "q2\t\u00a0", queries.read_text()))
    code, _, err = command_line(*options(model="bi-encoder"), *vectors)
    assert code == 2 and "query q2" in err


@pytest.mark.parametrize("use", ["--vectors", "--choose-by"])
def test_only_the_documents_of_the_run_are_encoded(
    use: str, folder: Path, encoder_folder: Callable[..., Path], command_line: Command
) -> None:
    bi = {"pooling": "mean", "window": 12, "stride": 8, "max_length": 24, "max_query_tokens": 12}
    MaxPForSequenceClassification.from_bi_encoder(encoder_folder("bert"), **bi).save_pretrained("bi-encoder")
    kept: dict[str, Any] = {"model": "bi-encoder", "vectors": "float16"}
    given = kept if use == "--vectors" else {"choose_by": "bi-encoder", "keep_passages": 2}
    succeed(command_line, depth=2, **given)
    (made,) = (folder / "cache" / "vectors").glob("float16-*")
    assert len(VectorStore(made, "float16")) == 2 * QUERIES
    # Others are encoded once: those of the whole collection are used by the next run.
    code, _, err = command_line("encode", "--model", "bi-encoder", "--collection", "collection")
    assert code == 0, err
    segments = len(list(made.iterdir()))
    succeed(command_line, depth=3, output="whole.txt", **given)
    assert len(list(made.iterdir())) == segments == 2


def test_reading_in_half_precision(folder: Path, command_line: Command) -> None:
    small = world(QUERIES)
    succeed(command_line, dtype="bfloat16")
    model = AutoModel.from_pretrained("model", dtype=torch.bfloat16)
    same_run(read_run("out.txt"), rerank(model, small.run, small.queries, small.documents))
    assert "--dtype is 'int8', and must be one of float32, bfloat16, float16" in refuse(command_line, dtype="int8")


def test_the_first_queries_are_enough_for_a_look(folder: Path, command_line: Command) -> None:
    succeed(command_line, output="all.txt")
    succeed(command_line, max_queries=2)
    everything = read_run("all.txt")
    same_run(read_run("out.txt"), {query: everything[query] for query in list(read_run("bm25.txt"))[:2]})
    assert "--max-queries must be at least 1" in refuse(command_line, max_queries=0)


def test_the_first_stage_is_mixed_in(folder: Path, command_line: Command) -> None:
    said = succeed(command_line, depth=5, first_stage_share=0.25)
    assert "up to 5 documents of each reranked, 0.25 of the scores from --run" in said
    small = world(QUERIES)
    model = AutoModel.from_pretrained("model")
    same_run(read_run("out.txt"), rerank(model, small.run, small.queries, small.documents, 5, first_stage_share=0.25))


def test_other_passages_do_not_continue_an_output(
    folder: Path, command_line: Command, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    write = resumable_work.Parts.write

    def write_one(parts: resumable_work.Parts, number: int, made_from: Any, results: Any) -> None:
        if parts.count():
            raise KeyboardInterrupt
        write(parts, number, made_from, results)

    for output in ("out.txt", "same.txt"):
        with monkeypatch.context() as patch:
            patch.setattr(resumable_work.Parts, "write", write_one)
            code, _, _ = command_line(*options(window=6, stride=3, output=output))
        assert code != 0 and Path(f"{output}.parts").is_dir()
    succeed(command_line, window=6, stride=3, output="same.txt")
    assert "continuing" in caplog.text
    caplog.clear()
    succeed(command_line, window=6, stride=2)
    assert "other input (model): starting again" in caplog.text and "continuing" not in caplog.text


def test_a_window_shorter_than_the_models_stride(folder: Path, command_line: Command) -> None:
    sentence = refuse(command_line, window=4)
    assert "--model: model cannot read documents in this way: stride=8 is longer than window=4" in sentence


# --- What is damaged --------------------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("kind", ["model", "cross-encoder"])
def test_damaged_weights_are_named(kind: str, cross_encoder: Path, folder: Path, command_line: Command) -> None:
    truncate(folder / kind / "model.safetensors")
    sentence = refuse(command_line, model=kind)
    assert f"--model: {kind} cannot be loaded: {kind}/model.safetensors is damaged" in sentence


@pytest.mark.parametrize("name", ["config.json", "processor_config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_damaged_settings_are_one_sentence(name: str, content: str, folder: Path, command_line: Command) -> None:
    (folder / "model" / name).write_text(content)
    code, out, err = command_line(*options())
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("docparade: --model: model ") and "Traceback" not in err


def test_damaged_weights_of_a_teacher_are_named(folder: Path) -> None:
    truncate(folder / "model" / "model.safetensors")
    with pytest.raises(InputError, match=r"^recipe\.yaml, teacher: .*model/model\.safetensors"):
        load_ranker("model", "recipe.yaml, teacher")
    with pytest.raises(InputError, match=r"^model .*model/model\.safetensors is damaged"):
        load_ranker("model")


def test_a_folder_without_a_model_says_where_one_is(folder: Path, command_line: Command) -> None:
    (folder / "outputs").mkdir()
    shutil.move(folder / "model", folder / "outputs" / "model")
    assert "outputs cannot be loaded: the folder holds no model (config.json); outputs/model does." in refuse(
        command_line, model="outputs"
    )
    assert "collection cannot be loaded: the folder holds no model (config.json)." in refuse(
        command_line, model="collection"
    )
    assert "it is a file; name the folder" in refuse(command_line, model="bm25.txt")
    assert "there is no such folder." in refuse(command_line, model="outputs/other/model")
    assert "there is no such folder, and the H" in refuse(command_line, model="outputs/other")


# --- Before the model is loaded ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"depth": 0}, "--depth must be at least 1, and is 0."),
        ({"first_stage_share": 1.5}, "--first-stage-share must be from 0 to 1, and is 1.5."),
        ({"first_stage_share": "nan"}, "--first-stage-share must be from 0 to 1, and is nan."),
        ({"keep_passages": 0}, "--keep-passages must be at least 1, and is 0."),
        ({"max_passages_per_query": 0}, "--max-passages-per-query must be at least 1, and is 0."),
        ({"choose_by": "model"}, "--choose-by chooses passages; say how many, with --keep-passages or --max-passages-"),
        ({"choose_by": "", "keep_passages": 1}, "--choose-by is empty; name a folder, or an id on the Hub."),
        ({"keep_passages": 1, "max_passages_per_query": 1}, "both limit what is read; leave one of them out."),
        ({"passage_scores": "p.jsonl", "max_passages_per_query": 1}, "--max-passages-per-query may read none of some"),
        ({"vectors": "int8", "max_passages_per_query": 1}, "--max-passages-per-query is for reading texts, which"),
        ({"max_passages": 0}, "--max-passages must be a whole number from 1, or all, and is 0."),
        ({"max_passages": "some"}, "--max-passages must be a whole number from 1, or all, and is some."),
        ({"window": 0}, "--window must be at least 1, and is 0."),
        ({"stride": 0}, "--stride must be at least 1, and is 0."),
        ({"window": 4, "stride": 5}, "--stride 5 is more than --window 4: text between passages would not be read."),
        ({"unit": "line"}, "--unit is 'line', and must be one of token, word, sentence."),
        ({"preset": "li2032"}, "--preset is 'li2032', and must be one of whole, zhang2021, li2023, "),
        ({"output": "missing/out.txt"}, "--output missing/out.txt cannot be written: the folder"),
        ({"output": "collection"}, "--output collection is not a regular file"),
        ({"output": "/proc/out.txt"}, "--output /proc/out.txt cannot be written"),
        ({"passage_scores": "missing/p.jsonl"}, "--passage-scores missing/p.jsonl cannot be written"),
        ({"output": "bm25.txt"}, "--output bm25.txt is the same as --run; name another file."),
        ({"output": "collection/../bm25.txt"}, "is the same as --run"),
        ({"output": "link.txt"}, "--output link.txt is the same as --run"),
        ({"run": "link.txt", "output": "bm25.txt"}, "--output bm25.txt is the same as --run"),
        ({"passage_scores": "bm25.txt"}, "--passage-scores bm25.txt is the same as --run"),
        ({"passage_scores": "out.txt"}, "--passage-scores out.txt is the same as --output"),
        ({"output": "collection/queries.tsv"}, "is the same as queries.tsv of --collection"),
        ({"passage_scores": "model/config.json"}, "is the same as config.json of --model"),
        ({"passage_scores": "out.txt.parts"}, "--passage-scores out.txt.parts is the same as OUTPUT.parts"),
        ({"model": ""}, "--model is empty; name a folder, or an id on the Hub."),
        ({"run": "other.txt"}, "--run other.txt has query q9, which --collection collection does not have"),
        ({"run": "missing.txt"}, "missing.txt does not exist"),
    ],
)
def test_mistakes_are_reported_before_the_model_is_loaded(
    changed: dict[str, Any], sentence: str, folder: Path, command_line: Command
) -> None:
    truncate(folder / "model" / "model.safetensors")
    (folder / "link.txt").symlink_to("bm25.txt")
    write_run({"q9": {"q0-d0": 1.0}}, folder / "other.txt")
    before = (folder / "bm25.txt").read_bytes()
    assert sentence in refuse(command_line, **changed)
    assert (folder / "bm25.txt").read_bytes() == before


# --- The same loader elsewhere ----------------------------------------------------------------------------------------


def test_benchmark_and_export_take_a_plain_cross_encoder(cross_encoder: Path, command_line: Command) -> None:
    given = ["--collection", "collection", "--query", "license", "--model", "cross-encoder"]
    code, out, err = command_line("benchmark", *given, "--systems", "docparade", "--turns", "1", "--json")
    assert code == 0 and json.loads(out)["docparade"]["seconds"] >= 0, err
    code, _, err = command_line("export", "--model", "cross-encoder", "--output", "small")
    assert code == 0, err
    assert isinstance(AutoModel.from_pretrained("small"), MaxPForSequenceClassification)
    assert not list(Path().glob(".*unfinished"))


def test_a_compact_export_is_small_and_loads_in_full_precision(folder: Path, command_line: Command) -> None:
    code, _, err = command_line("export", "--model", "model", "--output", "small", "--form", "compact")
    assert code == 0, err
    sizes = [Path(name, "model.safetensors").stat().st_size for name in ("model", "small")]
    assert sizes[1] < 0.55 * sizes[0]
    large, small = (AutoModel.from_pretrained(name) for name in ("model", "small"))
    assert {weights.dtype for weights in small.parameters()} == {torch.float32}
    for (name, exact), rounded in zip(large.state_dict().items(), small.state_dict().values(), strict=True):
        # 3 bits after the point for word embeddings, 10 for all else.
        tolerance = 2**-4 if "word_embeddings" in name else 2**-11
        torch.testing.assert_close(rounded, exact, rtol=tolerance, atol=2**-10 if "word" in name else 1e-7)


def test_export_refuses_an_unknown_form(folder: Path, command_line: Command) -> None:
    code, _, err = command_line("export", "--model", "model", "--output", "small", "--form", "int4")
    assert code == 2 and "--form" in err and "int8, compact" in err and not Path("small").exists()


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("model", "--output model already exists; name a new folder."),
        ("bm25.txt/below", "is a file; name another folder."),
        ("/proc/small", "--output /proc/small cannot be written"),
    ],
)
def test_export_checks_its_folder_first(output: str, sentence: str, folder: Path, command_line: Command) -> None:
    truncate(folder / "model" / "model.safetensors")
    code, _, err = command_line("export", "--model", "model", "--output", output)
    assert code == 2 and sentence in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("command", ["export", "benchmark"])
def test_an_error_names_its_option_once(command: str, folder: Path, command_line: Command) -> None:
    truncate(folder / "model" / "model.safetensors")
    where = ["--output", "small"] if command == "export" else ["--collection", "collection"]
    code, _, err = command_line(command, "--model", "model", *where)
    assert code == 2 and err.startswith(
        "docparade: --model: model cannot be loaded: model/model.safetensors is damaged"
    )
    assert err.count("--model") == 1
