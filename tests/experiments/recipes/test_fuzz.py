"""Recipes and checkpoints that were damaged at random, and the same way every time: a sentence, or it works.

A few are part of every run of the tests; `pytest -m long tests/experiments/recipes/test_fuzz.py` tries thousands.
"""

from __future__ import annotations

import copy
import json
import math
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from support.recipes import make_collection, tiny_recipe

from docparade import DocumentRanker, MaxPForSequenceClassification, ParadeForSequenceClassification
from docparade.experiments.input_checks import check_inputs
from docparade.experiments.output_folder import OutputFolder
from docparade.experiments.recipes.data_recipe import DataRecipe
from docparade.experiments.recipes.merging import read_recipe, variants
from docparade.experiments.recipes.model_recipe import ModelRecipe, parameters
from docparade.experiments.recipes.recipe_files import shipped_recipes
from docparade.experiments.recipes.recipe_loading import load_recipe
from docparade.experiments.recipes.rerank_recipe import RerankRecipe
from docparade.modeling import CedrConfig, DocumentProcessor, MaxPConfig, ParadeConfig
from docparade.reranking.loading import load_ranker
from docparade.retrieval.errors import InputError
from docparade.trainer.arguments import RankingTrainingArguments

FEW_RECIPES, MANY_RECIPES = 20, 5000
FEW_CHECKPOINTS, MANY_CHECKPOINTS = 20, 2000

ODD_TEXTS = (
    *(
        "",
        " ",
        ".",
        "..",
        "../x",
        "./nowhere",
        "/",
        "/dev/null",
        "a/b/c",
        "a//b",
        "~",
        "-",
        "--x",
        "nan",
        "inf",
        "1e400",
    ),
    *(
        "-1",
        "0",
        "1e5",
        "0x1F",
        "true",
        "null",
        "no",
        "None",
        "é",
        "😀",
        "a b",
        "a\nb",
        "a\tb",
    ),
    *(
        "a" * 101,
        "{fold}",
        "{",
        "%s",
        "$HOME",
        "[",
        "*",
        "!x",
        "&a",
        "nDCG@5",
        "small",
    ),
    *(
        "package:",
        "package:json",
        "package:no_such_package/x",
        "hf:",
        "docparade:",
        "docparade:x",
        "hf:a/b/c",
        "small/docs.jsonl",
    ),
)
ODD_NUMBERS = (
    *(0, 1, -1, 2, 7, 2**31, 2**32, 10**30),
    *(0.0, -0.0, 0.5, 1.5, -2.5, 1e-320, 1e308, math.nan, math.inf, -math.inf),
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], [None], [1, "a"], {"a": 1}, {1: 2}, {None: None}, {"": ""}, [{}]),
    *(
        {"extends": "x"},
        {"extends": ["x"]},
        {"collection": "small"},
        [{"collection": "small"}],
        "bert-base",
        {"token": "x"},
    ),
)


# What a key may well take, so that more than the first check is reached.
PLAUSIBLE: tuple[Any, ...] = (
    *(
        True,
        True,
        False,
        1,
        2,
        3,
        8,
        0.1,
        0.5,
        1e-5,
        [0],
        [1, 5],
        ["small"],
        ["small", "small"],
        {"count": 3},
        {"seed": 3},
    ),
    *(
        "small",
        "ranker",
        "encoder",
        "triples.jsonl",
        "fuzz.yaml",
        "first",
        "max",
        "avg",
        "birch",
        "li2023",
        "yang2019",
        "word",
    ),
    *(
        "no",
        "steps",
        "epoch",
        "best",
        "adafactor",
        "sgd",
        "lion_8bit",
        "cosine",
        "warmup",
        "debug",
        "all",
        "none",
        "wandb",
    ),
    *(
        "distillation",
        "margin_mse",
        "cross_entropy",
        "inductor",
        "full_shard",
        "gloo",
        "spawn",
        "AP@100",
        "bm25+rm3",
        "text",
    ),
    *({"file": "small/qrels.txt"}, {"leave_one_out": True}, {"style": "deep", "rate": 0.5}, {"scorer": "ranker"}),
    *(
        {"method": "ql", "hits": 5},
        {"engine": "lucene"},
        {"preset": "yang2019"},
        {"max_passages": 2},
        {"a": {"data": "x"}},
    ),
)


# --- Recipes ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(
    encoder_folder: Callable[..., Path],
    tiny_ranker: Callable[..., DocumentRanker],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Path]:
    """A folder with all that the recipes name."""
    folder = tmp_path_factory.mktemp("fuzz")
    make_collection(folder / "small")
    (folder / "triples.jsonl").write_text('{"query": "a", "positive": "b", "negatives": ["c"]}\n', encoding="utf-8")
    shutil.copytree(encoder_folder("bert"), folder / "encoder")
    tiny_ranker(MaxPForSequenceClassification, "max").save_pretrained(folder / "ranker")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCPARADE_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def recipes(world: Path) -> list[dict[str, Any]]:
    """The tiny recipe, and the shipped ones with data and models that are here."""
    shipped = [local(read_recipe(name, variant)) for name in shipped_recipes() for variant in some_variants(name)]
    return [
        tiny_recipe("encoder"),
        {**tiny_recipe("encoder"), "variants": {"x": {"a": {}, "b": {"seed": 1}}}},
        *shipped,
    ]


def some_variants(name: str) -> list[str]:
    """The first labels of all axes, and the last ones."""
    axes = variants(name)
    return ["", ",".join(list(labels)[-1] for labels in axes.values())] if axes else [""]


def local(content: Any, key: str = "") -> Any:
    """A recipe's content with what is on this machine in the place of what it names."""
    here = {
        "encoder": "encoder",
        "cross_encoder": "ranker",
        "checkpoint": "ranker",
        "collection": "small",
        "triples": "triples.jsonl",
        "teacher": "ranker",
        "max_length": 32,
        "max_query_tokens": 8,
    }
    if key in here and content is not None:
        return here[key]
    if isinstance(content, dict):
        kept = {k: local(v, k) for k, v in content.items() if k not in ("run", "qrels", "query_field", "revision")}
        return {**kept, "max_length": 32, "max_query_tokens": 8} if key == "model" else kept
    return [local(item, key) for item in content] if isinstance(content, list) else content


SECTIONS: dict[str, tuple[str, ...]] = {
    "training": (*(f.name for f in fields(RankingTrainingArguments)), "batch_size"),
    "model": (
        *(f.name for f in fields(ModelRecipe)),
        *parameters(MaxPConfig),
        *parameters(ParadeConfig),
        *parameters(CedrConfig),
        *parameters(DocumentProcessor),
    ),
    "data": tuple(f.name for f in fields(DataRecipe)),
    "rerank": (*(f.name for f in fields(RerankRecipe)), "preset"),
    "": ("name", "seed", "paper", "lora", "test", "stages", "validation", "teacher", "measures", "variants", "extends"),
}


def places(content: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the values of nested content stand."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [found for key, value in items for found in ((*place, key), *places(value, (*place, key)))]


def at(content: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        content = content[key]
    return content


def odd_value(draw: random.Random) -> Any:
    return copy.deepcopy(
        draw.choice(draw.choice((ODD_TEXTS, ODD_NUMBERS, ODD_VALUES, PLAUSIBLE, PLAUSIBLE, PLAUSIBLE)))
    )


def mutate(content: dict[str, Any], draw: random.Random) -> None:
    """Change one thing of nested content."""
    *above, key = place = draw.choice(places(content) or [("name",)])
    around = at(content, tuple(above))
    value = around[key] if key in around or isinstance(around, list) else None
    kind = draw.choice(
        ("delete", "replace", "replace", "add", "add", "list", "mapping", "copy", "swap", "rename", "scale")
    )
    if kind == "delete":
        del around[key]
    elif kind == "replace":
        around[key] = odd_value(draw)
    elif kind == "add":
        section = draw.choice(list(SECTIONS))
        target = content.setdefault(section, {}) if section else content
        if isinstance(target, dict):
            target[draw.choice(SECTIONS[section])] = odd_value(draw)
    elif kind == "list":
        around[key] = [value] * draw.choice((1, 2))
    elif kind == "mapping":
        around[key] = {draw.choice(("x", str(key), "extends")): value}
    elif kind in ("copy", "swap"):
        *others, other = draw.choice(places(content))
        target = at(content, tuple(others))
        if kind == "swap":
            around[key] = copy.deepcopy(target[other])
        target[other] = copy.deepcopy(value)
    elif kind == "rename" and isinstance(around, dict):
        around[draw.choice((f"{key}s", str(key).upper(), "", "training", 7, draw.choice(ODD_TEXTS)))] = around.pop(key)
    elif kind == "scale" and isinstance(value, (int, float)):
        around[key] = value * draw.choice((-1, 0, 1e9, 0.1, 10**20))
    assert place


def scribble(text: str, draw: random.Random) -> str:
    """Change the text of a file: lines twice, gone, moved to another depth; characters that YAML reads otherwise."""
    lines = text.splitlines()
    number = draw.randrange(len(lines))
    kind = draw.choice(("twice", "gone", "deeper", "character", "cut"))
    if kind == "twice":
        lines.insert(number, lines[number])
    elif kind == "gone":
        del lines[number]
    elif kind == "deeper":
        lines[number] = draw.choice(("  ", "\t", "- ", "? ", "# ")) + lines[number]
    elif kind == "character":
        where = draw.randrange(len(lines[number]) + 1)
        lines[number] = lines[number][:where] + draw.choice("[]{}:,&*!|>'\"%@`#-\0\t\x85") + lines[number][where:]
    else:
        lines = lines[:number]
    return "\n".join(lines) + "\n"


def try_recipe(number: int, recipes: list[dict[str, Any]]) -> str:
    """Load and check one mutated recipe; `fine`, or what is wrong with it."""
    draw = random.Random(f"recipe {number}")
    content = copy.deepcopy(draw.choice(recipes[:2]) if draw.random() < 0.4 else draw.choice(recipes))
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        mutate(content, draw)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=draw.random() < 0.5)
    if draw.random() < 0.15:
        text = scribble(text, draw)
    overrides = []
    if draw.random() < 0.2:
        section = draw.choice(list(SECTIONS))
        key = ".".join(filter(None, (section, draw.choice(SECTIONS[section]))))
        value = odd_value(draw)
        overrides = [(key, value if isinstance(value, str) else yaml.safe_dump(value))]
    Path("fuzz.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        recipe = load_recipe("fuzz.yaml", "", overrides)
        check_inputs(recipe, OutputFolder(Path("out")), ["s1" if recipe.data.folds else None])
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 4000, f"{number}: {error}"
        assert "fuzz.yaml" in str(error), f"{number}: {error}"
        return str(error)
    except BaseException as error:
        raise AssertionError(f"recipe {number} with {overrides}:\n{text[:3000]}") from error
    assert load_recipe(written(recipe.to_yaml())).to_yaml() == recipe.to_yaml(), f"{number}: another recipe"
    return "fine"


def written(text: str) -> str:
    Path("again.yaml").write_text(text, encoding="utf-8")
    return "again.yaml"


@pytest.mark.slow
def test_damaged_recipes(recipes: list[dict[str, Any]]) -> None:
    outcomes = Counter(try_recipe(number, recipes) == "fine" for number in range(FEW_RECIPES))
    assert outcomes[True] and outcomes[False]


@pytest.mark.long
def test_many_damaged_recipes(recipes: list[dict[str, Any]]) -> None:
    outcomes = Counter(try_recipe(number, recipes) == "fine" for number in range(MANY_RECIPES))
    print(f"{outcomes[False]} recipes were refused, {outcomes[True]} were fine.")


# --- Checkpoints ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoints(
    tiny_ranker: Callable[..., DocumentRanker], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, bytes]]:
    """The files of a ranker of each family."""
    folder = tmp_path_factory.mktemp("checkpoints")
    tiny_ranker(MaxPForSequenceClassification, "kmax_avg").save_pretrained(folder / "maxp")
    tiny_ranker(ParadeForSequenceClassification, "transformer").save_pretrained(folder / "parade")
    return {path.name: {file.name: file.read_bytes() for file in sorted(path.iterdir())} for path in folder.iterdir()}


def damage(files: dict[str, bytes], draw: random.Random) -> str:
    """Damage one file of a checkpoint; says how."""
    name = draw.choice([*(name for name in files if not name.endswith(".py")), "config.json", "model.safetensors"])
    if name.endswith(".json") and draw.random() < 0.6:
        return f"{name}: {damage_json(files, name, draw)}"
    if name.endswith(".safetensors") and draw.random() < 0.6:
        return f"{name}: {damage_weights(files, name, draw)}"
    return f"{name}: {damage_bytes(files, name, draw)}"


def damage_bytes(files: dict[str, bytes], name: str, draw: random.Random) -> str:
    kind = draw.choice(("delete", "empty", "cut", "flip", "flip at the start", "garbage", "longer"))
    content = bytearray(files[name])
    if kind == "delete":
        del files[name]
        return kind
    if kind == "empty":
        content.clear()
    elif kind == "cut":
        del content[draw.randrange(len(content)) :]
    elif kind.startswith("flip"):
        for _ in range(draw.choice((1, 3, 30))):
            content[draw.randrange(min(len(content), 200) if kind != "flip" else len(content))] ^= 1 << draw.randrange(
                8
            )
    elif kind == "garbage":
        content[:] = draw.choice(
            (b"{}", b"[]", b"null", b'"x"', b"\0" * 100, b"\xff\xfe", b"<html></html>", b"[" * 5000)
        )
    else:
        content += b"\0" * draw.choice((1, 1000))
    files[name] = bytes(content)
    return kind


def damage_json(files: dict[str, bytes], name: str, draw: random.Random) -> str:
    """Another value, of any type, in the place of one field; or a field less or more."""
    content = json.loads(files[name])
    found = [place for place in places(content) if "vocab" not in place[:-1] or draw.random() < 0.01]
    *above, key = place = draw.choice(found)
    around = at(content, tuple(above))
    kind = draw.choice(("delete", "replace", "replace", "replace"))
    # Not too large: a model of a billion layers would be built.
    values = (
        None,
        True,
        False,
        0,
        -1,
        1,
        3,
        7,
        1.5,
        math.nan,
        "",
        "x",
        "é",
        [],
        {},
        [1],
        ["x"],
        {"x": 1},
        [[]],
        "gelu",
    )
    value = draw.choice(values)
    if kind == "delete":
        del around[key]
    else:
        around[key] = value
    files[name] = json.dumps(content).encode()
    return f"{kind} {place}" + (f" with {value!r}" if kind == "replace" else "")


def damage_weights(files: dict[str, bytes], name: str, draw: random.Random) -> str:
    Path("weights").write_bytes(files[name])
    weights = load_file("weights")
    chosen = draw.choice(sorted(weights))
    tensor = weights[chosen]
    kind = draw.choice(("shape", "less", "gone", "name", "type", "nan", "swap", "extra"))
    if kind == "shape":
        weights[chosen] = tensor.reshape(-1).contiguous() if draw.random() < 0.5 else tensor.T.contiguous()
    elif kind == "less":
        weights[chosen] = tensor[: len(tensor) // 2].contiguous()
    elif kind == "gone":
        del weights[chosen]
    elif kind == "name":
        weights[f"{chosen}x"] = weights.pop(chosen)
    elif kind == "type":
        weights[chosen] = tensor.to(
            draw.choice((torch.int64, torch.float16, torch.float64, torch.bool, torch.complex64))
        )
    elif kind == "nan":
        weights[chosen] = torch.full_like(tensor, draw.choice((math.nan, math.inf, 1e38)))
    elif kind == "swap":
        other = draw.choice(sorted(weights))
        weights[chosen], weights[other] = weights[other].clone(), tensor.clone()
    else:
        weights["extra"] = tensor.clone()
    save_file(weights, "weights", metadata={"format": "pt"} if draw.random() < 0.8 else None)
    files[name] = Path("weights").read_bytes()
    return f"{kind} {chosen}"


def try_checkpoint(number: int, checkpoints: dict[str, dict[str, bytes]]) -> str:
    """Load one damaged checkpoint and rank with it; `fine`, or what is wrong with it."""
    draw = random.Random(f"checkpoint {number}")
    files = dict(checkpoints[draw.choice(sorted(checkpoints))])
    how = damage(files, draw)
    shutil.rmtree("damaged", ignore_errors=True)
    Path("damaged").mkdir()
    for name, content in files.items():
        Path("damaged", name).write_bytes(content)
    try:
        ranker = load_ranker("damaged", "--model")
    except InputError as error:
        assert str(error).startswith("--model: damaged "), f"{number}, {how}: {error}"
        assert "\n" not in str(error) and len(str(error)) < 4000, f"{number}, {how}: {error}"
        return str(error)
    except BaseException as error:
        raise AssertionError(f"checkpoint {number}, {how}") from error
    try:
        ranked = ranker.rank("the query", ["a text", "another text of the license " * 20])
    except FloatingPointError as error:  # weights that overflow with some texts
        assert "is not a finite number: the weights are damaged" in str(error)
        return str(error)
    except BaseException as error:
        raise AssertionError(f"checkpoint {number}, {how}: does not rank") from error
    assert sorted(one.index for one in ranked) == [0, 1]
    assert all(math.isfinite(one.score) for one in ranked), f"{number}, {how}: {ranked}"
    return "fine"


@pytest.mark.slow
def test_damaged_checkpoints(
    checkpoints: dict[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcomes = Counter(try_checkpoint(number, checkpoints) == "fine" for number in range(FEW_CHECKPOINTS))
    assert outcomes[True] and outcomes[False]


@pytest.mark.long
def test_many_damaged_checkpoints(
    checkpoints: dict[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcomes = Counter(try_checkpoint(number, checkpoints) == "fine" for number in range(MANY_CHECKPOINTS))
    print(f"{outcomes[False]} checkpoints were refused, {outcomes[True]} were fine.")
