"""Convert the plain values of a YAML file to typed ones; each error is one sentence that names the place in the file.

Types are those of Python annotations. A number may be written as text (YAML reads `3e-6` as a string), a whole number
where a fraction belongs, and an id may look like a number; nothing else is converted. Numbers are finite.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from docparade.retrieval.errors import InputError

Kind = TypeVar("Kind")

# A Hub id, a path, or a package's folder; of collections, an ir_datasets id, a path, hf:... or docparade:...
_PLACE = re.compile(r"(package:|hf:|docparade:)?[\w./~{}+-]+").fullmatch
_NAME = re.compile(r"\w[\w.+-]*").fullmatch
LONGEST_NAME = 100
"""of a file or a folder, in bytes; a suffix may follow"""
_UNIONS = (Union, types.UnionType)
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text", dict: "a mapping"}


def build(kind: type[Kind], content: Any, place: str) -> Kind:
    """A dataclass from a mapping, with every key and value checked.

    Args:
        kind: The dataclass. An `InputError` of its `__post_init__` is raised again with the place in front.
        content: What the file holds.
        place: Where: the file, and the key if it is inside one.

    Example:
        ```python
        build(FirstStage, {"method": "bm25", "k1": "1.5"}, "recipe.yaml, data.first_stage")
        ```
    """
    check_mapping(content, place)
    hints = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}  # type: ignore[arg-type]
    check_keys(content, fields, place)
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in content:
            raise InputError(f"{inside(place, name)}: is missing; give {_expected(hints[name])}.")
    values = {name: typed(value, hints[name], inside(place, name)) for name, value in content.items()}
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def typed(value: Any, hint: Any, place: str) -> Any:
    """A value as its annotation says, or an `InputError`.

    Example:
        >>> typed("3e-6", float | None, "recipe.yaml, training.learning_rate")
        3e-06
    """
    try:
        return _convert(value, hint, place)
    except _MisfitError as error:
        raise InputError(f"{place}: is {shown(value)}, and has to be {error.expected or _expected(hint)}.") from None


def check_mapping(content: Any, place: str, instead: str = "") -> None:
    """Refuse a section that is no mapping; `instead` says what else it may be."""
    if not isinstance(content, Mapping):
        expected = f"a mapping, or {instead}" if instead else "a mapping of keys to values"
        raise InputError(f"{place}: is {shown(content)}, and has to be {expected}.")


def check_keys(content: Iterable[Any], known: Iterable[str], place: str) -> None:
    """Refuse an unknown key, and suggest the closest known one.

    Example:
        >>> check_keys({"lerning_rate": 1}, ["learning_rate"], "recipe.yaml, training")
        Traceback (most recent call last):
        docparade.retrieval.errors.InputError: recipe.yaml, training: there is no key lerning_rate; did you mean ...
    """
    names = list(known)
    for key in content:
        if key not in names:
            near = difflib.get_close_matches(str(key), names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(sorted(names))}."
            raise InputError(f"{place}: there is no key {key}; {hint}")


def check_lowest(recipe: object, name: str, lowest: int) -> None:
    """Refuse a value of a section that is too low."""
    value = getattr(recipe, name)
    if value < lowest:
        raise InputError(f"{name} is {value}, and has to be at least {lowest}.")


def check_name(key: str, name: str) -> None:
    """Refuse a name that is not a valid name of a file or folder on every system.

    Example:
        >>> check_name("name", "../elsewhere")
        Traceback (most recent call last):
        docparade.retrieval.errors.InputError: name is '../elsewhere', and has to be letters, digits, dots ...
    """
    if not _NAME(name) or len(name.encode(errors="replace")) > LONGEST_NAME:
        raise InputError(
            f"{key} is {shown(name)}, and has to be letters, digits, dots and dashes, of which the first is a letter "
            f"or a digit, and at most {LONGEST_NAME} of them."
        )


def check_place(key: str, place: str) -> None:
    """Refuse what cannot be the place of a model."""
    if not is_place(place):
        raise InputError(f"{key} is {shown(place)}, and has to be a Hub id, a folder or package:NAME/folder.")


def is_place(name: str) -> bool:
    """Whether a name can be that of a model or a collection, wherever it is.

    Example:
        >>> is_place("org/ranker"), is_place("hf:org/documents"), is_place("two words")
        (True, True, False)
    """
    return bool(_PLACE(name))


def inside(place: str, key: str) -> str:
    """The place of a key within a place.

    Example:
        >>> inside("recipe.yaml", "training"), inside("recipe.yaml, training", "seed")
        ('recipe.yaml, training', 'recipe.yaml, training.seed')
    """
    return f"{place}.{key}" if ", " in place else f"{place}, {key}"


class _MisfitError(Exception):
    """A value that is not of the type, with what was expected if the type alone does not say it."""

    def __init__(self, expected: str = "") -> None:
        super().__init__(expected)
        self.expected = expected


def _convert(value: Any, hint: Any, place: str) -> Any:
    origin = get_origin(hint)
    if hint is Any or (hint is type(None) and value is None):
        return value
    if origin in _UNIONS:
        return _convert_union(value, get_args(hint), place)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), value, place)
    if origin in (list, tuple):
        return _convert_sequence(value, origin, get_args(hint), place)
    if (choices := _choices(hint)) is not None:
        if not any(type(value) is type(one) and value == one for one in choices):
            raise _MisfitError
        return value
    if dict in (origin, hint):
        if not isinstance(value, Mapping):
            raise _MisfitError
        return {str(key): item for key, item in value.items()}
    return _convert_plain(value, hint)


def _convert_plain(value: Any, hint: Any) -> Any:
    is_bool = isinstance(value, bool)
    if hint in (int, float) and isinstance(value, (hint, int, str)) and not is_bool:
        try:
            number = hint(value)
            is_finite = math.isfinite(number)
        except (ValueError, OverflowError):
            raise _MisfitError from None
        if not is_finite:
            raise _MisfitError("a finite number")
        return number
    if hint is str and isinstance(value, int) and not is_bool:
        return str(value)  # an id that looks like a number
    if isinstance(hint, type) and isinstance(value, hint) and is_bool == (hint is bool):
        return value
    raise _MisfitError


def _convert_union(value: Any, members: tuple[Any, ...], place: str) -> Any:
    # Treat `SchedulerType | str` as the enumeration; otherwise any text would be accepted.
    has_choices = any(_choices(member) for member in members)
    kinds = [member for member in members if not (has_choices and member is str)]
    misfit = _MisfitError()
    # A value that is of one of the types already is not converted to another.
    for member in sorted(kinds, key=lambda member: type(value) is not member):
        try:
            return _convert(value, member, place)
        except _MisfitError as error:
            misfit = misfit if misfit.expected else error
    raise misfit


def _convert_sequence(value: Any, origin: type, members: tuple[Any, ...], place: str) -> Any:
    fixed = origin is tuple and Ellipsis not in members
    if not isinstance(value, (list, tuple)) or (fixed and len(value) != len(members)):
        raise _MisfitError
    kinds = members if fixed else members[:1] * len(value)
    pairs = enumerate(zip(value, kinds, strict=True), start=1)
    return origin(typed(item, kind, inside(place, str(number))) for number, (item, kind) in pairs)


def _choices(hint: Any) -> list[Any] | None:
    """The values of a literal or an enumeration."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [one.value for one in hint] if isinstance(hint, type) and issubclass(hint, Enum) else None


def _expected(hint: Any) -> str:
    origin, members = get_origin(hint), get_args(hint)
    if (choices := _choices(hint)) is not None:
        return f"one of {', '.join(map(str, choices))}"
    if origin in _UNIONS:
        with_choices = [member for member in members if _choices(member)]
        return " or ".join(_expected(member) for member in with_choices or members if member is not type(None))
    if origin in (list, tuple):
        fixed = origin is tuple and Ellipsis not in members
        return f"a list of {', '.join(map(_expected, members if fixed else members[:1]))}"
    return _NAMES.get(origin or hint, "a mapping of keys to values" if dataclasses.is_dataclass(hint) else str(hint))


def shown(value: Any) -> str:
    """A value as a sentence shows it: on one line, and not too long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def plain(value: Any) -> Any:
    """Values as YAML and JSON have them: tuples become lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
