"""Table and column names that every engine accepts, derived from names that may be any UTF-8 text.

`write.paths` names tables with it, and `from_json_schema` columns; `pipeline` (`stream`, `former_tables`),
`evolution` and `orchestration.metadata` look up which names tables have or may have.

The rule: letters and digits of any script, and underscores, stay. Every other character becomes an
underscore. An empty name becomes one underscore. A name longer than `LONGEST` bytes is cut and ends
with a hash of the whole name. A name that another field has already ends with a hash of the original name, so
that it is the same in every sync; a reserved name also begins with `x`.

Spark does not distinguish the case of column names. So a field that a source renames in case only keeps its
column, under the name as first seen (`columns_kept`).
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from elt_assets.protocol.catalog import StreamId

LONGEST = 200
"""Maximum bytes of a name in UTF-8. File systems allow 255; the rest is for suffixes like `_dead_letter`."""
RESERVED_COLUMNS = ("_airbyte_", "_elt_", "_delta_log", "_valid_from", "_valid_to", "_is_current")
"""Prefixes of the names of this project's own columns."""
RESERVED_TABLES = ("_airbyte_", "_elt_", "_delta_log")

_REPLACED = re.compile(r"\W")
_NONE: Mapping[str, str] = MappingProxyType({})


def clean(name: str) -> str:
    """Return the name by the rule, whether or not it is taken or reserved."""
    cleaned = _REPLACED.sub("_", name.encode("utf-8", "replace").decode()) or "_"
    return cleaned if len(cleaned.encode()) <= LONGEST else _append_hash(cleaned, name, 12)


def table_name(name: str) -> str:
    """Return the name of a stream's table, or of a folder for a stream's namespace."""
    cleaned = clean(name)
    return _avoid_reserved(cleaned, name) if _has_prefix(cleaned, RESERVED_TABLES) else cleaned


def table_path(root: Sequence[str], stream: StreamId, name: str | None = None) -> list[str]:
    """Return the path levels of a stream's table under the lake's root.

    They are those of `root` (the namespace of the connection or the destination), the stream's own namespace
    if it has one, and the name of the table.

    Args:
        name: the name of the table before it is cleaned; default: the name of the stream.
    """
    above = [] if stream.namespace is None else [table_name(stream.namespace)]
    return [*root, *above, table_name(stream.name if name is None else name)]


def hash_table_names(stream: StreamId, name: str | None = None) -> Iterator[str]:
    """Yield the names that a stream's table has if another stream has the one of `table_name`: with a hash of
    the stream's namespace and name, of more and more digits. `name`: as for `table_path`."""
    cleaned = table_name(stream.name if name is None else name)
    for digits in range(8, 65, 8):
        yield _append_hash(cleaned, stream.quoted, digits)


def column_names(names: Iterable[str], stored: Mapping[str, str] = _NONE) -> dict[str, str]:
    """Return the column name of each field of one object. The names differ also when case is ignored.

    If two fields would get the same name, the field whose name needs no cleaning keeps it; otherwise the
    earlier field keeps it. The other field's column name ends with a hash.

    Args:
        stored: column names that the table has already, by field. They stay, and no other field gets them.
    """
    fields = list(dict.fromkeys(names))
    taken = {column.casefold() for column in stored.values()}
    columns = {name: stored[name] for name in fields if name in stored}
    for name in sorted((n for n in fields if n not in stored), key=lambda n: clean(n) != n):
        columns[name] = _free(name, taken)
        taken.add(columns[name].casefold())
    return {name: columns[name] for name in fields}


def is_column_name(name: str) -> bool:
    """Return whether a name can be that of a column, without a change."""
    return _free(name, set()) == name


def columns_kept(fields: Collection[str], stored: Collection[str]) -> dict[str, str]:
    """Return the stored field whose column a field keeps, for each field of one object that has a column.

    It is the stored field of the same name; else the first one whose name differs in case only, unless it is
    declared itself, or another field keeps its column. So fields whose names differ in case only have
    separate columns if a source has them at the same time, and one column if it has one after the other.

    Args:
        fields: the names that the source declares now.
        stored: the names that the fields of the table's columns had when the columns were added.
    """
    matches = {name: name for name in fields if name in stored}
    free: dict[str, deque[str]] = defaultdict(deque)
    for old in stored:
        if old not in matches:
            free[old.lower()].append(old)
    for name in fields:
        if name not in matches and free[name.lower()]:
            matches[name] = free[name.lower()].popleft()
    return matches


def _free(name: str, taken: set[str]) -> str:
    column = clean(name)
    if _has_prefix(column, RESERVED_COLUMNS):
        column = _avoid_reserved(column, name)
    digits = 8
    while column.casefold() in taken:
        column, digits = _append_hash(column, name, digits), digits + 8
    return column


def _avoid_reserved(cleaned: str, name: str) -> str:
    """Return a name that begins with a letter: reserved names are recognised by their prefix."""
    return _append_hash(f"x{cleaned}", name, 8)


def _has_prefix(cleaned: str, prefixes: tuple[str, ...]) -> bool:
    return cleaned.casefold().startswith(prefixes)


def _append_hash(cleaned: str, name: str, digits: int) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:digits]
    prefix = cleaned.encode()[: LONGEST - digits - 1].decode("utf-8", "ignore")
    return f"{prefix}_{digest}"
