"""SQLite: types are what a column prefers, and each value has a type of its own."""

from __future__ import annotations

import re

from connectors.sql.dialect import Ask, SqlDialect
from connectors.sql.kinds import (
    BOOLEAN,
    BYTES,
    DATE,
    INTEGER,
    JSON,
    NUMBER,
    OTHER,
    TEXT,
    TIMESTAMP,
    Kind,
    decimal,
)
from connectors.sql.tables import Declaration, Table

_SIZES = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_NAMES = {"boolean": BOOLEAN, "bool": BOOLEAN, "date": DATE, "json": JSON}
_TIMES = ("datetime", "timestamp")
_DECIMALS = ("decimal", "numeric")
_AFFINITIES = {
    "int": INTEGER,
    "char": TEXT,
    "clob": TEXT,
    "text": TEXT,
    "blob": BYTES,
    "real": NUMBER,
    "floa": NUMBER,
    "doub": NUMBER,
}
"""What a column prefers, by a part of its type, in the order of SQLite's rules."""


class SqliteDialect(SqlDialect):
    """The dialect of SQLite. A value that is not of the column's kind is null, and the change is recorded."""

    def quote(self, name: str) -> str:
        """Return a name in quotes. SQLite takes a name in double quotes that is none for a text."""
        return "`{}`".format(name.replace("`", "``"))

    def kind(self, declared: Declaration) -> Kind:
        name = declared.type_name
        if name in _NAMES:
            return _NAMES[name]
        if name.startswith(_TIMES):
            return TIMESTAMP
        if name in _DECIMALS:
            return decimal(declared.digits, declared.places)
        return next((kind for part, kind in _AFFINITIES.items() if part in name), OTHER)

    def list_tables(self, ask: Ask) -> list[Table]:
        names = ask(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' "
            "ESCAPE '\\' ORDER BY name"
        )
        return [self._describe(ask, str(name)) for (name,) in names]

    def _describe(self, ask: Ask, name: str) -> Table:
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
