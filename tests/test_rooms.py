"""Who may import whom, and that the front door opens in any order."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.project import PROJECT

import docparade

ROOMS = ("modeling", "retrieval", "reranking", "trainer", "experiments", "hub_cards", "benchmarks")
# What a room may import of ours, besides itself.
ALLOWED: dict[str, set[str]] = {
    "modeling": set(),
    "retrieval": set(),
    "reranking": {"modeling", "retrieval"},
    "hub_cards": {"modeling", "retrieval", "reranking"},
    # RankingTrainer.create_model_card writes the card.
    "trainer": {"modeling", "retrieval", "reranking", "hub_cards"},
    "experiments": {"modeling", "retrieval", "reranking", "hub_cards", "trainer", "configs"},
    # Measures everything, so no room may import it.
    "benchmarks": {"modeling", "retrieval", "reranking", "hub_cards", "trainer", "experiments"},
}
# What the files at the top of a room, and its folders, may import of the room, besides themselves.
ALLOWED_INSIDE: dict[str, dict[str, set[str]]] = {
    "retrieval": {
        "errors": set(),
        "progress": set(),
        "storage": {"errors"},
        "runs": {"errors", "storage"},
        "collections": {"errors", "progress", "storage", "runs", "pydocs"},
        "pydocs": {"errors", "progress", "storage", "runs", "collections"},
        "evaluation": {"errors", "storage", "runs"},
        "index": {"errors", "progress", "storage", "runs", "collections", "evaluation"},
    },
    "hub_cards": {
        "record_files": set(),
        "cards": {"record_files"},
        "publishing": {"record_files", "cards"},
        "space": set(),
    },
    "reranking": {
        "processes": set(),
        "caches": {"processes"},
    },
}
# push_to_hub writes a card where docparade is installed; a copy of the file in a checkpoint does not get there.
REACHED_BY_NAME = {("modeling/modeling_ranker.py", "docparade.hub_cards.publishing.hub_push")}
# The same inside experiments/ and trainer/, of their folders and of the files beside them.
ALLOWED_IN_FOLDERS: dict[str, dict[str, set[str]]] = {
    "experiments": {"recipes": set(), "": {"recipes"}, "tables": {"recipes", ""}},
    "trainer": {"data": set(), "": {"data"}},
}


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Level and module of every import of a file, also inside functions, and by `import_module("a.name")`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            yield from ((node.level, f"{node.module or ''}.{name}".strip(".")) for name in names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from ((0, str(name.value)) for name in node.args[:1] if isinstance(name, ast.Constant))


def our_imports(files: list[Path]) -> list[tuple[str, str]]:
    """Which file imports which of our modules, by its full name."""
    assert files
    found = []
    for file in files:
        package = ["docparade", *file.parent.relative_to(PROJECT).parts]
        for level, module in imports(file):
            above = package[: len(package) + 1 - level] if level else []
            found.append((str(file.relative_to(PROJECT)), ".".join([*above, module])))
    return [(file, module) for file, module in found if module.split(".")[0] == "docparade"]


@pytest.mark.parametrize("room", ROOMS)
def test_the_arrows_between_rooms(room: str) -> None:
    found = our_imports(sorted((PROJECT / room).rglob("*.py")))
    allowed = {f"docparade.{name}" for name in ALLOWED[room] | {room}}
    wrong = {one for one in found if ".".join(one[1].split(".")[:2]) not in allowed}
    assert wrong - REACHED_BY_NAME == set()
    assert found


@pytest.mark.parametrize(("room", "part"), [(room, part) for room, parts in ALLOWED_INSIDE.items() for part in parts])
def test_the_arrows_inside_a_room(room: str, part: str) -> None:
    place = PROJECT / room / part
    found = our_imports(sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")])
    inside = {name for _, name in found if name.split(".")[1] == room}
    allowed = {f"docparade.{room}.{name}" for name in ALLOWED_INSIDE[room][part] | {part}}
    assert [name for name in inside if ".".join(name.split(".")[:3]) not in allowed] == []


def test_no_file_name_stands_twice() -> None:
    found = [file for room in (*ROOMS, "docparade") for file in (PROJECT / room).rglob("*.py")]
    count = Counter(file.stem for file in found)
    assert {name for name in count if count[name] > 1} == {"__init__"}


@pytest.mark.parametrize("room", ALLOWED_IN_FOLDERS)
def test_the_arrows_between_folders_of_a_room(room: str) -> None:
    for folder, allowed in ALLOWED_IN_FOLDERS[room].items():
        files = sorted((PROJECT / room / folder).glob("*.py"))
        inside = [(file, module.split(".")) for file, module in our_imports(files) if module.split(".")[1] == room]
        # A module's name is followed by the name that is imported from it.
        used = [(file, parts[2] if len(parts) > 4 else "") for file, parts in inside]
        assert [one for one in used if one[1] not in allowed | {folder}] == []
        assert folder or {name for _, name in used} >= allowed


def test_only_its_command_imports_the_benchmark() -> None:
    found = our_imports(sorted((PROJECT / "docparade").rglob("*.py")))
    users = {file for file, module in found if module.startswith("docparade.benchmarks")}
    assert users == {"docparade/commands/benchmark.py"}


def test_the_files_that_travel_are_flat_and_alone() -> None:
    for file in (PROJECT / "modeling").glob("*.py"):
        # transformers finds the files to copy by this form alone: `from . import x` would be left behind.
        assert not re.search(r"^\s*from \. import", file.read_text(encoding="utf-8"), flags=re.MULTILINE), file
        for level, module in imports(file):
            assert level <= 1, f"{file} reaches out of its folder for {module}"
            assert level == 0 or (PROJECT / "modeling" / f"{module.split('.')[0]}.py").exists()
            is_ours = level == 0 and module.split(".")[0] == "docparade"
            assert not is_ours or (f"modeling/{file.name}", module) in REACHED_BY_NAME
    assert not [path for path in (PROJECT / "modeling").iterdir() if path.is_dir() and path.name != "__pycache__"]


def test_the_files_that_travel_name_no_command() -> None:
    """A checkpoint's code is used where the command line is not."""
    names = [file.stem.replace("_", "-") for file in (PROJECT / "docparade" / "commands").glob("*.py")]
    assert "convert" in names
    command = re.compile(rf"docparade ({'|'.join(names)})\b")
    for file in (PROJECT / "modeling").glob("*.py"):
        assert not command.search(file.read_text(encoding="utf-8")), file


ORDERS = [
    "import docparade; from transformers import AutoModel",
    "from transformers import AutoModel; import docparade",
    "import docparade.modeling",
    "import docparade.retrieval; import transformers",
    "from docparade import MaxPConfig",
    # Looking whether transformers is installed is not importing it.
    "import docparade; from importlib.util import find_spec; find_spec('transformers'); find_spec('transformers')",
    "import sys, docparade; del sys.modules['docparade']; import docparade",
]


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_models_are_registered_in_any_order(order: str) -> None:
    script = f"{order}; from transformers import AutoConfig; print(AutoConfig.for_model('parade').aggregation)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "transformer", done.stderr


@pytest.mark.slow
def test_transformers_keeps_its_own_loader() -> None:
    """Who asks for files of transformers, as importlib.resources does, finds the loader that knows them."""
    script = (
        "import docparade; from importlib.util import find_spec;"
        "print(find_spec('transformers').loader.is_package('transformers'));"
        "import transformers; print(type(transformers.__spec__.loader).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "SourceFileLoader"], done.stdout + done.stderr


def test_every_public_name_is_there() -> None:
    for name in docparade.__all__:
        assert getattr(docparade, name) is not None
        assert name in dir(docparade)
    with pytest.raises(AttributeError, match="attribute unknown"):
        docparade.unknown  # noqa: B018
