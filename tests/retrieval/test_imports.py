"""The room is light: no torch, no transformers, and nothing heavy before it is asked for."""

import subprocess
import sys
from pathlib import Path

import pytest

import docparade.retrieval

HEAVY = {"torch", "transformers", "datasets", "evaluate", "scipy", "ir_datasets", "ir_measures", "matplotlib"}
NEVER = {"torch", "transformers", "datasets", "peft", "accelerate"}
ROOM = Path(docparade.retrieval.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(ROOM).with_suffix("").parts)
    for path in ROOM.rglob("[!_]*.py")
    if path.parent.name != "ranking_metric"  # a script that `evaluate.load` reads, not a module
)


def loaded_by(statement: str) -> set[str]:
    script = f"import sys; {statement}; print(*(name.split('.')[0] for name in sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_importing_the_room_loads_nothing_heavy() -> None:
    assert not loaded_by("import docparade.retrieval") & (HEAVY | {"numpy"})


def test_no_module_of_the_room_needs_torch() -> None:
    assert "evaluation.measures" in MODULES
    statement = "import " + ", ".join(f"docparade.retrieval.{name}" for name in MODULES)
    assert not loaded_by(statement) & NEVER


def test_the_command_line_starts_light() -> None:
    assert not loaded_by("import docparade.cli") & (HEAVY | {"numpy"})


@pytest.mark.parametrize("name", docparade.retrieval.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(docparade.retrieval, name) is not None
    assert name in dir(docparade.retrieval)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="attribute unknown"):
        docparade.retrieval.unknown  # noqa: B018
