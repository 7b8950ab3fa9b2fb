"""`push_folder`: publish the folder of a ranker or of an adapter on the Hugging Face Hub."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.constants import HF_HUB_OFFLINE
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers.utils import logging

from docparade.hub_cards.cards.adapter_card import write_adapter_card
from docparade.hub_cards.cards.fields import CardFields
from docparade.hub_cards.cards.model_card import EditedCardError, write_card
from docparade.hub_cards.cards.saved_model import find_checkpoint
from docparade.hub_cards.record_files import ADAPTER, CARD_FILE, CONFIG, EVALUATIONS_FOLDER, read_json
from docparade.modeling import DocumentRanker
from docparade.retrieval.errors import InputError

from .file_selection import INDEX, RECORDS, WEIGHTS, PublishedFiles, list_files
from .hub_errors import NO_TOKEN, OFFLINE, explain_hub_errors, retry
from .push_checks import PLACEHOLDER, check_publication

logger = logging.get_logger(__name__)

# These files decide which weights are loaded; left from an earlier push, they would be loaded beside the new ones.
DECISIVE = (CONFIG, ADAPTER, INDEX, *WEIGHTS)


@dataclass(frozen=True)
class Publication:
    """What a push has done."""

    url: str
    """The address of the model, or of the pull request."""
    commit: str
    changed: bool
    """Whether something was committed; a second push of the same files changes nothing."""


@dataclass(frozen=True)
class Preview:
    """What a push would do."""

    sizes: dict[str, int]
    """The published files, and their sizes in bytes."""
    left_out: list[str]
    card: str
    """The text of the card."""


def push_folder(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    token: str | bool | None = None,
    commit_message: str | None = None,
    base_model: str | None = None,
    license: str | None = None,
    language: str | Sequence[str] = (),
) -> Publication:
    """Publish the folder of a ranker or of an adapter. Pushing the same files again changes nothing.

    Files that could do harm are refused before anything is uploaded. An interrupted push is continued by the same
    call: what was uploaded is not uploaded again.

    Args:
        folder: A ranker as `save_pretrained` writes it, the output folder of a recipe, or an adapter; not changed.
        repo_id: The model's name on the Hub, `user/name` or `organization/name`; it is created if it is not there.
        private: Whether a new model is private; `None` is the account's default.
        revision: The branch, which is created if it is not there; `None` is `main`.
        create_pr: Whether to open a pull request instead of changing the branch.
        token: The access token; `None` takes it from `hf auth login` or `HF_TOKEN`.
        commit_message: The first line of the commit.
        base_model: For an adapter: the Hub id of the ranker it belongs to, if the adapter itself names a local folder.
        license: The license of the weights, for the card.
        language: Codes of the languages, for the card.

    Example:
        ```python
        push_folder("outputs/quickstart/model", "org/parade-minilm", license="apache-2.0", language="en").url
        ```
    """
    _check_repo_id(repo_id)
    token = token if isinstance(token, str) else get_token()
    if token is None:
        raise InputError(NO_TOKEN)
    if HF_HUB_OFFLINE:
        raise InputError(OFFLINE)
    fields = _card_fields(repo_id, base_model, license, language)
    with _checked(Path(folder), fields, token) as files:
        api = HfApi(token=token, library_name="docparade")
        with explain_hub_errors(repo_id, revision):
            return _upload(api, files, repo_id, private, revision, create_pr, commit_message)


def preview_folder(
    folder: str | Path,
    repo_id: str,
    *,
    base_model: str | None = None,
    license: str | None = None,
    language: str | Sequence[str] = (),
) -> Preview:
    """Check a folder as `push_folder` does, and show what it would publish. Needs neither a token nor the network."""
    _check_repo_id(repo_id)
    fields = _card_fields(repo_id, base_model, license, language)
    with _checked(Path(folder), fields) as files:
        sizes = {name: path.stat().st_size for name, path in files.published.items()}
        return Preview(sizes, files.left_out, files.published[CARD_FILE].read_text(encoding="utf-8"))


def push_model(model: DocumentRanker, repo_id: str, **options: Any) -> str:
    """Publish a ranker, with the options of `push_folder`; `model.push_to_hub` calls this. Returns the address.

    If the ranker was loaded from a folder and has not changed since, its card has the results that were saved there.
    """
    with tempfile.TemporaryDirectory(prefix="docparade-") as place:
        folder = Path(place) / "model"
        model.save_pretrained(folder)
        source = Path(model.name_or_path or "nowhere")
        weights = [path.name for path in folder.glob("*.safetensors")]
        if source.is_dir() and not any(filecmp.cmpfiles(source, folder, weights, shallow=False)[1:]):
            for path in (source / CARD_FILE, *(found for each in RECORDS for found in source.glob(each))):
                if path.is_file():
                    (folder / path.relative_to(source)).parent.mkdir(exist_ok=True)
                    shutil.copyfile(path, folder / path.relative_to(source))
        return push_folder(folder, repo_id, **options).url


def _check_repo_id(repo_id: str) -> None:
    if not _is_repo_id(repo_id):
        raise InputError(f"'{repo_id}' cannot be the name of a model on the Hub: give user/name.")


def _card_fields(
    repo_id: str, base_model: str | None, license: str | None, language: str | Sequence[str]
) -> CardFields:
    languages = (language,) if isinstance(language, str) else tuple(language)
    return CardFields(
        repo_id=repo_id,
        base_model=base_model or None,
        license=license or None,
        language=tuple(code for code in languages if code),
    )


@contextmanager
def _checked(folder: Path, fields: CardFields, token: str | None = None) -> Iterator[PublishedFiles]:
    """The files to publish, checked. They are links in a temporary folder, where the card is completed."""
    is_adapter = (folder / ADAPTER).is_file() and not (folder / CONFIG).is_file()
    source = folder if is_adapter else find_checkpoint(folder)
    with tempfile.TemporaryDirectory(prefix="docparade-") as place:
        stage = Path(place)
        for path in source.iterdir():
            _link(path.resolve(), stage / path.name)
        with _errors_naming(source, stage):
            list_files(stage)  # the card can only be written for a complete model
            if is_adapter:
                _name_base(stage / ADAPTER, fields.base_model)
            _complete_card(stage, fields, is_adapter)
            files = list_files(stage)
            check_publication(files, str(fields.repo_id), token)
        yield files


@contextmanager
def _errors_naming(source: Path, stage: Path) -> Iterator[None]:
    """Name the user's folder in errors, instead of the temporary one."""
    try:
        yield
    except InputError as error:
        sentence = str(error).replace(str(stage), str(source))
        raise InputError(sentence if str(source) in sentence else f"{source}: {sentence}") from None


def _link(source: Path, link: Path) -> None:
    """Link large files, and copy the others, which may be written again."""
    if source.is_dir():
        if link.name == EVALUATIONS_FOLDER:
            shutil.copytree(source, link)
        else:
            link.mkdir()  # only its name is shown
        return
    if source.suffix == ".safetensors":
        try:
            link.symlink_to(source)
        except OSError:  # on Windows, links need a permission
            os.link(source, link)
    else:
        shutil.copyfile(source, link)


def _name_base(config: Path, base_model: str | None) -> None:
    """Let an adapter name the ranker it belongs to by its Hub id."""
    content = read_json(config)
    named = content.get("base_model_name_or_path") or ""
    base = base_model or named
    if Path(base).exists() or not _is_repo_id(base):
        raise InputError(
            f"{ADAPTER} names no ranker on the Hub (base_model_name_or_path is {base!r}): push the ranker that the "
            "adapter belongs to, and give its id with --base-model; or push the merged ranker instead."
        )
    if base != named:
        content["base_model_name_or_path"] = base
        config.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _is_repo_id(name: str) -> bool:
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return "/" in name


def _complete_card(stage: Path, fields: CardFields, is_adapter: bool) -> None:
    """Write the card, or write it again with the given fields. A card that was edited by hand is left as it is."""
    card = stage / CARD_FILE
    if card.is_file() and PLACEHOLDER in card.read_text(encoding="utf-8", errors="replace"):
        card.unlink()  # a library's template
    if is_adapter:
        if not card.is_file():
            write_adapter_card(stage, fields)
        return
    try:
        write_card(stage, fields)
    except EditedCardError:
        logger.info("The card was edited by hand, and is published as it is.")


def _upload(
    api: HfApi,
    files: PublishedFiles,
    repo_id: str,
    private: bool | None,
    revision: str | None,
    create_pr: bool,
    commit_message: str | None,
) -> Publication:
    """Make one commit of all files that are new or changed."""
    repo_id = retry(lambda: api.create_repo(repo_id, private=private, exist_ok=True)).repo_id
    if revision is not None and not revision.startswith("refs/"):
        retry(lambda: api.create_branch(repo_id, branch=revision, exist_ok=True))
    before = retry(lambda: api.model_info(repo_id, revision=revision))
    there = [each.rfilename for each in before.siblings or [] if each.rfilename not in files.published]
    stale = [name for name in there if any(fnmatch(name, each) for each in DECISIVE)]

    def commit() -> Publication:
        # The client keeps notes in these objects, so that every attempt needs new ones.
        done = api.create_commit(
            repo_id,
            [
                *(CommitOperationAdd(name, path) for name, path in files.published.items()),
                *(CommitOperationDelete(name) for name in stale),
            ],
            commit_message=commit_message or "Publish with docparade",
            revision=revision,
            create_pr=create_pr,
        )
        return Publication(done.pr_url or f"{api.endpoint}/{repo_id}", done.oid, done.oid != before.sha)

    return retry(commit, is_repeatable=not create_pr)
