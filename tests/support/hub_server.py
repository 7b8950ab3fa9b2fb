"""A small Hugging Face Hub on this machine: it speaks enough of the Hub's HTTP for the real client to push and load.

Repositories, branches, pull requests, large files by hash, tokens and private models are as on the Hub. Everything is
kept in memory. `failures` makes it answer chosen requests with errors, and `requests` lists what it was asked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

LARGE = (".safetensors", ".png", ".model")
LICENSES = ("apache-2.0", "mit", "other")
Files = dict[str, bytes]


@dataclass
class Repository:
    """The files of every commit, and the commit of every branch and pull request."""

    private: bool
    commits: dict[str, Files] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def commit(self, ref: str, files: Files) -> str:
        number = hashlib.sha1(f"{ref} {len(self.commits)} {sorted(files)}".encode()).hexdigest()
        self.commits[number] = files
        self.refs[ref] = number
        return number

    def find(self, revision: str) -> str:
        commit = self.refs.get(revision, revision)
        if commit not in self.commits:
            raise HubError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit


@dataclass
class Failure:
    """Answers the next `times` requests whose method and path match with an error, or with a wrong content."""

    method: str
    path: str
    status: int
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = field(default_factory=lambda: {"error": "try later"})


@dataclass
class Hub:
    """The state of the server, shared with the test."""

    url: str = ""
    tokens: dict[str, str] = field(default_factory=dict)
    """Token -> the organization it may write to."""
    repositories: dict[str, Repository] = field(default_factory=dict)
    large_files: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def files(self, name: str, revision: str = "main") -> Files:
        repository = self.repositories[name]
        return repository.commits[repository.find(revision)]

    def asked(self, method: str, path: str = "") -> list[str]:
        return [one for one in self.requests if one.startswith(f"{method} ") and re.search(path, one)]

    def fail(self, method: str, path: str) -> Failure | None:
        for failure in self.failures:
            if failure.times and failure.method == method and re.search(failure.path, path):
                failure.times -= 1
                return failure
        return None


class HubError(Exception):
    """An answer that is an error, with the headers by which the client knows it."""

    def __init__(self, status: int, code: str = "", message: str = "", body: Any = None) -> None:
        self.status, self.body = status, body if body is not None else {"error": message}
        self.headers = {"X-Error-Code": code} if code else {}
        self.headers |= {"X-Error-Message": message} if message else {}


class Handler(BaseHTTPRequestHandler):
    """One connection. `hub` is set by `serve_hub`."""

    hub: Hub
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer goes out in one piece; in two, each would wait for the other's acknowledgment

    def log_message(self, *_: Any) -> None:
        pass

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, query = unquote(urlsplit(self.path).path), parse_qs(urlsplit(self.path).query)
        with self.hub.lock:
            self.hub.requests.append(f"{self.command} {path}")
            try:
                if failure := self.hub.fail(self.command, path):
                    return self.answer(failure.status, failure.body, failure.headers)
                self.route(path, query, body)
            except HubError as error:
                self.answer(error.status, error.body, error.headers)

    do_GET = do_HEAD = do_POST = do_PUT = do

    def answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def route(self, path: str, query: dict[str, list[str]], body: bytes) -> None:
        asked = "GET" if self.command == "HEAD" else self.command
        for method, pattern, action in ROUTES:
            if method == asked and (found := re.fullmatch(pattern, path)):
                return action(self, *found.groups(), query=query, body=body)
        raise HubError(404, message=f"not a route: {self.command} {path}")

    # --- Access ------------------------------------------------------------------------------------------------------

    def organization(self) -> str | None:
        """What the request's token may write to; `None` without a token."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token not in self.hub.tokens:
            raise HubError(401, message="Invalid credentials in Authorization header")
        return self.hub.tokens.get(token)

    def repository(self, name: str, write: bool = False) -> Repository:
        owner, repository = self.organization(), self.hub.repositories.get(name)
        if repository is None or (repository.private and owner != name.split("/")[0]):
            raise HubError(401 if owner is None else 404, "RepoNotFound", "Repository not found")
        if write and owner != name.split("/")[0]:
            raise HubError(403, message="You don't have the rights to write here")
        return repository

    # --- Repositories ------------------------------------------------------------------------------------------------

    def create(self, *, body: bytes, **_: Any) -> None:
        asked, owner = json.loads(body), self.organization()
        if owner is None:
            raise HubError(401, message="Invalid username or password.")
        name = f"{asked.get('organization') or owner}/{asked['name']}"
        if not name.startswith(f"{owner}/"):
            raise HubError(403, message=f"You don't have the rights to create a model under {name.split('/')[0]}")
        answer = {"url": f"{self.hub.url}/{name}", "id": name}
        if name in self.hub.repositories:
            raise HubError(409, body={**answer, "error": "You already created this model repo"})
        self.hub.repositories[name] = Repository(asked.get("visibility") == "private" or asked.get("private", False))
        self.hub.repositories[name].commit("main", {".gitattributes": b"*.safetensors filter=lfs\n"})
        self.answer(200, answer)

    def branch(self, name: str, branch: str, **_: Any) -> None:
        repository = self.repository(name, write=True)
        if branch in repository.refs:
            raise HubError(409, message="Reference already exists")
        repository.refs[branch] = repository.refs["main"]
        self.answer(200, {})

    def info(self, name: str, revision: str | None = None, **_: Any) -> None:
        repository = self.repository(name)
        commit = repository.find(revision or "main")
        files = [{"rfilename": file} for file in repository.commits[commit]]
        self.answer(200, {"id": name, "sha": commit, "private": repository.private, "tags": [], "siblings": files})

    def tree(self, name: str, revision: str, folder: str | None, **_: Any) -> None:
        repository = self.repository(name)
        files = repository.commits[repository.find(revision)]
        if folder:  # models here are flat
            raise HubError(404, "EntryNotFound", f"{folder} does not exist")
        entries = [{"type": "file", "path": p, "size": len(c), "oid": git_hash(c)} for p, c in files.items()]
        self.answer(200, entries)

    def resolve(self, name: str, revision: str, file: str, **_: Any) -> None:
        repository = self.repository(name)
        commit = repository.find(revision)
        content = repository.commits[commit].get(file)
        if content is None:
            raise HubError(404, "EntryNotFound", "Entry not found")
        etag = hashlib.sha256(content).hexdigest() if file.endswith(LARGE) else git_hash(content)
        self.answer(200, content, {"X-Repo-Commit": commit, "ETag": f'"{etag}"'})

    # --- Uploads -----------------------------------------------------------------------------------------------------

    def validate_yaml(self, *, body: bytes, **_: Any) -> None:
        """Refuses metadata that is not YAML or has an unknown license, and warns of empty metadata."""
        found = re.match(r"---\n(.*?)\n---", json.loads(body)["content"], flags=re.DOTALL)
        warnings = [] if found else [{"message": "empty or missing yaml metadata in repo card"}]
        try:
            data = yaml.safe_load(found[1]) if found else {}
            wrong = not isinstance(data, dict) or data.get("license", "mit") not in LICENSES
            errors = [{"message": '"license" must be one of the known licenses'}] if wrong else []
        except yaml.YAMLError as error:
            errors = [{"message": f"not valid YAML: {error}"}]
        self.answer(400 if errors else 200, {"errors": errors, "warnings": warnings})

    def preupload(self, name: str, revision: str, *, body: bytes, query: dict[str, list[str]]) -> None:
        repository = self.repository(name, write="create_pr" not in query)
        files = repository.commits[repository.find(revision)]
        answers = []
        for file in json.loads(body)["files"]:
            path, content = file["path"], files.get(file["path"])
            is_large = path.endswith(LARGE)
            oid = content and (hashlib.sha256(content).hexdigest() if is_large else git_hash(content))
            mode = "lfs" if is_large else "regular"
            answers.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self.answer(200, {"files": answers})

    def batch(self, name: str, *, body: bytes, **_: Any) -> None:
        self.repository(name)
        objects: list[dict[str, Any]] = [{"oid": o["oid"], "size": o["size"]} for o in json.loads(body)["objects"]]
        for each in objects:
            if each["oid"] not in self.hub.large_files:
                each["actions"] = {"upload": {"href": f"{self.hub.url}/storage/{each['oid']}"}}
        self.answer(200, {"transfer": "basic", "objects": objects})

    def store(self, oid: str, *, body: bytes, **_: Any) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            raise HubError(400, message="the content does not match its hash")
        self.hub.large_files[oid] = body
        self.answer(200, {})

    def commit(self, name: str, revision: str, *, body: bytes, query: dict[str, list[str]]) -> None:
        is_request = "create_pr" in query
        repository = self.repository(name, write=not is_request)
        files = dict(repository.commits[repository.find(revision)])
        for line in body.splitlines():
            key, value = (entry := json.loads(line))["key"], entry["value"]
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.hub.large_files[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
        number = sum(ref.startswith("refs/pr/") for ref in repository.refs) + 1
        commit = repository.commit(f"refs/pr/{number}" if is_request else revision, files)
        answer = {"commitUrl": f"{self.hub.url}/{name}/commit/{commit}", "commitOid": commit, "success": True}
        self.answer(200, {**answer, "pullRequestUrl": f"{self.hub.url}/{name}/discussions/{number}"})


MODEL = r"/api/models/([^/]+/[^/]+)"
ROUTES: list[tuple[str, str, Callable[..., None]]] = [
    ("POST", r"/api/repos/create", Handler.create),
    ("POST", r"/api/validate-yaml", Handler.validate_yaml),
    ("POST", rf"{MODEL}/branch/(.+)", Handler.branch),
    ("POST", rf"{MODEL}/preupload/(.+)", Handler.preupload),
    ("POST", rf"{MODEL}/commit/(.+)", Handler.commit),
    ("POST", r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", Handler.batch),
    ("PUT", r"/storage/(\w+)", Handler.store),
    ("GET", MODEL, Handler.info),
    ("GET", rf"{MODEL}/revision/(.+)", Handler.info),
    ("GET", rf"{MODEL}/tree/(main|refs/pr/\d+|[^/]+)(?:/(.*))?", Handler.tree),
    ("GET", r"/([^/]+/[^/]+)/resolve/(refs/pr/\d+|[^/]+)/(.+)", Handler.resolve),
]


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serve_hub(tokens: dict[str, str]) -> Iterator[Hub]:
    """Run a Hub on a free port of this machine."""
    hub = Hub(tokens=tokens)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
