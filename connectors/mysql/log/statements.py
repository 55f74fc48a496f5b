"""Statements of the log that change tables without their rows: what each means for the tables that are read.

The log has rows for INSERT, UPDATE and DELETE, and texts for all else. A text tells that rows are gone, or
have other values, but not which: then the table must be read again, or the user is told.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from enum import Enum

from connectors.mysql.log.events import Statement
from connectors.mysql.log.forms import TableName

_COMMENT = re.compile(r"/\*(?![!M]).*?\*/|(?:--\s|#)[^\n]*", re.DOTALL)
_CONDITIONAL = re.compile(r"/\*M?!\d*|\*/")
_QUOTED = r"`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\""
_NAME = re.compile(rf"({_QUOTED}|[\w$]+)(?:\s*\.\s*({_QUOTED}|[\w$]+))?")
_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_ROWS = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE|LOAD|WITH|CALL)\b", re.IGNORECASE)
_ALTER = re.compile(
    rf"\s*ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s+(?:IF\s+EXISTS\s+)?({_NAME.pattern})(.*)",
    re.IGNORECASE | re.DOTALL,
)
_INDEX = re.compile(r"\s*(CREATE|DROP)\s+(\w+\s+)*INDEX\b", re.IGNORECASE)
_LOST_PARTS = re.compile(r"\b(DROP|TRUNCATE|EXCHANGE|CONVERT)\s+PARTITION\b", re.IGNORECASE)
_RENAMES = re.compile(r"\bRENAME\s+(?:TO\s+|AS\s+)?(?!COLUMN|INDEX|KEY)", re.IGNORECASE)
_REMOVED = re.compile(
    r"\s*(TRUNCATE|DROP\s+(?:TEMPORARY\s+)?TABLE|CREATE\s+OR\s+REPLACE\s+TABLE)\b(.*)",
    re.IGNORECASE | re.DOTALL,
)
_RENAME = re.compile(r"\s*RENAME\s+TABLES?\b(.*)", re.IGNORECASE | re.DOTALL)
_DATABASE = re.compile(
    rf"\s*DROP\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+EXISTS\s+)?({_QUOTED}|[\w$]+)", re.IGNORECASE
)
_COPIES = re.compile(r"_(.+)_(?:gho|new)")
"""Copies of a table under another name, which tools for changes of schemas (gh-ost, pt-online-schema-change)
make and then give the table's name. They have its rows."""


class Effect(Enum):
    """What a statement does to a table."""

    EMPTIED = "all its rows were removed"
    ROWS_GONE = "its rows were removed or replaced"
    ROWS_HIDDEN = "its rows were changed by a statement that the log has without these rows"
    ALTERED = "it was altered"


def find_effects(
    statement: Statement, tables: Collection[TableName]
) -> Iterator[tuple[TableName, Effect]]:
    """Yield the tables that a statement changes, and how."""
    text = _CONDITIONAL.sub(" ", _COMMENT.sub(" ", statement.text))
    databases = {database for database, _ in tables}
    if _ROWS.match(text):
        if statement.database in databases:
            named = set(_list_names(text, statement.database))
            yield from ((table, Effect.ROWS_HIDDEN) for table in tables if table in named)
        return
    if match := _DATABASE.match(text):
        yield from ((table, Effect.EMPTIED) for table in tables if table[0] == _plain(match[1]))
    elif match := _REMOVED.match(text):
        if "TEMPORARY" not in match[1].upper():
            names = set(_list_names(match[2].partition("(")[0], statement.database))
            yield from ((table, Effect.EMPTIED) for table in tables if table in names)
    elif match := _RENAME.match(text):
        yield from _find_renamed(match[1], statement.database, tables)
    elif match := _ALTER.match(text):
        yield from _find_altered(match, statement.database, tables)


def _find_altered(
    match: re.Match[str], database: str, tables: Collection[TableName]
) -> Iterator[tuple[TableName, Effect]]:
    (name,) = _list_names(match[1], database)
    rest = _TEXT.sub("''", match[4])
    is_lost = bool(_LOST_PARTS.search(rest))
    if name in tables:
        yield name, Effect.ROWS_GONE if is_lost else Effect.ALTERED
    if _RENAMES.search(rest) or is_lost:
        # It takes the name of another table, or gives it its rows.
        others = set(_list_names(rest, database)) - {name}
        yield from ((table, Effect.ROWS_GONE) for table in tables if table in others)


def _find_renamed(
    text: str, database: str, tables: Collection[TableName]
) -> Iterator[tuple[TableName, Effect]]:
    for pair in text.split(","):
        names = [name for name in _list_names(pair, database) if name[1].upper() != "TO"]
        names = [name for name in names if name[1].upper() not in ("IF", "EXISTS")]
        if len(names) == 2 and names[1] in tables:
            copy = _COPIES.fullmatch(names[0][1])
            is_copy = copy is not None and copy[1] == names[1][1]
            yield names[1], Effect.ALTERED if is_copy else Effect.ROWS_GONE


def _list_names(text: str, database: str) -> Iterator[TableName]:
    """Yield the names in a text that may be those of tables."""
    for first, second in _NAME.findall(_TEXT.sub("''", text)):
        yield (_plain(first), _plain(second)) if second else (database, _plain(first))


def _plain(name: str) -> str:
    if name[:1] in '`"':
        return name[1:-1].replace(name[0] * 2, name[0])
    return name
