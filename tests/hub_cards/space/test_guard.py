"""What the page's server refuses, asked of the real server."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("gradio", reason="Gradio is not installed: pip install 'docparade[space]'")

import httpx
from gradio.utils import get_upload_folder

from docparade import DocumentRanker, MaxPForSequenceClassification
from docparade.hub_cards.space import guard
from docparade.hub_cards.space.guard import Guard
from docparade.hub_cards.space.page import UPLOADED, Space, build_page, serve
from docparade.hub_cards.space.ranking import list_methods

PAGE, JOIN, UPLOAD = "/", "/gradio_api/queue/join", "/gradio_api/upload"
SPACE = "me-page.hf.space"


@pytest.fixture(scope="module")
def page(tiny_ranker: Callable[..., DocumentRanker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(tmp_path_factory.mktemp("uploads")))
        page = build_page(Space(list_methods({"tiny": tiny_ranker(MaxPForSequenceClassification, "max")})))
        serve(page, prevent_thread_lock=True, quiet=True)
        yield page
        page.close(verbose=False)


@pytest.fixture
def client(page: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=page.local_url, timeout=300, trust_env=False) as client:
        yield client


def written() -> list[str]:
    """The files of the upload folder."""
    return sorted(name for _, _, names in os.walk(get_upload_folder()) for name in names)


@pytest.mark.parametrize("host", ["localhost:7860", "LOCALHOST", "192.168.1.7", "[::1]:80", SPACE, "our.example"])
def test_its_own_names_are_answered(host: str, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACE_HOST", f"{SPACE},our.example")
    assert client.get(PAGE, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["other.example", SPACE, f"localhost.{SPACE}", "127.0.0.1.other.example", "", "[", "localhost@x", "x" * 5000],
)
def test_other_names_are_refused(host: str, client: httpx.Client) -> None:
    for answer in (client.get(PAGE, headers={"Host": host}), client.post(JOIN, headers={"Host": host}, json={})):
        assert answer.status_code == 403
        assert "This page is not served as" in answer.text and len(answer.text) < 300


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "OWN"},
        {"Origin": "null"},
        {"Origin": "http://other.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://["},
        {"Origin": "https://me-page.hf.space.other.example"},
    ],
)
@pytest.mark.parametrize("path", [JOIN, UPLOAD])
def test_what_other_sites_send_is_refused(path: str, headers: dict[str, str], client: httpx.Client) -> None:
    headers = {name: value.replace("OWN", str(client.base_url).rstrip("/")) for name, value in headers.items()}
    answer = client.post(path, headers=headers, files={"files": ("a.txt", b"x")})
    assert (answer.status_code, answer.text) == (403, "Requests of other sites are refused.")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "OWN"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "OWN"},
        # Between the browser and the server stands the Hub's, which may change the host.
        {"Origin": f"https://{SPACE}"},
        {"Origin": f"https://{SPACE}", "Host": SPACE, "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_what_the_page_sends_is_taken(
    headers: dict[str, str], client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPACE_HOST", SPACE)
    headers = {name: value.replace("OWN", str(client.base_url).rstrip("/")) for name, value in headers.items()}
    assert client.post(UPLOAD, headers=headers, files={"files": ("a.txt", b"x")}).status_code == 200


def test_large_requests_are_refused(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_BODY_BYTES", 2**20)
    monkeypatch.setattr(guard, "MAX_UPLOAD_BYTES", 2**21)
    before = written()
    answer = client.post(JOIN, content=b"[" * (2**20 + 1))
    assert answer.status_code == 413 and "more than the maximum allowed size of 1 MB" in answer.text
    answer = client.post(UPLOAD, files=[("files", (f"{i}.txt", b"x" * 2**20)) for i in range(2)])
    assert answer.status_code == 413 and "more than the maximum allowed size of 2 MB" in answer.text
    assert written() == before


def test_the_server_keeps_so_many_bytes(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1e6
    monkeypatch.setattr(guard, "MAX_KEPT_BYTES", 2**20)
    monkeypatch.setattr(guard, "monotonic", lambda: now)

    def send(size: int) -> httpx.Response:
        return client.post(UPLOAD, files={"files": ("a.txt", b"x" * size)})

    assert send(2**19).status_code == 200
    before = written()
    refused = send(2**19)
    assert refused.status_code == 400 and "The server keeps as many files as it can" in refused.text
    assert written() == before
    now += guard.KEPT_SECONDS + guard.CHECK_SECONDS + 1
    assert send(2**19).status_code == 200


def test_nothing_stays_of_an_upload_that_is_broken_off(page: Any, client: httpx.Client) -> None:
    before = written()
    place = urlsplit(page.local_url)
    with socket.create_connection((place.hostname, place.port)) as connection:
        head = "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 10000\r\n\r\n--b\r\n"
        part = 'Content-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\nIt rains'
        connection.sendall(f"POST {UPLOAD} HTTP/1.1\r\nHost: localhost\r\n{head}{part}".encode())
        wait_until(lambda: written() != before)
    wait_until(lambda: written() == before)


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_so():
            return
        Event().wait(0.1)
    raise AssertionError


@pytest.mark.parametrize(
    ("path", "sentence"), [("https://other.example/file.txt", "A file has to be uploaded."), ("/etc/hostname", None)]
)
def test_only_uploaded_files_are_read(path: str, sentence: str | None, page: Any, client: httpx.Client) -> None:
    """Gradio would download what a request names by an address."""
    [number] = [number for number, function in page.fns.items() if function.name == "answer"]
    file = {"path": path, "meta": {"_type": "gradio.FileData"}}
    label = next(iter(page.fns[number].inputs[4].choices))[1]
    data = ["rain", UPLOADED, "", [file], label, "Nothing"]
    session = f"session{abs(hash(path))}"
    asked = client.post(JOIN, json={"data": data, "fn_index": number, "session_hash": session})
    assert asked.status_code == 200
    with client.stream("GET", f"/gradio_api/queue/data?session_hash={session}") as lines:
        messages = (json.loads(line[6:]) for line in lines.iter_lines() if line.startswith("data: "))
        done = next(message for message in messages if message["msg"] == "process_completed")
    assert not done["success"] and done["output"]["error"] == sentence


def test_a_share_address_is_its_own(page: Any, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "share_url", "https://abc.gradio.live")
    assert client.get(PAGE, headers={"Host": "abc.gradio.live"}).status_code == 200


def test_the_guard_is_the_server_that_is_reached(page: Any) -> None:
    """No other server stands before it, whatever the environment says."""
    assert not page.ssr_mode and page.node_process is None
    assert [layer.cls for layer in page.app.user_middleware].count(Guard) == 1
