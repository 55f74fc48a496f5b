"""SQLite: types are what a column prefers, and each value has a type of its own."""

from __future__ import annotations

import re

from connectors.sdk.columns.types import (
    BINARY,
    BOOL,
    DATE32,
    DOUBLE,
    INT64,
    JSON,
    STRING,
    TIMESTAMP,
    ColumnType,
    decimal128,
)
from connectors.sql.dialect import Ask, SqlDialect
from connectors.sql.tables import Column, Declaration, Table

_SIZES = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_NAMES = {"boolean": BOOL, "bool": BOOL, "date": DATE32, "json": JSON}
_TIMES = ("datetime", "timestamp")
_DECIMALS = ("decimal", "numeric")
_AFFINITIES = {
    "int": INT64,
    "char": STRING,
    "clob": STRING,
    "text": STRING,
    "blob": BINARY,
    "real": DOUBLE,
    "floa": DOUBLE,
    "doub": DOUBLE,
}
"""What a column prefers, by a part of its type, in the order of SQLite's rules."""


class SqliteDialect(SqlDialect):
    """The dialect of SQLite. A value that is not of the column's type is null, and the change is recorded."""

    def quote(self, name: str) -> str:
        """Return a name in quotes. SQLite takes a name in double quotes that is none for a text."""
        return "`{}`".format(name.replace("`", "``"))

    def find_type(self, declared: Declaration) -> ColumnType | None:
        name = declared.type_name
        if name in _NAMES:
            return _NAMES[name]
        if name.startswith(_TIMES):
            return TIMESTAMP
        if name in _DECIMALS:
            return decimal128(declared.digits, declared.places)
        return next(
            (column_type for part, column_type in _AFFINITIES.items() if part in name), None
        )

    def list_tables(self, ask: Ask) -> list[Table[Column]]:
        names = ask(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' "
            "ESCAPE '\\' ORDER BY name"
        )
        return [self._describe(ask, str(name)) for (name,) in names]

    def _describe(self, ask: Ask, name: str) -> Table[Column]:
        rows = ask(f"PRAGMA table_xinfo({self.quote(name)})")
        key = [str(row[1]) for row in sorted(rows, key=lambda row: int(row[5])) if row[5]]
        columns = []
        for _, column, full_type, not_null, _, place, hidden in rows:
            if hidden == 1:  # of a virtual table
                continue
            sizes = _SIZES.search(full_type)
            digits, places = sizes.groups() if sizes else (None, None)
            type_name = full_type.lower().partition("(")[0].strip()
            # Only the number of a row is never null by itself.
            is_number = place and len(key) == 1 and type_name == "integer"
            declared = Declaration(
                str(column),
                type_name,
                None if digits is None else int(digits),
                None if places is None else int(places),
                not (not_null or is_number),
            )
            columns.append(self.make_column(declared))
        return Table(None, name, columns, key)
