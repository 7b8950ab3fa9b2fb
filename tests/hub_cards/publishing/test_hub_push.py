"""Publishing with the real client of the Hub, on a server that speaks its protocol."""

from __future__ import annotations

import json
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hub_client import HubClient
from support.hub_server import Failure, Hub, serve_hub
from support.project import DOCUMENTS, PROJECT, QUERY

from docparade import DocumentRanker, ParadeForSequenceClassification

pytestmark = pytest.mark.slow

# Not written in one piece, so that nobody takes it for a real one.
TOKEN = "hf_" + "aBcDeFgH" * 4
REPO = "archive/parade-tiny"
PAIRS = [(QUERY, document) for document in DOCUMENTS]
CARD = """---
license: apache-2.0
language:
- en
library_name: transformers
pipeline_tag: text-ranking
---

# A tiny ranker

![Learning curve](learning_curve.png)
"""
START = "from docparade.hub_cards import push_folder; from docparade.retrieval.errors import InputError; import json"


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serve_hub({TOKEN: "archive"}) as hub:
        yield hub


@pytest.fixture(autouse=True)
def _forget(hub: Hub) -> None:
    hub.requests.clear()
    hub.failures.clear()


@pytest.fixture(scope="module")
def client(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubClient]:
    """A user with a token, in a process that has docparade."""
    client = HubClient(hub.url, tmp_path_factory.mktemp("homes") / "marjolein", TOKEN)
    client.value(START)
    yield client
    client.close()


@pytest.fixture(scope="module")
def saved(tiny_ranker: Callable[..., DocumentRanker], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ranker as training leaves it: with a card and a plot, and with files that are not to be published."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    tiny_ranker(ParadeForSequenceClassification, "attn").save_pretrained(folder)
    (folder / "README.md").write_text(CARD)
    (folder / "learning_curve.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "measured.json").write_text(json.dumps({"versions": {"docparade": "0.1.0"}}))
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).write_bytes(b"\x80\x04pickle")
    for name in ("trainer_state.json", "notes.txt", "scratch.py", "other.png"):
        (folder / name).write_text(f"{Path.home()} {tempfile.gettempdir()}/run {TOKEN}")
    (folder / "__pycache__").mkdir()
    (folder / "checkpoint-5").mkdir()
    (folder / "checkpoint-5" / "model.safetensors").write_bytes(b"x")
    return folder


def push(folder: Path, repo: str = REPO, **options: Any) -> str:
    return f"value = vars(push_folder({str(folder)!r}, {repo!r}, **{options!r}))"


@pytest.fixture(scope="module")
def published(hub: Hub, client: HubClient, saved: Path) -> dict[str, Any]:
    return client.value(push(saved))


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "copy")


# --- What is published -----------------------------------------------------------------------------------------------


def test_the_right_files_are_published(hub: Hub, published: dict[str, Any], saved: Path) -> None:
    assert published == {"url": f"{hub.url}/{REPO}", "commit": hub.repositories[REPO].refs["main"], "changed": True}
    files = hub.files(REPO)
    left_out = {path.name for path in saved.iterdir()} - files.keys()
    state = {"training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"}
    assert left_out == state | {"notes.txt", "scratch.py", "other.png", "__pycache__", "checkpoint-5"}
    assert {name: files[name] for name in files if name != ".gitattributes"} == {
        path.name: path.read_bytes() for path in saved.iterdir() if path.name not in left_out
    }
    assert {"handler.py", "modules.json", "learning_curve.png", "measured.json", "tokenizer.json"} <= files.keys()


def test_nothing_private_is_published(hub: Hub, published: dict[str, Any], client: HubClient) -> None:
    home = client.value("import os; value = os.environ['HOME']")
    private = [home, str(Path.home()) + "/", tempfile.gettempdir(), TOKEN, "marjolein"]
    host = re.compile(rb"\b" + re.escape(socket.gethostname()).encode() + rb"\b")
    for name, content in hub.files(REPO).items():
        assert [word for word in private if word.encode() in content] == [], name
        assert name.endswith((".safetensors", ".png")) or not host.search(content), name


# Runs where docparade cannot be imported, with an empty cache.
WITHOUT_DOCPARADE = f"""
import sys
sys.modules["docparade"] = None
from transformers import AutoModel, AutoModelForSequenceClassification, pipeline
from sentence_transformers import CrossEncoder
pairs = {PAIRS!r}
model = AutoModel.from_pretrained({REPO!r}, trust_remote_code=True)
assert type(model).__module__.startswith("transformers_modules"), type(model)
auto = model.score(pairs)
ranker = pipeline("text-ranking", model={REPO!r}, trust_remote_code=True)
ranking = sorted(ranker({{"query": {QUERY!r}, "documents": {DOCUMENTS!r}}}), key=lambda ranked: ranked["index"])
encoder = CrossEncoder({REPO!r}, trust_remote_code=True)
value = [auto, [ranked["score"] for ranked in ranking], [float(score) for score in encoder.predict(pairs)]]
"""


def test_scores_are_the_same_everywhere(
    hub: Hub, published: dict[str, Any], client: HubClient, tiny_ranker: Callable[..., DocumentRanker], tmp_path: Path
) -> None:
    own = tiny_ranker(ParadeForSequenceClassification, "attn").score(PAIRS)
    # CrossEncoder gives 32-bit floats, in which the score of a document without text is rounded.
    expected = pytest.approx(own, abs=1e-5, rel=1e-7)
    stranger = HubClient(hub.url, tmp_path / "stranger", None)
    try:
        for scores in stranger.value(WITHOUT_DOCPARADE):
            assert scores == expected
        # The code of a checkpoint has no cards; it keeps the rest, with transformers' own push_to_hub.
        stranger.value(f"model.push_to_hub('archive/again', token={TOKEN!r})")
        made_by_docparade = {"README.md", "measured.json", "learning_curve.png"}
        assert hub.files(REPO).keys() - made_by_docparade <= hub.files("archive/again").keys()
    finally:
        stranger.close()
    load = f"from transformers import AutoModel; value = AutoModel.from_pretrained({REPO!r}).score({PAIRS!r})"
    assert client.value(load) == expected


# --- Again -----------------------------------------------------------------------------------------------------------


def test_the_same_files_are_not_pushed_twice(
    hub: Hub, published: dict[str, Any], client: HubClient, saved: Path
) -> None:
    again = client.value(push(saved))
    assert again == {**published, "changed": False}
    assert hub.asked("PUT") == [] and hub.asked("POST", "/commit/") == []


def test_only_what_changed_is_uploaded(hub: Hub, published: dict[str, Any], client: HubClient, copy: Path) -> None:
    (copy / "README.md").write_text(CARD + "\nMore.\n")
    before = hub.repositories[REPO].refs["main"]
    assert client.value(push(copy))["changed"]
    assert hub.asked("PUT") == [] and len(hub.asked("POST", "/commit/main")) == 1
    assert hub.files(REPO)["README.md"].endswith(b"More.\n")
    hub.repositories[REPO].refs["main"] = before


def test_old_weights_are_removed(hub: Hub, client: HubClient, saved: Path) -> None:
    """Weights in one file would be loaded instead of new ones in several."""
    client.value(push(saved, "archive/old"))
    files = hub.files("archive/old")
    files.update({"model-00001-of-00002.safetensors": b"", "model.safetensors.index.json": b"{}", "extra.md": b"kept"})
    client.value(push(saved, "archive/old"))
    assert hub.files("archive/old").keys() == {*hub.files(REPO), "extra.md"}


def test_an_interrupted_push_continues(hub: Hub, client: HubClient, saved: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(saved, tmp_path / "sharded")
    client.value(
        f"from transformers import AutoModel; m = AutoModel.from_pretrained({str(folder)!r});"
        f"import os; os.remove({str(folder / 'model.safetensors')!r});"
        f"m.save_pretrained({str(folder)!r}, max_shard_size='40KB')"
    )
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 2
    hub.large_files.clear()
    # One of the uploads is refused, as when its link has expired.
    hub.failures = [Failure("PUT", "/storage/", 403)]
    sentence = client.error(push(folder, "archive/sharded"))
    assert "does not permit writing to archive/sharded" in sentence and sentence.count(". ") == 0
    assert hub.files("archive/sharded").keys() == {".gitattributes"}  # nothing is half there
    stored = len(hub.large_files)
    assert 0 < stored < len(shards) + 1
    hub.requests.clear()
    assert client.value(push(folder, "archive/sharded"))["changed"]
    assert len(hub.asked("PUT")) == len(shards) + 1 - stored  # the plot is a large file as well
    assert {path.name for path in shards} <= hub.files("archive/sharded").keys()


# --- Revisions, pull requests, access --------------------------------------------------------------------------------


def test_revisions_and_pull_requests(hub: Hub, published: dict[str, Any], client: HubClient, copy: Path) -> None:
    (copy / "README.md").write_text(CARD + "\nOn a branch.\n")
    main = hub.repositories[REPO].refs["main"]
    assert client.value(push(copy, revision="v2"))["changed"]
    assert not client.value(push(copy, revision="v2"))["changed"]
    request = client.value(push(copy, create_pr=True))
    assert request["url"] == f"{hub.url}/{REPO}/discussions/1"
    assert hub.repositories[REPO].refs["main"] == main
    for revision in ("v2", "refs/pr/1"):
        assert hub.files(REPO, revision)["README.md"].endswith(b"On a branch.\n")
    load = f"AutoModel.from_pretrained({REPO!r}, revision='v2').score({PAIRS!r})"
    assert len(client.value(f"from transformers import AutoModel; value = {load}")) == len(PAIRS)


def test_private_models(client: HubClient, saved: Path) -> None:
    client.value(push(saved, "archive/secret", private=True))
    load = "from docparade.reranking.loading import load_ranker; value = load_ranker('archive/secret').score({})"
    assert len(client.value(load.format(f"{PAIRS!r}"))) == len(PAIRS)
    assert "private" in client.error(load.format(f"{PAIRS!r}").replace("secret'", "secret', token=False"))


def test_without_a_token(client: HubClient, saved: Path) -> None:
    client.value("import os; token = os.environ.pop('HF_TOKEN')")
    assert "there is no Hugging Face token: run hf auth login" in client.error(push(saved))
    client.value("os.environ['HF_TOKEN'] = token")


@pytest.mark.parametrize(
    "options, repo, sentence",
    [
        ({"token": "hf_wrong"}, REPO, "the Hub does not accept the token .*: run hf auth login"),
        ({}, "strangers/parade", "the token does not permit writing to strangers/parade"),
        ({}, "not a/name", "'not a/name' cannot be the name of a model"),
        ({"revision": "refs/pr/77"}, REPO, "has no revision refs/pr/77 on the Hub"),
    ],
)
def test_wrong_tokens_and_names(
    options: dict[str, Any], repo: str, sentence: str, hub: Hub, client: HubClient, saved: Path
) -> None:
    assert re.search(sentence, client.error(push(saved, repo, **options)))
    assert hub.asked("PUT") == [] and hub.asked("POST", "/commit/") == []


# --- Errors of the Hub -----------------------------------------------------------------------------------------------


def test_a_busy_hub_is_asked_again(hub: Hub, client: HubClient, saved: Path) -> None:
    hub.large_files.clear()
    at_once = {"Retry-After": "0"}
    hub.failures = [
        Failure("POST", "/repos/create", 429, headers=at_once),
        Failure("POST", "/validate-yaml", 503, headers=at_once),
        Failure("PUT", "/storage/", 503, headers=at_once),
        Failure("POST", "/commit/", 500, headers=at_once),
    ]
    assert client.value(push(saved, "archive/busy"))["changed"]
    assert [failure.times for failure in hub.failures] == [0, 0, 0, 0]
    assert hub.files("archive/busy").keys() == hub.files(REPO).keys()


@pytest.mark.parametrize(
    "status, sentence",
    [
        (404, "archive/down is not on the Hub, or the token does not permit seeing it"),
        (409, "archive/down was changed by somebody else at the same time"),
        (429, "accepts no more requests for now .*: run the same command again in 0 seconds"),
        (502, "the Hub has an error of its own, 502"),
    ],
)
def test_errors_are_one_sentence(status: int, sentence: str, hub: Hub, client: HubClient, saved: Path) -> None:
    hub.failures = [Failure("POST", "/commit/", status, times=9, headers={"Retry-After": "0"})]
    error = client.error(push(saved, "archive/down"))
    assert re.search(sentence, error) and error.startswith("InputError: ") and "\n" not in error


def test_answers_that_do_not_fit(hub: Hub, client: HubClient, saved: Path) -> None:
    """The client itself fails at them with errors about its own variables."""
    hub.large_files.clear()
    for answer in (
        {"objects": [{"oid": "0" * 64, "size": 1, "actions": {"upload": {"href": hub.url}}}]},
        {"objects": 1},
        [],
    ):
        hub.failures = [Failure("POST", "/objects/batch", 200, body=answer)]
        error = client.error(push(saved, "archive/strange"))
        assert error.startswith("InputError: the Hub's answer does not fit what was sent") and "\n" not in error
    assert client.value(push(saved, "archive/strange"))["changed"]


def test_a_pull_request_is_not_made_twice(hub: Hub, published: dict[str, Any], client: HubClient, copy: Path) -> None:
    """Its answer may have been lost after it was made."""
    (copy / "README.md").write_text(CARD + "\nAs a request.\n")
    hub.failures = [Failure("POST", "/commit/", 503, times=9, headers={"Retry-After": "0"})]
    assert "error of its own, 503" in client.error(push(copy, create_pr=True))
    assert len(hub.asked("POST", "/commit/")) == 1


def test_the_hub_checks_the_metadata(hub: Hub, client: HubClient, copy: Path) -> None:
    (copy / "README.md").write_text(CARD.replace("apache-2.0", "my-own"))
    error = client.error(push(copy, "archive/meta"))
    assert 'does not accept the metadata of README.md: - "license" must be' in error
    assert hub.files("archive/meta").keys() == {".gitattributes"}


def test_no_network(client: HubClient, saved: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        code = (
            "from huggingface_hub import HfApi; from docparade.hub_cards.publishing import hub_errors\n"
            "waits = []\n"
            f"with hub_errors.explain_hub_errors({REPO!r}):\n"
            f"    hub_errors.retry(lambda: HfApi(endpoint={url!r}).create_repo({REPO!r}), wait=waits.append)"
        )
        assert "InputError: the Hub cannot be reached" in client.error(code)
    assert client.value("value = waits") == [1.0, 2.0, 4.0]


# --- Models, trainers, adapters, the command -------------------------------------------------------------------------


LOAD = "from transformers import AutoModel; model = AutoModel.from_pretrained({!r})"


def test_a_model_publishes_itself(hub: Hub, client: HubClient, saved: Path) -> None:
    """With the records of the folder it came from, as long as it has not changed."""
    options = {"license": "mit", "language": "en"}
    client.value(LOAD.format(str(saved)))
    assert client.value(f"value = model.push_to_hub('archive/own', **{options!r})") == f"{hub.url}/archive/own"
    assert hub.files("archive/own").keys() == hub.files(REPO).keys() - {"learning_curve.png"}
    assert hub.files("archive/own")["README.md"].decode() == CARD
    client.value("import torch; torch.nn.init.normal_(model.aggregator.attention.weight)")
    client.value(f"model.push_to_hub('archive/changed', **{options!r})")
    files = hub.files("archive/changed")
    assert "measured.json" not in files and b"license: mit" in files["README.md"]
    assert b'from_pretrained("archive/changed"' in files["README.md"]
    assert "has no license" in client.error("model.push_to_hub('archive/unlicensed')")


TRAIN = """
import sys; sys.path.insert(0, {tests!r})
from support.training import arguments, world
from peft import LoraConfig, get_peft_model
from transformers import AutoModel
from docparade import RankingTrainer
there = world(2)
def trainer(folder, name, lora=False, **options):
    model = AutoModel.from_pretrained({saved!r})
    if lora:
        model = get_peft_model(model, LoraConfig(r=2, target_modules=r"encoder.*(query|value)"))
    args = arguments(folder, max_steps=1, save_strategy="steps", save_steps=1, hub_model_id=name, **options)
    made = RankingTrainer(model, args, there.sampler(4), there.queries, there.documents)
    made.train()
    return made
"""


@pytest.fixture(scope="module")
def trainers(client: HubClient, saved: Path) -> HubClient:
    """A process that can train."""
    client.value(TRAIN.format(tests=str(PROJECT / "tests"), saved=str(saved)))
    return client


def test_a_trainer_publishes_its_model(hub: Hub, trainers: HubClient, tmp_path: Path) -> None:
    trainers.value(f"made = trainer({str(tmp_path)!r}, 'archive/trained', hub_private_repo=True)")
    assert (tmp_path / "checkpoint-1" / "optimizer.pt").is_file()
    push = "vars(made.push_to_hub(license='mit', language='en'))"
    assert trainers.value(f"value = {push}")["url"] == f"{hub.url}/archive/trained"
    files = hub.files("archive/trained")
    assert {"measured.json", "README.md", "model.safetensors", "handler.py"} <= files.keys()
    assert not [name for name in files if "checkpoint-" in name or name.endswith((".pt", ".bin", ".pth"))]
    assert hub.repositories["archive/trained"].private
    assert not trainers.value(f"value = {push}")["changed"]
    assert "push_to_hub would publish every checkpoint" in trainers.error("trainer('x', 'a/b', push_to_hub=True)")
    assert "hub_model_id is not set" in trainers.error("made.args.hub_model_id = None; made.push_to_hub()")


def test_an_adapter_is_published_with_the_name_of_its_ranker(
    hub: Hub, published: dict[str, Any], trainers: HubClient, tmp_path: Path
) -> None:
    trainers.value(f"made = trainer({str(tmp_path)!r}, 'archive/adapter', lora=True)")
    options = f"license='mit', language='en', base_model={REPO!r}"
    trainers.value(f"made.push_to_hub({options})")
    files = hub.files("archive/adapter")
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md", "measured.json"} <= files.keys()
    assert json.loads(files["adapter_config.json"])["base_model_name_or_path"] == REPO
    assert f"base_model: {REPO}" in files["README.md"].decode()
    assert [name for name in files if str(tmp_path).encode() in files[name]] == []
    scores = trainers.value(LOAD.format("archive/adapter") + f"; value = model.score({PAIRS!r})")
    assert scores == pytest.approx(trainers.value(f"value = made.ranker.score({PAIRS!r})"), abs=1e-5)


COMMAND = """
import sys, io, contextlib
from docparade import cli
sys.argv = ["docparade", "push", *{words!r}]
out, err = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    try:
        cli.main()
    except SystemExit as end:
        code = end.code or 0
value = [code, out.getvalue(), err.getvalue()]
"""


def test_the_command(hub: Hub, client: HubClient, saved: Path) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        return client.value(COMMAND.format(words=[str(saved), "archive/by-command", *words]))

    code, out, err = run("--dry-run")
    assert code == 0 and "model.safetensors" in out and "# A tiny ranker" in out
    assert "left out: __pycache__/, checkpoint-5/, notes.txt, optimizer.pt" in err and "nothing was uploaded" in err
    assert hub.requests == []
    assert run() == [0, "", f"docparade: published {hub.url}/archive/by-command.\n"]
    code, _, err = run("--create-pr")
    assert code == 0 and "has these files already; nothing was uploaded." in err
    hub.failures = [Failure("POST", "/validate-yaml", 401)]
    code, _, err = run()
    assert code == 2 and err.startswith("docparade: the Hub does not accept the token") and err.count("\n") == 1
