"""What the page's server refuses before Gradio sees it: requests of other sites, and uploads without end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.responses import PlainTextResponse

from .sources import MAX_BYTES, MAX_CHARACTERS, MEGABYTE

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

UPLOAD_PATH = "/gradio_api/upload"
KEPT_SECONDS = 3600
"""How long an uploaded file is kept."""
CHECK_SECONDS = 600
"""How often older files are looked for."""
MAX_KEPT_BYTES = 1000 * MEGABYTE
"""Of all files that are kept at a time."""
# A character can take six bytes in JSON; the rest is for the form's other fields and what surrounds the files.
MAX_BODY_BYTES = 6 * MAX_CHARACTERS + MEGABYTE // 2
MAX_UPLOAD_BYTES = MAX_BYTES + MEGABYTE // 2


class Guard:
    """An ASGI application around another one, which it protects.

    A page of another site can send requests to this server from its visitor's browser. It can even read the answers, if
    its name leads to this server's address (DNS rebinding): then the request's host is that site's name.
    """

    def __init__(self, app: ASGIApp, own_names: Callable[[], Collection[str]]) -> None:
        self.app = app
        self.own_names = own_names
        """The names under which the page is served, besides localhost and addresses."""
        self.uploads: deque[tuple[float, int]] = deque()
        """When how many bytes were received."""
        self.kept_bytes = 0
        """Their sum."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with a sentence."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif reason := self.find_fault(Headers(scope=scope), scope.get("method", "")):
            await PlainTextResponse(reason, status_code=403)(scope, receive, send)
        else:
            await self.app(scope, self.limit(receive, scope["path"].rstrip("/") == UPLOAD_PATH), send)

    def find_fault(self, headers: Headers, method: str) -> str | None:
        """Why a request is refused, if it is."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.is_own(_name_of(host)):
            return f"This page is not served as {host[:100]!r}. If it is, set SPACE_HOST to this name."
        if method in ("GET", "HEAD", "OPTIONS"):
            return None
        # All browsers send the first of these to localhost and by https, and the second one with every POST.
        site = headers.get("sec-fetch-site")
        if site is not None:
            is_foreign = site not in ("same-origin", "none")
        else:
            place = host if origin is None else origin.partition("://")[2]
            is_foreign = place.lower() != host.lower() and _name_of(place) not in self.own_names()
        return "Requests of other sites are refused." if is_foreign else None

    def is_own(self, name: str) -> bool:
        """Whether a host is this server's. An address is: nobody can make it lead elsewhere."""
        return name == "localhost" or _is_address(name) or name in self.own_names()

    def limit(self, receive: Receive, is_upload: bool) -> Receive:
        """`receive` with a limit of bytes."""
        received, is_whole = 0, False
        limit = MAX_UPLOAD_BYTES if is_upload else MAX_BODY_BYTES

        async def limited() -> Message:
            nonlocal received, is_whole
            message = await receive()
            received += len(message.get("body", b""))
            if is_upload and not is_whole:
                self.count_upload(message)
            is_whole = not message.get("more_body", False)
            if received > limit:
                sentence = f"This is more than the maximum allowed size of {limit // MEGABYTE} MB."
                # With the first error, Gradio deletes what it has written of the files; its words make status 413.
                raise MultiPartException(sentence) if is_upload else HTTPException(413, sentence)
            return message

        return limited

    def count_upload(self, message: Message) -> None:
        """Refuse more bytes than may be kept, and an upload that is broken off."""
        now = monotonic()
        while self.uploads and self.uploads[0][0] < now - KEPT_SECONDS - CHECK_SECONDS:
            self.kept_bytes -= self.uploads.popleft()[1]
        size = len(message.get("body", b""))
        self.uploads.append((now, size))
        self.kept_bytes += size
        if self.kept_bytes > MAX_KEPT_BYTES:
            raise MultiPartException("The server keeps as many files as it can; they are deleted after an hour.")
        if message["type"] == "http.disconnect":
            raise MultiPartException("The upload was broken off.")


def _name_of(netloc: str) -> str:
    """The host without its port.

    >>> _name_of("Localhost:7860"), _name_of("[::1]:7860")
    ('localhost', '::1')
    """
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
