"""The pins with their hashes are those of constraints.txt."""

from __future__ import annotations

import re

from support.project import PROJECT

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", flags=re.MULTILINE)


def pins(name: str) -> set[tuple[str, str]]:
    found = PIN.findall((PROJECT / name).read_text(encoding="utf-8"))
    return {(re.sub(r"[._-]+", "-", package).lower(), version) for package, version in found}


def test_every_pin_but_torch_has_hashes() -> None:
    assert pins("requirements.lock") == {pin for pin in pins("constraints.txt") if pin[0] != "torch"}, (
        "constraints.txt has changed: run scripts/lock.sh"
    )
    stanzas = re.split(r"^(?=\S)", (PROJECT / "requirements.lock").read_text(encoding="utf-8"), flags=re.MULTILINE)
    packages = [stanza for stanza in stanzas if PIN.match(stanza)]
    assert len(packages) > 100
    assert all("--hash=sha256:" in stanza for stanza in packages)
