"""Recipe files: YAML that extends other YAML, with variants and command-line overrides laid over it.

A recipe is a mapping. `extends: NAME` lays it over another file; a section that is only a name, such as
`model: electra-base`, is short for `model: {extends: electra-base}`. Names are looked up beside the recipe: recipes in
its own folder, models and data in the folders `models` and `data` next to that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from docparade.retrieval.errors import InputError
from docparade.retrieval.files import open_text
from docparade.retrieval.first_stage import unused_parameters

Content = dict[str, Any]

# Which folder the names of a section are looked up in, beside the recipe's own.
FOLDERS = {"model": "models", "data": "data", "validation": "data", "test": "data"}
# Keys of which one is used: naming one lays aside the others that a file below had.
ALTERNATIVES = ({"encoder", "cross_encoder", "checkpoint"}, {"run", "first_stage"}, {"count", "file", "leave_one_out"})


def read_recipe(path: str | Path, variant: str = "", overrides: Sequence[tuple[str, str]] = ()) -> Content:
    """What a recipe file says, complete: with what it extends, the chosen variant and the overrides.

    Args:
        path: The recipe.
        variant: Labels of the recipe's variants, parted by commas; of an axis without one, the first is taken.
        overrides: Keys with dots, and values as YAML: `[("training.learning_rate", "3e-6")]`.

    Example:
        >>> read_recipe("configs/recipes/zhang2021-table1.yaml", "gov2-title,sump")["name"]  # doctest: +SKIP
        'zhang2021-table1-gov2-title-sump'
    """
    path = Path(path)
    content = _with_sections(_with_base(_read(path), path, path.parent), path)
    content = _with_variant(content, variant, path)
    return _with_overrides(content, overrides, path)


def variants(path: str | Path) -> dict[str, list[str]]:
    """The labels of each axis along which a recipe varies.

    Example:
        >>> variants("configs/recipes/zhang2021-table1.yaml")["aggregation"]  # doctest: +SKIP
        ['firstp', 'maxp', 'sump', 'avgp']
    """
    path = Path(path)
    axes = _axes(_with_base(_read(path), path, path.parent), path)
    return {axis: list(labels) for axis, labels in axes.items()}


def merge(base: Any, over: Any, *, other_data: bool = True) -> Any:
    """Lay one value over another: mappings key by key, anything else as a whole.

    Args:
        base: What lies below.
        over: What lies above.
        other_data: Whether a mapping that names a collection or triples is other data, of which nothing stays below.

    Example:
        >>> merge({"encoder": "a", "window": 150}, {"checkpoint": "b"})
        {'window': 150, 'checkpoint': 'b'}
        >>> merge({"collection": "gov2/trec-tb-2004", "query_field": "title"}, {"collection": "cranfield"})
        {'collection': 'cranfield'}
    """
    if not (isinstance(base, Mapping) and isinstance(over, Mapping)):
        return over
    if other_data and over.keys() & {"collection", "triples"}:
        return over
    laid_aside = {key for group in ALTERNATIVES if group & over.keys() for key in group - over.keys()}
    # Another method of the first stage does not use the parameters that a file below gave the old one.
    laid_aside |= unused_parameters(over.get("method")) - over.keys()
    merged = {key: value for key, value in base.items() if key not in laid_aside}
    return merged | {key: merge(merged.get(key), value, other_data=other_data) for key, value in over.items()}


class _Loader(yaml.SafeLoader):
    """YAML in which a key stands once: the plain loader takes the last of two, in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                mark = key_node.start_mark
                raise yaml.MarkedYAMLError(problem=f"the key {key} stands there twice", problem_mark=mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _read(path: Path) -> Content:
    with open_text(path) as file:
        try:
            content = yaml.load(file, _Loader)
        except yaml.MarkedYAMLError as error:
            line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
            raise InputError(f"{path}{line}: not YAML ({error.problem}).") from None
        except yaml.YAMLError as error:
            raise InputError(f"{path}: not YAML ({error}).") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: is no mapping of keys to values.")
    return content


def _with_base(content: Content, path: Path, folder: Path, above: tuple[Path, ...] = ()) -> Content:
    """The content laid over the file that it extends, and that over the one it extends."""
    if "extends" not in content:
        return content
    name = content["extends"]
    if not isinstance(name, str):
        raise InputError(f"{path}, extends: is {name!r}, and has to be the name of a file.")
    base = path.parent / name if name.endswith(".yaml") else folder / f"{name}.yaml"
    if not base.is_file():
        raise InputError(f"{path}, extends: there is no {name}; {_known(folder)}")
    if base.resolve() in above:
        raise InputError(f"{path}, extends: {name} extends this file in turn; let one of them stand alone.")
    below = _with_base(_read(base), base, base.parent, (*above, path.resolve(), base.resolve()))
    own = {key: value for key, value in content.items() if key != "extends"}
    return merge(_with_sections(below, base), _with_sections(own, path))


def _with_sections(content: Any, path: Path) -> Any:
    """The content with every section that names a file replaced by what is in there, at any depth."""
    if isinstance(content, list):
        return [_with_sections(item, path) for item in content]
    if not isinstance(content, Mapping):
        return content
    return {
        key: _section(value, FOLDERS[key], path) if key in FOLDERS else _with_sections(value, path)
        for key, value in content.items()
    }


def _section(value: Any, folder: str, path: Path) -> Any:
    if isinstance(value, list):
        return [_section(item, folder, path) for item in value]
    if isinstance(value, str):
        value = {"extends": value}
    return _with_base(value, path, path.parent.parent / folder) if isinstance(value, dict) else value


def _known(folder: Path) -> str:
    names = sorted(file.stem for file in folder.glob("*.yaml"))
    return f"{folder} has {', '.join(names)}." if names else f"{folder} holds no YAML files."


def _axes(content: Content, path: Path) -> dict[str, dict[str, Any]]:
    """Axis -> label -> what it changes; an axis or a label that was set to nothing is left out."""
    given = content.get("variants") or {}
    sentence = f"{path}, variants: is a mapping of axes, each a mapping of labels to what they change."
    if not isinstance(given, dict):
        raise InputError(sentence)
    axes = {}
    for axis, labels in given.items():
        if labels is None:
            continue
        if not isinstance(labels, dict):
            raise InputError(sentence)
        kept = {str(label): change for label, change in labels.items() if change is not None}
        if not kept or not all(isinstance(change, dict) for change in kept.values()):
            raise InputError(sentence)
        axes[str(axis)] = kept
    return axes


def _with_variant(content: Content, variant: str, path: Path) -> Content:
    axes = _axes(content, path)
    wanted = [label.strip() for label in variant.split(",") if label.strip()]
    chosen: dict[str, str] = {}
    for label in wanted:
        axis = next((axis for axis, labels in axes.items() if label in labels and axis not in chosen), None)
        if axis is None:
            choices = "; ".join(f"{axis}: {', '.join(labels)}" for axis, labels in axes.items())
            raise InputError(f"{path}: there is no variant {label}; choose one of each of {choices or 'none'}.")
        chosen[axis] = label
    merged = {key: value for key, value in content.items() if key != "variants"}
    for axis, labels in axes.items():
        label = chosen.setdefault(axis, next(iter(labels)))
        merged = merge(merged, _with_sections(labels[label], path))
    if axes and isinstance(merged.get("name"), str):
        merged["name"] = "-".join([merged["name"], *(chosen[axis] for axis in axes)])
    return merged


def _with_overrides(content: Content, overrides: Sequence[tuple[str, str]], path: Path) -> Content:
    given: list[tuple[Any, ...]] = []
    for key, text in overrides:
        try:
            value = yaml.load(text, _Loader)
        except yaml.YAMLError:
            value = text
        parts = key.split(".")
        given += [(*parts, *leaf) for leaf in _leaves(value)]
        for part in reversed(parts):
            value = {part: value}
        change = _with_sections(value, path)
        # What is said on the command line holds for every stage, whatever the file says of some.
        content = merge(_in_stages(content, change), change, other_data=False)
        # An override may lay aside what files say, but not what another override says.
        for leaf in given:
            if not _holds(content, leaf):
                raise InputError(
                    f"{path}: {'.'.join(map(str, leaf))} is not used with {key} {text}; leave one of the two out."
                )
    return content


def _leaves(value: Any) -> list[tuple[Any, ...]]:
    """The keys that lead to each value of a mapping, beside the name of a file; to anything else, no key leads."""
    if not isinstance(value, Mapping) or not value:
        return [()]
    return [(key, *leaf) for key, inner in value.items() if key != "extends" for leaf in _leaves(inner)]


def _holds(content: Any, keys: tuple[Any, ...]) -> bool:
    for key in keys:
        if not isinstance(content, Mapping) or key not in content:
            return False
        content = content[key]
    return True


def _in_stages(content: Content, change: Content) -> Content:
    """The change made in those stages that have a word of their own on the section."""
    stages = content.get("stages")
    section = next(iter(change))
    if not isinstance(stages, dict):
        return content
    return content | {
        "stages": {
            name: merge(stage, change, other_data=False) if isinstance(stage, dict) and section in stage else stage
            for name, stage in stages.items()
        }
    }
