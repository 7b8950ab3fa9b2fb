"""How the project reads, writes and spells text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from support.project import PROJECT

TEXT = ("open", "read_text", "write_text")
WRITTEN_BY_HAND = {".md", ".py", ".pyi", ".sh", ".toml", ".yaml", ".yml"}
ROOMS = ("modeling", "retrieval", "reranking", "trainer", "experiments", "hub_cards", "benchmarks", "docparade")
OTHER_FOLDERS = ("configs", "docs", "examples", "scripts", "tests")
# Stem and ending apart, so that this file does not find itself. Identifiers count: no word boundary before the stem.
BRITISH = re.compile(
    r"(?:normal|token|initial|optim|minim|maxim|summar|recogn|organ|serial|random|general|parallel|quant|vector)"
    r"is(?:e[sdr]?|ing|ation)s?(?![a-z])"
    r"|(?:behavi|col|neighb|fav|hon|harb|lab)our|(?:cent|met|lit)re(?:s|d)?(?![a-z])|anal(?:yse)[dr]?(?![a-z])"
    r"|judg(?:e)ment|(?:lic|def|off)ence|gre(?:y)(?![a-z])|(?:label|model|cancel|travel|signal)l(?:ed|ing|er)|catalog(?:ue)",
    flags=re.IGNORECASE,
)


def calls(folder: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call of something that opens a file, with its place and its name."""
    for path in sorted((PROJECT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and called(node) in (*TEXT, "write_bytes"):
                yield f"{path.relative_to(PROJECT)}, line {node.lineno}", node


def called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def modes(node: ast.Call) -> list[str]:
    """The modes that a file is opened with: short texts among the arguments, such as `rt`."""
    values = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    return [
        value for value in values if isinstance(value, str) and 0 < len(value) <= 3 and set(value) <= set("rwxabt+")
    ]


def test_text_is_utf_8_on_every_machine() -> None:
    found = 0
    for place, node in chain.from_iterable(map(calls, (*ROOMS, "scripts", "examples"))):
        opens_text = called(node) in ("read_text", "write_text") or any("b" not in mode for mode in modes(node))
        if opens_text:
            found += 1
            assert any(keyword.arg == "encoding" for keyword in node.keywords), f"{place}: says no encoding"
    assert found > 20


def writes(node: ast.Call) -> bool:
    return called(node) in ("write_text", "write_bytes") or any(set(mode) & set("wxa+") for mode in modes(node))


def test_what_experiments_write_appears_whole() -> None:
    found = [place for room in ("trainer", "experiments") for place, node in calls(room) if writes(node)]
    assert found == [], "use atomic_write, so that a kill leaves no half of a file"
    assert [place for place, node in calls("retrieval") if writes(node)], "atomic_write itself is found"


def text_files() -> Iterator[Path]:
    """Everything in the project that people wrote; what tools wrote (the lock file, SVG) is left out."""
    yield from (path for path in PROJECT.iterdir() if path.suffix in WRITTEN_BY_HAND)
    for folder in (*ROOMS, *OTHER_FOLDERS):
        yield from (path for path in (PROJECT / folder).rglob("*") if path.suffix in WRITTEN_BY_HAND)


def test_spelling_is_american() -> None:
    files = list(text_files())
    assert len(files) > 200
    found = [
        f"{path.relative_to(PROJECT)}, line {number}: {match[0]}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for match in BRITISH.finditer(line)
    ]
    assert found == []
