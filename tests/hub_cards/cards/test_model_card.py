"""Cards of models that were really trained and measured."""

from __future__ import annotations

import copy
import getpass
import json
import re
import shlex
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard, ModelCardData
from support.project import FAMILIES, ON_BI_ENCODERS, PROJECT
from support.recipes import fail, succeed
from support.training import World, arguments

from docparade import DocumentRanker, MaxPForSequenceClassification, to_int8
from docparade.hub_cards import CardFields, missing_card_fields, write_card
from docparade.hub_cards.cards.methods import draw_method
from docparade.hub_cards.cards.old_card import NOTES_START
from docparade.hub_cards.cards.papers import BIBTEX
from docparade.hub_cards.cards.result_tables import commands
from docparade.hub_cards.cards.saved_model import SavedModel
from docparade.trainer.trainer import RankingTrainer

FIELDS = CardFields(repo_id="docparade/tiny", license="apache-2.0", language=("en",))


def rows(text: str) -> dict[str, list[str]]:
    """The rows of all tables of a text, by their first cell."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {row[0]: row[1:] for row in cells}


def section(text: str, title: str) -> str:
    """The text below a heading."""
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


# --- Figures ---------------------------------------------------------------------------------------------------------


def test_figures_are_those_that_evaluate_prints(world: Path, checkpoint: Path) -> None:
    text = write_card(checkpoint, FIELDS).read_text()
    first, *_ = (world / "out/first-stage").glob("small*.txt")
    evaluate = ("evaluate", "--collection", "small", "--measures", "nDCG@5 AP@100")
    printed = succeed(*evaluate, "--baseline", str(first), str(first), "out/runs/everything.txt")
    printed += succeed(*evaluate, "out/runs/everything-interpolated.txt")  # which is not tested
    values = [line.split()[1:] for line in printed.splitlines() if re.search(r"\d\.\d{4}", line)]
    in_card = rows(section(text, "Results"))
    assert [in_card["first stage"], in_card["reranked"], in_card["interpolated"]] == values
    recorded = json.loads((world / "out/measures.json").read_text())["everything"]
    assert f"{recorded['queries']} judged queries" in section(text, "Results")
    assert "Bonferroni over 2 tests" in text


def test_the_commands_of_a_card_give_its_figures(world: Path, checkpoint: Path) -> None:
    record = json.loads((checkpoint / "measured.json").read_text())
    # As if the collection were public.
    record["test"][0] |= {"collection": ["small"], "local": False}
    (checkpoint / "measured.json").write_text(json.dumps(record))
    text = write_card(checkpoint, FIELDS).read_text()
    [block] = re.findall(r"```sh\n(.*?)```", section(text, "Results"), flags=re.DOTALL)
    commands = [shlex.split(line)[1:] for line in block.replace("docparade/tiny", str(checkpoint)).splitlines()]
    assert [command[0] for command in commands] == ["retrieve", "rerank", "evaluate"]
    try:
        *_, printed = [succeed(*command) for command in commands]
    finally:
        for name in ("first-stage.txt", "reranked.txt"):
            (world / name).unlink(missing_ok=True)
    means = [
        [f"{value:.4f}" for value in record["test"][0]["runs"][run]["means"].values()]
        for run in ("first stage", "reranked")
    ]
    printed_means = [re.findall(r"\d\.\d{4}", line) for line in printed.splitlines() if re.search(r"\d\.\d{4}", line)]
    assert printed_means == means


def test_metadata_is_what_the_hub_reads(checkpoint: Path) -> None:
    path = write_card(checkpoint, FIELDS)
    data = ModelCard.load(path).data
    assert (data.pipeline_tag, data.library_name, data.license, data.language) == (
        *("text-ranking", "transformers"),
        *("apache-2.0", "en"),
    )
    assert {"docparade", "reranker", "maxp", "cross-encoder"} <= set(data.tags)
    measured = json.loads((checkpoint / "measured.json").read_text())["test"][0]["runs"]["reranked"]["means"]
    assert {result.metric_name: result.metric_value for result in data.eval_results} == {
        name: round(value, 4) for name, value in measured.items()
    }
    assert data.model_name == "tiny"
    assert data.metrics == ["ndcg@5", "ap@100"]
    assert all({"source_sentence", "sentences"} <= set(example) for example in data.widget)


def test_metadata_survives_huggingface_hub(checkpoint: Path) -> None:
    path = write_card(checkpoint, FIELDS)
    card = ModelCard.load(path)
    assert yaml.safe_load(card.data.to_yaml()) == card.data.to_dict()
    assert ModelCardData(**card.data.to_dict()).to_dict() == card.data.to_dict()
    card.save(path)
    assert ModelCard.load(path).data.to_dict() == card.data.to_dict()
    write_card(checkpoint)  # what huggingface_hub saved again counts as unchanged


def test_training_is_that_of_the_record(checkpoint: Path) -> None:
    text = section(write_card(checkpoint, FIELDS).read_text(), "Training")
    record, log = (json.loads((checkpoint / name).read_text()) for name in ("measured.json", "training_log.json"))
    assert rows(text)["`learning_rate`"] == ["0.001"]
    assert rows(text)["pairs per step"] == ["4"]
    assert f"torch {record['versions']['torch']}" in text
    assert f"Hardware and time: {log['hardware']['name']}; " in text
    assert log["seconds"] > 0 and log["losses"]
    assert "![Learning curve](learning_curve.png)" in text
    assert (checkpoint / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert "small (not public)" in text
    record["arguments"] |= {"examples": "lists", "loss": "cross_entropy"}
    (checkpoint / "measured.json").write_text(json.dumps(record))
    of_lists = rows(section(write_card(checkpoint, FIELDS).read_text(), "Training"))
    assert (of_lists["`examples`"], of_lists["documents per step"]) == (["lists"], ["4"])


def test_without_matplotlib_there_is_a_table(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_card(checkpoint, FIELDS)
    monkeypatch.setattr("docparade.hub_cards.cards.training.find_spec", lambda name: None)
    text = section(write_card(checkpoint, FIELDS).read_text(), "Training")
    history = json.loads((checkpoint / "measured.json").read_text())["history"]
    assert not (checkpoint / "learning_curve.png").exists() and "learning_curve" not in text
    assert all(f"| {one['nDCG@5']:.4f} |" in text for one in history)


def test_licenses_and_encoder(checkpoint: Path) -> None:
    text = write_card(checkpoint, CardFields(license="mit", data_license="public domain")).read_text()
    licenses = section(text, "Licenses")
    assert "Weights: mit." in licenses and "Training data: public domain." in licenses
    assert "The encoder they were trained from: mit." in licenses
    assert rows(text)["encoder"] == ["bert, 2 layers, width 32"]
    linked = write_card(checkpoint, CardFields(base_model="user/encoder")).read_text()
    assert "[user/encoder](https://huggingface.co/user/encoder)" in linked


def test_a_worse_ranking_is_a_limit(checkpoint: Path) -> None:
    record = json.loads((checkpoint / "measured.json").read_text())
    test = record["test"][0]
    test["runs"]["reranked"]["means"]["nDCG@5"] = test["runs"]["first stage"]["means"]["nDCG@5"] - 0.1
    (checkpoint / "measured.json").write_text(json.dumps(record))
    assert "ranks worse than the first stage" in section(write_card(checkpoint).read_text(), "Limits")


def test_testing_on_training_data_is_a_limit(checkpoint: Path) -> None:
    assert "everything is of the collection that it was trained on" in write_card(checkpoint).read_text()


def test_what_was_not_measured_is_left_out(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(tmp_path)
    text = write_card(tmp_path).read_text()
    assert re.findall(r"^## (.*)", text, flags=re.MULTILINE) == [
        *("How to use", "Passages", "Limits", "Licenses", "Citation")
    ]
    assert "not measured on a test collection" in text
    data = ModelCard.load(tmp_path / "README.md").data
    assert data.eval_results is None and data.metrics is None and data.license is None


def test_speed_evaluations_and_emissions_are_shown_if_they_are_there(checkpoint: Path) -> None:
    figures = {"seconds": 2.0, "documents_per_second": 30.0, "real_tokens_per_second": 9000, "memory_mib": 1}
    peer = {**figures, "seconds": 3.0, "docparade_is_faster_by": 1.5}
    speed = {"documents": 60, "tokens": 18000, "device": "cpu", "machine": "A processor", "threads": 2}
    speed |= {"docparade": figures, "sentence-transformers": peer}
    (checkpoint / "speed.json").write_text(json.dumps(speed))
    (checkpoint / "evaluations").mkdir()
    run = {"queries": 5, "means": {"nDCG@20": 0.5}, "significance": {"nDCG@20": {"corrected": 0.001}}}
    evaluation = {"baseline": "bm25", "runs": {"bm25": {"queries": 5, "means": {"nDCG@20": 0.25}}, "maxp": run}}
    (checkpoint / "evaluations/elsewhere.json").write_text(json.dumps(evaluation))
    log = json.loads((checkpoint / "training_log.json").read_text())
    (checkpoint / "training_log.json").write_text(json.dumps({**log, "emissions_kg": 0.0125}))
    text = write_card(checkpoint, FIELDS).read_text()
    assert "on A processor, 2 threads" in section(text, "Speed")
    assert rows(section(text, "Speed"))["sentence-transformers CrossEncoder, same passages"][0::3] == ["3.000", "1.50×"]
    assert "### elsewhere" in text and rows(text)["maxp"] == ["0.5000‡"]
    assert "against bm25" in text
    assert "0.0125 kg CO₂eq" in text
    assert ModelCard.load(checkpoint / "README.md").data["co2_eq_emissions"]["emissions"] == 12.5


def test_what_evaluate_prints_is_taken_as_it_is(world: Path, checkpoint: Path) -> None:
    [first] = (world / "out/first-stage").glob("small-bm25-*.txt")
    printed = succeed(
        *("evaluate", "--collection", "small", "--measures", "P@3", "--json", "--binary", "--gains", "-1=1"),
        *("--baseline", str(first), str(first), "out/runs/everything.txt"),
    )
    (checkpoint / "evaluations").mkdir()
    (checkpoint / "evaluations/again.json").write_text(printed)
    text = write_card(checkpoint, FIELDS).read_text()
    mean = json.loads(printed)["runs"]["everything.txt"]["means"]["P@3"]
    assert rows(text)["everything"][0].startswith(f"{mean:.4f}")
    assert "All grades above 0 count as 1. Grades count as these gains: -1=1." in text


def test_the_commands_of_a_card_count_grades_as_the_test_did() -> None:
    first, runs = {"method": "bm25", "hits": 10}, {"reranked": {}}
    test = {
        "collection": ["cranfield"],
        "first_stage": first,
        "candidates": "first_stage",
        "depth": 5,
        "measures": "AP",
    }
    test |= {"depth": 5, "runs": runs, "gains": "-1=4,1=4,2=3,3=2,4=1"}
    printed = commands(test, None, "user/model")  # type: ignore[arg-type]  # not asked, as others can run them
    assert "docparade evaluate --collection cranfield --gains -1=4,1=4,2=3,3=2,4=1 --measures AP" in printed
    assert "evaluate --collection cranfield --binary --measures" in commands(
        {**test, "gains": None, "binary": True},
        None,  # type: ignore[arg-type]
        "user/model",
    )


# --- Methods ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "aggregation", "bi_encoder"),
    [*((*family, False) for family in FAMILIES), *((*family, True) for family in ON_BI_ENCODERS)],
)
def test_every_method_has_a_card(
    family: type[DocumentRanker],
    aggregation: str,
    bi_encoder: bool,
    tiny_ranker: Callable[..., DocumentRanker],
    tmp_path: Path,
) -> None:
    options = {"pooling": "mean", "similarity": "dot"} if bi_encoder else {}
    tiny_ranker(family, aggregation, **options).save_pretrained(tmp_path)
    text = write_card(tmp_path).read_text()
    name = (family.aggregators[aggregation].__doc__ or "").split(":")[0].split(" (")[0]
    assert rows(text)["method"][0].replace("4-Max", "K-Max") == name
    picture = draw_method(SavedModel.read(tmp_path))
    assert picture in text and picture.count("─► encoder") >= (1 if aggregation == "first" else 3)
    assert ("query     ─► encoder ─► q" in picture) == bi_encoder
    assert "{" not in picture and "None" not in picture
    assert ("bi-encoder" in text) == bi_encoder
    assert ("li2023parade" in text) == (family is not MaxPForSequenceClassification or aggregation == "birch")


def test_an_encoder_decoder_has_a_card(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    tiny_ranker(MaxPForSequenceClassification, "avg", "t5").save_pretrained(tmp_path)
    text = write_card(tmp_path).read_text()
    assert "in the prompt `Query: {query} Document: {document} Relevant:` (as monoT5 does)" in text
    assert "score is the logarithm of the probability of “true” against “false” as the first word of the answer" in text
    assert "query + passage 1 ─► encoder-decoder ─► s1 ─┐" in text
    assert "nogueira2020document" in text and "zhang2021comparing" in text


def test_a_decoder_has_a_card(decoder_folder: Callable[..., Path], tmp_path: Path) -> None:
    prompt = "<Instruct>: {instruction}\nQuery: {query}\nDocument: {document}\nRelevant:"
    words = {"true_token": "yes", "false_token": "no"}
    model = MaxPForSequenceClassification.from_cross_encoder(
        decoder_folder(), prompt=prompt, instruction="Find it.", **words
    )
    model.save_pretrained(tmp_path)
    text = write_card(tmp_path).read_text()
    assert f"in the prompt ``{json.dumps(prompt)}``, with the instruction “Find it.”" in text
    assert "score is the logit of the word “yes” as the next one minus that of “no”" in text
    assert "query + passage 1 ─► decoder ─► s1 ─┐" in text


def test_an_8_bit_model_has_a_card(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    to_int8(tiny_ranker(MaxPForSequenceClassification, "max")).save_pretrained(tmp_path)
    text = write_card(tmp_path).read_text()
    assert "8-bit integers" in text and " parameters |" not in text


def test_longformers_attention_is_described(tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path) -> None:
    for architecture in ("longformer", "bert"):
        tiny_ranker(MaxPForSequenceClassification, "first", architecture).save_pretrained(tmp_path / architecture)
        text = write_card(tmp_path / architecture).read_text(encoding="utf-8")
        assert ("the query have global attention" in text) == (architecture == "longformer")


def test_papers_are_those_of_the_citation_file() -> None:
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    entries = {key: re.sub(r"[{}]", "", entry) for key, entry in BIBTEX.items()}
    for paper in citation["references"]:
        entry = next(entry for entry in entries.values() if paper["title"] in entry)
        authors = " and ".join(f"{one['family-names']}, {one['given-names']}" for one in paper["authors"])
        assert authors in entry and str(paper["year"]) in entry
        assert paper.get("doi", "") in entry
    assert len(citation["references"]) == len(entries)


def test_the_first_example_runs(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write_card(checkpoint, FIELDS).read_text().replace("docparade/tiny", str(checkpoint))
    examples = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(examples) == 4
    for example in examples[:2]:
        exec(compile(example, "card", "exec"), {})
    assert len(re.findall(r"^-?\d+\.\d{3} [ab] ", capsys.readouterr().out, flags=re.MULTILINE)) == 2


# --- Cards that are there already ------------------------------------------------------------------------------------


def test_notes_and_fields_are_kept(checkpoint: Path) -> None:
    path = write_card(checkpoint, CardFields(license="mit", language=("en", "de"), summary="Mine --> & only mine."))
    note = "## My notes\n\n- a | b\n\n```python\nx = 1  # {{ x }}\n```"
    path.write_text(path.read_text().replace(NOTES_START, f"{NOTES_START}\n{note}"))
    before = path.read_text()
    write_card(checkpoint)
    assert path.read_text() == before
    write_card(checkpoint, CardFields(license="apache-2.0"))
    text = path.read_text()
    assert note in text and "Mine --> & only mine." in text
    assert ModelCard.load(path).data.license == "apache-2.0"
    assert ModelCard.load(path).data.language == ["en", "de"]


def test_metadata_that_a_person_changed_is_kept(checkpoint: Path) -> None:
    path = write_card(checkpoint, FIELDS)
    text = path.read_text().replace("license: apache-2.0\n", "license: mit\nthumbnail: picture.png\n", 1)
    path.write_text(text.replace("- reranker\n", "- reranker\n- aviation\n", 1))
    write_card(checkpoint)
    data = ModelCard.load(path).data
    assert (data.license, data["thumbnail"]) == ("mit", "picture.png")
    assert "aviation" in data.tags and len(data.tags) == len(set(data.tags))


def test_line_ends_of_windows_do_not_count_as_an_edit(checkpoint: Path) -> None:
    path = write_card(checkpoint, FIELDS)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    write_card(checkpoint)


def test_text_outside_the_notes_is_not_lost_in_silence(checkpoint: Path) -> None:
    path = write_card(checkpoint, FIELDS)
    path.write_text(path.read_text().replace("## Limits", "My own words.\n\n## Limits"))
    edited = path.read_text()
    assert "edited by hand" in fail("card", str(checkpoint)) and path.read_text() == edited
    succeed("card", str(checkpoint), "--overwrite")
    assert "My own words." not in path.read_text()
    assert missing_card_fields(checkpoint) == []


def test_a_card_of_another_kind_is_not_lost_in_silence(checkpoint: Path) -> None:
    (checkpoint / "README.md").write_text("---\nlicense: mit\n---\n# By hand\n")
    assert "edited by hand" in fail("card", str(checkpoint))
    succeed("card", str(checkpoint), "--overwrite")
    assert ModelCard.load(checkpoint / "README.md").data.license == "mit"


# --- The command -----------------------------------------------------------------------------------------------------


def test_the_command_takes_a_recipes_folder(world: Path) -> None:
    try:
        succeed("card", "out", "--license", "mit", "--language", "en", "--language", "de", "--title", "Tiny")
        text = (world / "out/model/README.md").read_text()
        assert "# Tiny\n" in text and "| language | en, de |" in text
    finally:
        (world / "out/model/README.md").unlink()


def test_missing_fields_are_named(checkpoint: Path) -> None:
    assert missing_card_fields(checkpoint) == ["license", "language"]
    write_card(checkpoint, CardFields(license="mit"))
    assert missing_card_fields(checkpoint) == ["language"]


def test_fields_come_from_a_file(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "fields.yaml"
    file.write_text("license: other\nlicense_name: ours\nlicense_link: LICENSE\nlimits: [Only tiny.]\nlanguage: en\n")
    succeed("card", str(checkpoint), "--fields", str(file), "--title", "Tiny")
    text = (checkpoint / "README.md").read_text()
    assert "- Only tiny." in text and "Weights: [ours](LICENSE)." in text
    file.write_text("license2: mit\n")
    assert "'license2' is not a field" in fail("card", str(checkpoint), "--fields", str(file))


BAD: dict[str, tuple[str, str, str]] = {
    "no ranker": ("config.json", '{"model_type": "bert"}', "model_type is 'bert'"),
    "damaged config": ("config.json", "{", "cannot be read"),
    "damaged record": ("measured.json", "[]", "is not a JSON object"),
    "old record": ("measured.json", '{"test": {"a": {}}}', "old form"),
    "no times": ("speed.json", '{"documents": 1}', "docparade benchmark --json"),
    "no measures": ("evaluations/x.json", '{"runs": {"a": {}}}', "docparade evaluate --json"),
    "damaged weights": ("model.safetensors", "x", "weights cannot be read"),
    "metadata that is no YAML": ("README.md", "---\na: [\n---\n", "is not YAML"),
    "metadata that is a list": ("README.md", "---\n- a\n---\n", "is not a mapping"),
    "a license that is none": ("README.md", "---\nlicense: Do what you want\n---\n", "license is 'Do what you want'"),
    "open notes": ("README.md", "<!-- notes -->\nmine\n", "one of them is missing"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_named_in_one_sentence(name: str, checkpoint: Path) -> None:
    file, content, reason = BAD[name]
    (checkpoint / file).parent.mkdir(exist_ok=True)
    (checkpoint / file).write_text(content)
    message = fail("card", str(checkpoint))
    assert reason in message and file.split("/")[-1].removeprefix("model.safetensors") in message


def test_bad_options_are_named_in_one_sentence(checkpoint: Path, tmp_path: Path) -> None:
    assert "license is 'Mine!'" in fail("card", str(checkpoint), "--license", "Mine!")
    assert "license_name" in fail("card", str(checkpoint), "--license", "other")
    assert "language is 'English'" in fail("card", str(checkpoint), "--language", "English")
    assert "repo_id is 'tiny'" in fail("card", str(checkpoint), "--repo-id", "tiny")
    assert "is not a folder" in fail("card", str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    assert "has no checkpoint" in fail("card", str(tmp_path / "empty"))
    (tmp_path / "folds/fold-s1/model").mkdir(parents=True)
    assert "a model for each fold" in fail("card", str(tmp_path / "folds"))
    assert not (checkpoint / "README.md").exists()


def test_nothing_of_the_machine_is_in_a_card(world: Path, checkpoint: Path) -> None:
    write_card(checkpoint, FIELDS)
    secrets = [str(world), str(Path.home()), tempfile.gettempdir(), str(PROJECT), f"/{getpass.getuser()}/"]
    if len(socket.gethostname()) > 3:
        secrets.append(socket.gethostname())
    for name in ("README.md", "measured.json", "training_log.json"):
        text = (checkpoint / name).read_text()
        assert [secret for secret in secrets if secret in text] == [], name
    # The recipe names a local collection, so it is of no use to others.
    assert not (checkpoint / "recipe.yaml").exists()


# --- The trainer -----------------------------------------------------------------------------------------------------


def test_the_trainer_writes_the_same_card(
    small: World, tiny_ranker: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = copy.deepcopy(tiny_ranker(MaxPForSequenceClassification, "avg"))
    settings = {"num_train_epochs": 1, "pairs_per_epoch": 8, "hub_model_id": "docparade/trained"}
    trainer = RankingTrainer(model, arguments(tmp_path, **settings), small.sampler(8), small.queries, small.documents)
    trainer.hub_model_id = "docparade/trained"
    trainer.train()
    trainer.save_model(_internal_call=True)
    trainer.create_model_card(license="mit", language="en", model_name="trained", tags=["x"])
    path = tmp_path / "README.md"
    assert 'AutoModel.from_pretrained("docparade/trained"' in path.read_text()
    assert rows(path.read_text())["`pairs_per_epoch`"] == ["8"]
    assert missing_card_fields(tmp_path) == []
    path.write_text("# By hand\n")
    trainer.create_model_card()
    assert path.read_text() == "# By hand\n"
