"""Errors of the Hub and of the network: tried again if that can help, and explained in one sentence if not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import TypeVar

from huggingface_hub.errors import (
    HfHubHTTPError,
    HTTPError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RevisionNotFoundError,
)
from transformers.utils import logging

from docparade.retrieval.errors import InputError

logger = logging.get_logger(__name__)

Result = TypeVar("Result")

ATTEMPTS = 4
LONGEST_WAIT = 300.0
"""Seconds. The Hub's limits are for five minutes."""
NO_TOKEN = "there is no Hugging Face token: run hf auth login, or set the environment variable HF_TOKEN."
OFFLINE = "HF_HUB_OFFLINE is set, so nothing can be pushed: unset it, or use --dry-run."


def retry(step: Callable[[], Result], is_repeatable: bool = True, wait: Callable[[float], None] = time.sleep) -> Result:
    """Run a request to the Hub, and run it again if the Hub is busy or not reachable for a moment.

    Args:
        step: The request.
        is_repeatable: Whether the request can be made twice. If not, it is repeated only if the Hub has refused it,
            and not if its answer may have been lost.
        wait: Waits for some seconds.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return step()
        except Exception as error:
            if (seconds := _find_wait(error, attempt, is_repeatable)) is None:
                raise
            logger.warning(f"{_describe(error)} Trying again in {seconds:g} seconds.")
            wait(seconds)
    return step()


def _find_wait(error: Exception, attempt: int, is_repeatable: bool) -> float | None:
    """How many seconds to wait before another attempt; `None` if it would not help."""
    cause = _find_cause(error)
    if isinstance(cause, HfHubHTTPError):
        status = cause.response.status_code
        if status != 429 and (status < 500 or not is_repeatable):
            return None
        asked = cause.response.headers.get("Retry-After", "")
        seconds = float(asked) if asked.isdigit() else 2.0 ** (attempt - 1)
        return seconds if seconds <= LONGEST_WAIT else None
    if isinstance(cause, (HTTPError, json.JSONDecodeError)) and is_repeatable:
        return 2.0 ** (attempt - 1)
    return None


@contextmanager
def explain_hub_errors(repo_id: str, revision: str | None = None) -> Iterator[None]:
    """Turn errors of the Hub and of the network into an `InputError` of one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        # The answer about a card's metadata has status 400, and the reason is in the error that the client makes of it.
        is_metadata = isinstance(error, ValueError) and "Invalid metadata" in str(error)
        sentence = _explain(error if is_metadata else _find_cause(error), repo_id, revision)
        if sentence is None:
            raise
        raise InputError(sentence) from error


def _find_cause(error: BaseException) -> BaseException:
    """The error of the Hub behind an error; the client wraps errors of uploads."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, HTTPError):
            return cause
        cause = cause.__cause__
    return error


def _explain(error: BaseException, repo_id: str, revision: str | None) -> str | None:
    if isinstance(error, LocalTokenNotFoundError):
        return NO_TOKEN
    if isinstance(error, OfflineModeIsEnabled):
        return OFFLINE
    if isinstance(error, RevisionNotFoundError):
        return f"{repo_id} has no revision {revision or 'main'} on the Hub: check --revision."
    if isinstance(error, HfHubHTTPError):
        return _explain_status(error, repo_id)
    if isinstance(error, json.JSONDecodeError):
        return "the Hub's answer cannot be read: try again later; what was uploaded is not uploaded again."
    if isinstance(error, HTTPError):
        return f"the Hub cannot be reached ({_describe(error)}): check the network, and run the same command again."
    if isinstance(error, ValueError) and "Invalid metadata" in str(error):
        return f"the Hub does not accept the metadata of README.md: {_one_line(str(error).partition('README.md.')[2])}"
    if _is_raised_by_client(error):
        return (
            f"the Hub's answer does not fit what was sent ({_describe(error)}): run the same command again; if this "
            "stays, see whether HF_ENDPOINT, or a proxy, leads to a Hub."
        )
    return None


def _is_raised_by_client(error: BaseException) -> bool:
    """Whether the client of the Hub stumbled: it takes much of an answer for granted, such as the hashes in it."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return isinstance(error, Exception) and frames[-1].f_globals["__name__"].startswith("huggingface_hub.")


def _explain_status(error: HfHubHTTPError, repo_id: str) -> str:
    status = error.response.status_code
    said = f" (the Hub says: {_one_line(error.server_message)})" if error.server_message else ""
    if status == 401:
        return f"the Hub does not accept the token{said}: run hf auth login, or set HF_TOKEN to a valid one."
    if status == 403:
        return f"the token does not permit writing to {repo_id}{said}: use a token with write access to it."
    if status == 404:
        return f"{repo_id} is not on the Hub, or the token does not permit seeing it{said}: check the name."
    if status == 409:
        return f"{repo_id} was changed by somebody else at the same time{said}: run the same command again."
    if status == 429:
        after = error.response.headers.get("Retry-After")
        when = f"in {after} seconds" if after else "later"
        return f"the Hub accepts no more requests for now{said}: run the same command again {when}."
    if status >= 500:
        return f"the Hub has an error of its own, {status}{said}: run the same command again later."
    return f"the Hub refused the request with the error {status}{said}."


def _describe(error: BaseException) -> str:
    cause = _find_cause(error)
    if isinstance(cause, HfHubHTTPError):
        return f"The Hub answered with the error {cause.response.status_code}."
    return f"{type(cause).__name__}: {_one_line(str(cause))}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300].rstrip(".")
