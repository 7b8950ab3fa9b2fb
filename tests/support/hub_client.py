"""A process in which the real client of the Hub talks to the server of `hub_server`.

The client reads its settings (HF_ENDPOINT, HF_TOKEN, ...) when it is imported, so it needs a process of its own. One
process runs many snippets of code, because starting one takes seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# Runs the snippets that it reads from standard input, a JSON string a line. Answers with a snippet's `value`, the
# sentence of the error that it raised, and what it printed.
LOOP = """
import contextlib, io, json, sys
answers, sys.stdout = sys.stdout, sys.stderr
names = {}
for line in sys.stdin:
    answer, shown = {"value": None, "error": None}, io.StringIO()
    try:
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            exec(json.loads(line), names)
        answer["value"] = names.pop("value", None)
    except BaseException as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    answers.write(json.dumps({**answer, "shown": shown.getvalue()}) + "\\n")
    answers.flush()
"""


class HubClient:
    """A process with the settings of a user of the Hub."""

    def __init__(self, url: str, home: Path, token: str | None, **environment: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        settings = {
            "HF_ENDPOINT": url,
            "HF_HOME": str(home / "huggingface"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HOME": str(home),
            "USER": home.name,
            "LOGNAME": home.name,
            **({} if token is None else {"HF_TOKEN": token}),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", LOOP],
            env={**kept, **settings, **environment},
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, code: str) -> dict[str, Any]:
        """Run a snippet: `{"value", "error", "shown"}`."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def value(self, code: str) -> Any:
        """The `value` of a snippet that must not fail."""
        answer = self.run(code)
        assert answer["error"] is None, answer
        return answer["value"]

    def error(self, code: str) -> str:
        """The error of a snippet that must fail."""
        answer = self.run(code)
        assert answer["error"] is not None, answer
        return answer["error"]

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.kill()  # leaving takes seconds, and nothing is left to be written
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
