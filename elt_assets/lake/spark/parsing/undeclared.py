"""The undeclared fields of one object: they are found by name at any depth, and counted by dotted name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
from msgspec import Raw

MAX_NAMES = 100
"""Maximum number of names that are counted one by one. Records with another name are counted as `OTHERS`."""
OTHERS = "(other fields)"
_OBJECT, _ARRAY = b"{["

DECODING_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

Extra: TypeAlias = "Raw | dict[str, Extra] | list[Extra | None]"
"""An undeclared value; or, for a declared object or array, the undeclared values in it."""


@dataclass(frozen=True)
class Declared:
    """The names that an object may have. `objects`: the same for the values that are objects, by name."""

    names: frozenset[str]
    objects: Mapping[str, Declared]


def undeclared(value: Raw, declared: Declared) -> Extra | None:
    """Return the undeclared fields of a value; None if it has none.

    Raises:
        msgspec.MsgspecError: the value is not JSON.
    """
    first = memoryview(value)[0]
    if first == _OBJECT:
        fields = msgspec.json.decode(value, type=dict[str, Raw])
        return _in_object(fields, declared) or None
    if first == _ARRAY:
        elements = msgspec.json.decode(value, type=list[Raw])
        items = [undeclared(item, declared) for item in elements]
        return items if any(item is not None for item in items) else None
    return None


def _in_object(fields: Mapping[str, Raw], declared: Declared) -> dict[str, Extra]:
    names = declared.names
    found: dict[str, Extra] = {name: fields[name] for name in fields if name not in names}
    for name, within in declared.objects.items():
        if name in fields and (extra := undeclared(fields[name], within)) is not None:
            found[name] = extra
    return found


def add(counts: Counter[str], extra: Extra) -> None:
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
