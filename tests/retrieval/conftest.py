"""What the tests of this room share: a cache of their own, and the real collections where they are at hand."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared"

# ir_datasets learns its home when it is imported, and writes beside its files: it gets a copy before that.
if (SHARED / "ir_datasets").is_dir() and "IR_DATASETS_HOME" not in os.environ:
    _scratch = tempfile.mkdtemp(prefix="ir_datasets-")
    atexit.register(shutil.rmtree, _scratch, ignore_errors=True)
    os.environ["IR_DATASETS_HOME"] = f"{_scratch}/home"
    shutil.copytree(SHARED / "ir_datasets", os.environ["IR_DATASETS_HOME"], copy_function=shutil.copyfile)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCPARADE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def cranfield() -> str:
    if not Path(os.environ.get("IR_DATASETS_HOME", ""), "cranfield", "docs.txt").is_file():
        pytest.skip("Cranfield is not at hand (../shared/ir_datasets)")
    return "cranfield"


@pytest.fixture(scope="session")
def time_magazine() -> str:
    folder = SHARED / "collections" / "time"
    if not folder.is_dir():
        pytest.skip("the TIME collection is not at hand (../shared/collections/time)")
    return str(folder)


@dataclass(frozen=True)
class Small:
    """A small local collection, and what is in it."""

    folder: Path
    texts: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """With an empty document, one of stop words only, and queries that find nothing."""
    texts = {
        "d1": "The wing of a plane. Wings lift planes, and a wing's lift depends on speed.",
        "d2": "Boundary layer flow over a flat plate at high speed.",
        "d3": "",
        "d4": "Plates and layers: heat flows through composite plates.",
        "d5": "the of and",
        "d6": "Speed, speed, speed. The speed of heat. Technology of possibly supersonic flow.",
    }
    queries = {"q1": "wing lift", "q2": "speed of heated plates, speed", "q3": "unknown vocabulary", "q4": "the"}
    qrels = {"q1": {"d1": 2, "d2": 0}, "q2": {"d4": 1, "d6": 1}}
    folder = tmp_path / "small"
    folder.mkdir()
    lines = [json.dumps({"doc_id": name, "title": "", "text": text}) for name, text in texts.items()]
    (folder / "docs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "queries.tsv").write_text(
        "".join(f"{name}\t{text}\n" for name, text in queries.items()), encoding="utf-8"
    )
    judgments = [f"{query} 0 {name} {grade}" for query, grades in qrels.items() for name, grade in grades.items()]
    (folder / "qrels.txt").write_text("\n".join(judgments) + "\n", encoding="utf-8")
    return Small(folder, texts, queries, qrels)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts a file system in memory with the given options; skips the test where that is not permitted."""
    places: list[Path] = []

    def mount(*options: str) -> Path:
        place = tmp_path / "mounted"
        place.mkdir(exist_ok=True)
        done = subprocess.run(["mount", *options, "-t", "tmpfs", "tmpfs", place], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"mounting is not permitted here: {done.stderr.decode(errors='replace').strip()}")
        places.append(place)
        return place

    if shutil.which("mount") is None:
        pytest.skip("there is no mount command")
    yield mount
    for place in places:
        subprocess.run(["umount", place], check=True)
