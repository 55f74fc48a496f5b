"""The undeclared fields of one object: they are found by name at any depth, and counted by dotted name.

A source may rename a field in case only before its catalog does, and dead letters have the former name. So a
field whose name differs from a declared one in case only is that field (`rename_fields`), unless its object
has another field that could be it, or the schema declares another field that it could be.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
from msgspec import Raw

MAX_NAMES = 100
"""Maximum number of names that are counted one by one. Records with another name are counted as `OTHERS`."""
OTHERS = "(other fields)"
_OBJECT, _ARRAY = b"{["

Extra: TypeAlias = "Raw | dict[str, Extra] | list[Extra | None]"
"""An undeclared value; or, for a declared object or array, the undeclared values in it."""


@dataclass(frozen=True)
class DeclaredNames:
    """The names that an object may have."""

    names: frozenset[str]
    objects: Mapping[str, DeclaredNames]  # the same for the values that are objects, by name
    # The names by their lower case, without those that differ in case only.
    by_lower_case: Mapping[str, str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        counts = Counter(map(str.lower, self.names))
        only = {name.lower(): name for name in self.names if counts[name.lower()] == 1}
        object.__setattr__(self, "by_lower_case", only)


def find_undeclared(value: Raw, declared: DeclaredNames) -> Extra | None:
    """Return the undeclared fields of a value; None if it has none.

    Raises:
        msgspec.MsgspecError: the value is not JSON.
    """
    first = memoryview(value)[0]
    if first == _OBJECT:
        fields = msgspec.json.decode(value, type=dict[str, Raw])
        extra: dict[str, Extra] = {
            name: inner for name, inner in fields.items() if name not in declared.names
        }
        for name, within in declared.objects.items():
            if name in fields and (inner := find_undeclared(fields[name], within)) is not None:
                extra[name] = inner
        return extra or None
    if first == _ARRAY:
        items = msgspec.json.decode(value, type=list[Raw])
        extras = [find_undeclared(item, declared) for item in items]
        return extras if any(item is not None for item in extras) else None
    return None


def has_variant(extra: Extra | None, declared: DeclaredNames) -> bool:
    """Return whether the name of an undeclared field differs from a declared one in case only."""
    if isinstance(extra, dict):
        return any(
            name.lower() in declared.by_lower_case
            if isinstance(value, Raw)
            else has_variant(value, declared.objects[name])
            for name, value in extra.items()
        )
    return isinstance(extra, list) and any(has_variant(item, declared) for item in extra)


def rename_fields(value: Raw, declared: DeclaredNames) -> Raw:
    """Return a value whose fields have their declared names; the value itself if no name changes.

    Raises:
        msgspec.MsgspecError: the value is not JSON.
    """
    first = memoryview(value)[0]
    if first == _OBJECT:
        fields = msgspec.json.decode(value, type=dict[str, Raw])
        variants = Counter(map(str.lower, fields))
        result = {}
        for name, inner in fields.items():
            is_only = variants[name.lower()] == 1
            own = declared.by_lower_case.get(name.lower(), name) if is_only else name
            within = declared.objects.get(own)
            result[own] = inner if within is None else rename_fields(inner, within)
        is_same = all(result.get(name) is inner for name, inner in fields.items())
        return value if is_same else Raw(msgspec.json.encode(result))
    if first == _ARRAY:
        items = msgspec.json.decode(value, type=list[Raw])
        results = [rename_fields(item, declared) for item in items]
        is_same = all(map(operator.is_, items, results))
        return value if is_same else Raw(msgspec.json.encode(results))
    return value


def count_names(counts: Counter[str], extra: Extra) -> None:
    """Count each name of a record once, even if it occurs several times in an array. Memory stays bounded."""
    names: set[str] = set()
    _collect(extra, "", names)
    is_beyond = False
    for name in names:
        if name in counts or len(counts) < MAX_NAMES:
            counts[name] += 1
        else:
            is_beyond = True
    if is_beyond:
        counts[OTHERS] += 1


def _collect(extra: Extra | None, prefix: str, names: set[str]) -> None:
    if isinstance(extra, dict):
        for name, value in extra.items():
            path = f"{prefix}.{name}" if prefix else name
            if isinstance(value, Raw):
                names.add(path)
            else:
                _collect(value, path, names)
    elif isinstance(extra, list):
        for item in extra:
            _collect(item, prefix, names)
