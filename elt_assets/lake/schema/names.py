"""Table and column names that every engine accepts, made from names that may be any UTF-8 text.

The rule: letters, digits and underscores stay (of any script); every other character becomes an
underscore; an empty name becomes one underscore; what is longer than `LONGEST` bytes is cut and
ended by a hash of the whole. A name that is taken by then, or this project's own, gets a hash of
what the source calls it, so that it is the same in every sync.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from elt_assets.protocol.airbyte.catalog import StreamId

LONGEST = 200
"""Bytes of UTF-8: what is left of a file system's 255 for suffixes such as `_dead_letter`."""
RESERVED_COLUMNS = ("_airbyte_", "_elt_", "_delta_log", "_valid_from", "_valid_to", "_is_current")
RESERVED_TABLES = ("_airbyte_", "_elt_", "_delta_log")

_OTHER = re.compile(r"\W")
_NONE: Mapping[str, str] = MappingProxyType({})


def clean(name: str) -> str:
    """The name by the rule alone."""
    cleaned = _OTHER.sub("_", name.encode("utf-8", "replace").decode()) or "_"
    return cleaned if len(cleaned.encode()) <= LONGEST else _hashed(cleaned, name, 12)


def table_name(name: str) -> str:
    """A stream's table."""
    cleaned = clean(name)
    return _unreserved(cleaned, name) if _starts(cleaned, RESERVED_TABLES) else cleaned


def table_path(namespace: str, stream: StreamId) -> list[str]:
    """The levels of a stream's table under the lake's root; `namespace`: the first."""
    above = [] if stream.namespace is None else [table_name(stream.namespace)]
    return [namespace, *above, table_name(stream.name)]


def column_names(names: Iterable[str], known: Mapping[str, str] = _NONE) -> dict[str, str]:
    """The fields of one object → their columns, no two of which are one, case aside.

    A name that is its own cleaned form goes before one that had to be cleaned; of two such, the
    earlier. The other gets a hash.

    Args:
        known: the names that the table has already: they stay, and no other field gets them.
    """
    fields = list(dict.fromkeys(names))
    taken = {column.casefold() for column in known.values()}
    columns = {name: known[name] for name in fields if name in known}
    for name in sorted((n for n in fields if n not in known), key=lambda n: clean(n) != n):
        columns[name] = _free(name, taken)
        taken.add(columns[name].casefold())
    return {name: columns[name] for name in fields}


def _free(name: str, taken: set[str]) -> str:
    column = clean(name)
    if _starts(column, RESERVED_COLUMNS):
        column = _unreserved(column, name)
    digits = 8
    while column.casefold() in taken:
        column, digits = _hashed(column, name, digits), digits + 8
    return column


def _unreserved(cleaned: str, name: str) -> str:
    """Begins with a letter: what is reserved is so by how it begins."""
    return _hashed(f"x{cleaned}", name, 8)


def _starts(cleaned: str, reserved: tuple[str, ...]) -> bool:
    return cleaned.casefold().startswith(reserved)


def _hashed(cleaned: str, name: str, digits: int) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:digits]
    head = cleaned.encode()[: LONGEST - digits - 1].decode("utf-8", "ignore")
    return f"{head}_{digest}"
