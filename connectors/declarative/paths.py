"""Paths into JSON values, as extractors and transformations of manifests use them. Their parts may be globs.

A path is a sequence of names. The number of an element, -1 for the last one, stands for an element of a list.
A part that contains `*`, `?` or `[` matches by the rules of `fnmatch`, and `**` stands for any number of
parts.

The functions do what the library dpath 2 does, which the Airbyte CDK uses, with two differences: a path
without globs is looked up and not searched, and empty names of fields are names like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

Path = Sequence[str]
Condition = Callable[[Any], bool]

ANY = "*"
ANY_NUMBER = "**"
MISSING: Any = object()
"""Returned for a value that is not there; None is a value."""


class _Number(str):
    """The number of an element of a list; `from_end` is counted from the end, -1 for the last one."""

    __slots__ = ("from_end",)
    from_end: str

    def __new__(cls, number: int, length: int) -> _Number:
        instance = super().__new__(cls, number)
        instance.from_end = str(number - length)
        return instance


class AmbiguousPath(ValueError):
    """A path that must match one value matches several."""


class BlockedPath(ValueError):
    """A value cannot be set, because a value on the way to it is neither an object nor a list."""


def is_glob(part: str) -> bool:
    """Return whether a part of a path may match other names than itself."""
    return any(character in part for character in "*?[")


def value_at(body: Any, path: Path, default: Any = None) -> Any:
    """Return the value at a path.

    Raises:
        AmbiguousPath: several values match.
    """
    if any(map(is_glob, path)):
        values = values_at(body, path)
        if len(values) > 1:
            raise AmbiguousPath("/".join(path))
        return values[0] if values else default
    value = value_at_names(body, path)
    return default if value is MISSING else value


def values_at(body: Any, path: Path) -> list[Any]:
    """Return all values that match a path, in the order of the document."""
    if ANY_NUMBER in path:
        return [value for place, value in walk(body) if matches(place, path)]
    return list(_values(body, path))


def child(node: Any, part: str) -> Any:
    """Return the field or element of a value by its name or number; `MISSING` if there is none."""
    if isinstance(node, dict):
        return node.get(part, MISSING)
    if isinstance(node, list):
        index = _index(node, part)
        return MISSING if index is None else node[index]
    return MISSING


def put(record: dict[str, Any], path: Path, value: Any) -> None:
    """Set the value at a path. Globs are names here. Missing objects and lists are made; the elements of a
    new list before the last one are null.

    Raises:
        BlockedPath: there is a text, a number or a boolean on the way.
    """
    node: Any = record
    for part, following in pairwise(path):
        inner = child(node, part)
        if inner is MISSING or inner is None:
            inner = [] if following.isdecimal() else {}
            _set(node, part, inner)
        elif not isinstance(inner, dict | list):
            raise BlockedPath("/".join(path))
        node = inner
    _set(node, path[-1], value)


def delete(record: Any, path: Path, condition: Condition | None = None) -> None:
    """Remove the values that match a path. An element of a list becomes null, unless it is the last one.

    Args:
        record: the value that is changed.
        path: the path. If there is a condition, it is not regarded, as in dpath.
        condition: decides which texts, numbers, booleans and nulls are removed, wherever they are.
    """
    if condition is None and not any(map(is_glob, path)):
        parent = value_at(record, path[:-1], MISSING)
        if parent is not MISSING:
            _remove(parent, path[-1])
        return
    for place, value in list(walk(record)):
        if condition is None:
            is_chosen = matches(place, path)
        else:
            is_chosen = not isinstance(value, dict | list) and condition(value)
        if is_chosen:
            parent = value_at_names(record, place[:-1])
            if parent is not MISSING:
                _remove(parent, place[-1])


def value_at_names(body: Any, path: Path) -> Any:
    """Return the value at a path whose parts are names, even if they look like globs; `MISSING` if there is
    none."""
    for part in path:
        body = child(body, part)
        if body is MISSING:
            return MISSING
    return body


def matches(place: Path, path: Path) -> bool:
    """Return whether the names of a place match a path.

    Raises:
        AmbiguousPath: the path contains `**` twice.
    """
    if ANY_NUMBER in path:
        position = list(path).index(ANY_NUMBER)
        before, after = path[:position], path[position + 1 :]
        if ANY_NUMBER in after:
            raise AmbiguousPath("/".join(path))
        missing = len(place) - len(before) - len(after)
        if missing < 0:
            return False
        path = [*before, *["*"] * missing, *after]
    return len(place) == len(path) and all(map(_is_match, place, path))


def _is_match(name: str, part: str) -> bool:
    if name == part or fnmatchcase(name, part):
        return True
    return isinstance(name, _Number) and name.from_end == part


def _values(node: Any, path: Path) -> Iterator[Any]:
    if not path:
        yield node
        return
    part, rest = path[0], path[1:]
    if not is_glob(part):
        inner = child(node, part)
        if inner is not MISSING:
            yield from _values(inner, rest)
        return
    for name, value in _children(node):
        if _is_match(name, part):
            yield from _values(value, rest)


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        yield from node.items()
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield _Number(number, len(node)), value


def walk(node: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all places below a value: first its own fields, then what is below each of them."""
    for name, value in _children(node):
        yield (*place, name), value
    for name, value in _children(node):
        yield from walk(value, (*place, name))


def _index(node: list[Any], part: str) -> int | None:
    try:
        index = int(part)
    except ValueError:
        return None
    return index if -len(node) <= index < len(node) else None


def _set(node: Any, part: str, value: Any) -> None:
    if isinstance(node, dict):
        node[part] = value
        return
    if not part.isdecimal():
        raise BlockedPath(part)
    index = int(part)
    node.extend([None] * (index + 1 - len(node)))
    node[index] = value


def _remove(parent: Any, part: str) -> None:
    if isinstance(parent, dict):
        parent.pop(part, None)
    elif isinstance(parent, list):
        index = _index(parent, part)
        if index is not None and index % len(parent) == len(parent) - 1:
            del parent[index]
        elif index is not None:
            parent[index] = None
