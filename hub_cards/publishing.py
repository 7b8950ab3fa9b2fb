"""`push_folder`: publish the folder of a ranker or of an adapter on the Hugging Face Hub."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.constants import HF_HUB_OFFLINE
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from docparade.retrieval.errors import InputError, errors_at

from .card import write_card
from .fields import CardFields
from .hub_errors import NO_TOKEN, OFFLINE, explain_hub_errors, retry
from .publication_checks import PLACEHOLDER, check_publication
from .published_files import ADAPTER, CARD, CONFIG, INDEX, WEIGHTS, PublishedFiles, list_files, read_json

# What decides which weights are loaded. Such a file of an earlier push would be loaded with, or instead of, new ones.
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
    token: str | None = None,
    commit_message: str | None = None,
    base_model: str | None = None,
    license: str | None = None,
    language: str | Sequence[str] = (),
) -> Publication:
    """Publish the folder of a ranker or of an adapter. Pushing the same files again changes nothing.

    Files that could do harm are refused before anything is uploaded. An interrupted push is continued by the same
    call: what was uploaded is not uploaded again.

    Args:
        folder: A ranker as `save_pretrained` writes it, or an adapter. It is not changed.
        repo_id: The model's name on the Hub, `user/name` or `organization/name`; it is created if it is not there.
        private: Whether a new model is private; `None` is the account's default.
        revision: The branch, which is created if it is not there; `None` is `main`.
        create_pr: Whether to open a pull request instead of changing the branch.
        token: The access token; `None` is that of `hf auth login` or of `HF_TOKEN`.
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
    token = token or get_token()
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
        sizes = {path.name: path.stat().st_size for path in files.published}
        card = next(path for path in files.published if path.name == CARD)
        return Preview(sizes, files.left_out, card.read_text(encoding="utf-8"))


def _check_repo_id(repo_id: str) -> None:
    try:
        validate_repo_id(repo_id)
    except HFValidationError:
        raise InputError(f"'{repo_id}' cannot be the name of a model on the Hub: give user/name.") from None


def _card_fields(
    repo_id: str, base_model: str | None, license: str | None, language: str | Sequence[str]
) -> CardFields:
    languages = (language,) if isinstance(language, str) else tuple(language)
    return CardFields(repo_id=repo_id, base_model=base_model, license=license, language=languages)


@contextmanager
def _checked(folder: Path, fields: CardFields, token: str | None = None) -> Iterator[PublishedFiles]:
    """The files to publish, checked. They are links in a temporary folder, where the card is completed."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; name the folder of a saved ranker.")
    with tempfile.TemporaryDirectory(prefix="docparade-") as place:
        stage = Path(place)
        for path in folder.iterdir():
            _link(path.resolve(), stage / path.name)
        with errors_at(str(folder)):
            if (stage / ADAPTER).is_file() and not (stage / CONFIG).is_file():
                _name_base(stage / ADAPTER, fields.base_model)
            list_files(stage)  # before the card is written, which needs a complete model
            _complete_card(stage, fields)
            files = list_files(stage)
            check_publication(files, str(fields.repo_id), token)
        yield files


def _link(source: Path, link: Path) -> None:
    if not source.is_file():
        link.mkdir()  # only its name is shown
        return
    # Files that may be rewritten are copied, so that the user's own do not change.
    if link.name in (CARD, ADAPTER):
        shutil.copyfile(source, link)
        return
    try:
        link.symlink_to(source)
    except OSError:  # on Windows, links need a permission
        os.link(source, link)


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


def _complete_card(stage: Path, fields: CardFields) -> None:
    """Write the card if there is none, if it is only a library's template, or if fields of it were given."""
    card = stage / CARD
    is_template = card.is_file() and PLACEHOLDER in card.read_text(encoding="utf-8", errors="replace")
    if is_template:
        card.unlink()
    if not card.is_file() or fields.license or fields.language:
        write_card(stage, fields)


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
    names = {path.name for path in files.published}
    stale = [each.rfilename for each in before.siblings or [] if each.rfilename not in names]

    def commit() -> Publication:
        # The client keeps notes in these objects, so that every attempt needs new ones.
        done = api.create_commit(
            repo_id,
            [
                *(CommitOperationAdd(path.name, path) for path in files.published),
                *(CommitOperationDelete(name) for name in stale if any(fnmatch(name, each) for each in DECISIVE)),
            ],
            commit_message=commit_message or "Publish with docparade",
            revision=revision,
            create_pr=create_pr,
        )
        return Publication(done.pr_url or f"{api.endpoint}/{repo_id}", done.oid, done.oid != before.sha)

    return retry(commit, is_repeatable=not create_pr)
