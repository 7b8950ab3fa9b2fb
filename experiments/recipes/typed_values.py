"""Convert the plain values of a YAML file to typed ones; each error is one sentence that names the place in the file.

Types are those of Python annotations. A number may be written as text (YAML reads `3e-6` as a string), a whole number
where a fraction belongs; nothing else is converted. Numbers are finite, and text has no characters that neither a file
name nor a terminal can hold.
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

# Control characters but for tabs and line ends, and halves of UTF-16 pairs, which no file can be written with.
_UNCLEAN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]").search
# A Hub id, a path, or a package's folder; of collections, an ir_datasets id, a path, hf:... or docparade:...
_PLACE = re.compile(r"(package:|hf:|docparade:)?[\w./~{}+-]+").fullmatch
_NAME = re.compile(r"\w[\w.+-]*").fullmatch
LONGEST_NAME = 100
"""of a file or a folder, in bytes; a suffix may follow"""
LONGEST_TEXT = 2000
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
    if not isinstance(content, Mapping):
        raise InputError(f"{place}: is {shown(content)}, and has to be a mapping of keys to values.")
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
            near = difflib.get_close_matches(str(key)[:100], names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(sorted(names))}."
            raise InputError(f"{place}: there is no key {shown_key(key)}; {hint}")


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


def check_path(key: str, path: str) -> None:
    """Refuse what cannot be the path of a file."""
    if not path.strip() or "\n" in path or not _is_short(path):
        raise InputError(f"{key} is {shown(path)}, and has to be the path of a file.")


def is_place(name: str) -> bool:
    """Whether a name can be that of a model or a collection, wherever it is.

    Example:
        >>> is_place("org/ranker"), is_place("hf:org/documents"), is_place("two words")
        (True, True, False)
    """
    return bool(_PLACE(name)) and _is_short(name)


def _is_short(path: str) -> bool:
    """Whether a file system takes the path: its parts have at most 255 bytes."""
    return len(path.encode()) < 4096 and all(len(part.encode()) <= 255 for part in path.split("/"))


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
    if hint is Any:
        return _convert_any(value, place)
    if hint is type(None) and value is None:
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(value, get_args(hint), place)
    if origin is Literal:
        if value not in get_args(hint) or (isinstance(value, bool) and bool not in map(type, get_args(hint))):
            raise _MisfitError
        return value
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise _MisfitError
        return build(typing.cast(type, hint), value, place)
    if origin in (list, tuple):
        return _convert_sequence(value, origin, get_args(hint), place)
    if origin is dict or hint is dict:
        if not isinstance(value, Mapping):
            raise _MisfitError
        kind = (get_args(hint) or (Any, Any))[1]
        return {str(key): typed(item, kind, inside(place, str(key))) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Enum):
        if value not in [member.value for member in hint]:
            raise _MisfitError
        return value
    return _convert_plain(value, hint)


def _convert_any(value: Any, place: str) -> Any:
    """A value of any type; numbers inside it must be finite, and texts clean."""
    if isinstance(value, Mapping):
        return {key: typed(item, Any, inside(place, shown_key(key))) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [typed(item, Any, inside(place, str(i))) for i, item in enumerate(value, start=1)]
    return _convert_plain(value, type(value)) if isinstance(value, (float, str)) else value


def _convert_plain(value: Any, hint: Any) -> Any:
    if hint is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            number = float(value)
        except ValueError:
            raise _MisfitError from None
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise _MisfitError("a finite number")
        return number
    if hint is int and isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            whole = int(value)
        except ValueError:
            raise _MisfitError from None
        if not -(2**63) <= whole < 2**63:
            raise _MisfitError("a whole number of at most 64 bits")
        return whole
    if hint is str and isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # an id that looks like a number
    if isinstance(hint, type) and isinstance(value, hint) and isinstance(value, bool) == (hint is bool):
        if isinstance(value, str) and _UNCLEAN(value):
            raise _MisfitError("text without control characters")
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise _MisfitError(f"text of at most {LONGEST_TEXT} characters")
        return value
    raise _MisfitError


def _convert_union(value: Any, members: tuple[Any, ...], place: str) -> Any:
    # Treat `SchedulerType | str` as the enumeration; otherwise any text would be accepted.
    enums = [member for member in members if isinstance(member, type) and issubclass(member, Enum)]
    choices = [member for member in members if not (enums and member is str)]
    misfit = _MisfitError()
    # A value that is of one of the types already is not converted to another.
    for member in sorted(choices, key=lambda member: not (isinstance(member, type) and type(value) is member)):
        try:
            return _convert(value, member, place)
        except _MisfitError as error:
            misfit = misfit if misfit.expected else error
    raise misfit


def _convert_sequence(value: Any, origin: type, members: tuple[Any, ...], place: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise _MisfitError
    fixed = origin is tuple and Ellipsis not in members
    if fixed and len(value) != len(members):
        raise _MisfitError
    kinds = members if fixed else members[:1] * len(value)
    return origin(
        typed(item, kind, inside(place, str(i + 1))) for i, (item, kind) in enumerate(zip(value, kinds, strict=True))
    )


def _expected(hint: Any) -> str:
    origin, members = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        enums = [member for member in members if isinstance(member, type) and issubclass(member, Enum)]
        return " or ".join(_expected(member) for member in enums or members if member is not type(None))
    if origin is Literal:
        return "one of " + ", ".join(map(str, members))
    if origin in (list, tuple):
        fixed = origin is tuple and Ellipsis not in members
        what = ", ".join(_expected(member) for member in (members if fixed else members[:1]))
        return f"a list of {what}"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "one of " + ", ".join(str(member.value) for member in hint)
    if dataclasses.is_dataclass(hint):
        return "a mapping of keys to values"
    return _NAMES.get(origin or hint, str(hint))


def shown(value: Any) -> str:
    """A value as a sentence shows it: on one line, and not too long."""
    return _shortened(repr(value))


def shown_key(key: Any) -> str:
    """A key as a sentence shows it."""
    return _shortened(key if isinstance(key, str) and key.isprintable() else repr(key))


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def plain(value: Any) -> Any:
    """Values as YAML and JSON have them: tuples become lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
