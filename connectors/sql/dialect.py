"""What a database does in a way of its own: names, parameters, types, and where its tables are listed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from connectors.sdk.columns import types as t
from connectors.sql.tables import Column, Declaration, Table

Ask = Callable[[str], "Sequence[Sequence[Any]]"]
"""Runs a query, and returns its rows."""
_TYPES: Mapping[str, t.ColumnType | None] = {
    **dict.fromkeys(
        ["tinyint", "smallint", "mediumint", "int", "integer", "bigint", "int2", "int4", "int8"],
        t.INT64,
    ),
    **dict.fromkeys(["utinyint", "usmallint", "uinteger"], t.INT64),
    **dict.fromkeys(["ubigint", "hugeint", "uhugeint"], t.decimal128(38)),
    **dict.fromkeys(["double", "double precision", "float", "float8"], t.DOUBLE),
    **dict.fromkeys(["real", "float4"], t.FLOAT),
    **dict.fromkeys(["boolean", "bool"], t.BOOL),
    **dict.fromkeys(["binary", "varbinary", "bytea", "blob", "bytes", "image", "raw"], t.BINARY),
    **dict.fromkeys(
        ["char", "character", "varchar", "character varying", "nchar", "nvarchar", "text", "ntext", "clob"],
        t.STRING,
    ),
    "string": t.STRING,
    "date": t.DATE32,
    **dict.fromkeys(
        [
            "timestamp", "timestamp without time zone", "timestamp_ntz", "timestampntz", "datetime",
            "datetime2", "smalldatetime", "timestamp_s", "timestamp_ms", "timestamp_ns",
        ],
        t.TIMESTAMP,
    ),
    **dict.fromkeys(
        [
            "timestamp with time zone", "timestamptz", "timestamp_tz", "timestamp_ltz",
            "timestamp with local time zone", "datetimeoffset",
        ],
        t.TIMESTAMP_UTC,
    ),
    **dict.fromkeys(["json", "jsonb", "variant", "object", "array", "super"], t.JSON),
}  # fmt: skip
_PERMANENT = re.compile(
    "no such|does not exist|not found|unknown database|password|authentication|access denied|"
    "permission denied|not a database|unable to open",
    re.IGNORECASE,
)
_DECIMALS = ("decimal", "numeric", "number")
_UNORDERED = (t.DOUBLE, t.FLOAT, t.BOOL, t.BINARY, t.JSON)
"""Types whose order is not that of their values in the lake, or which have values that are not there."""
_TABLES = "SELECT table_schema, table_name FROM information_schema.tables"
_COLUMNS = """
SELECT table_schema, table_name, column_name, data_type, numeric_precision, numeric_scale, is_nullable
FROM information_schema.columns ORDER BY ordinal_position
"""
_KEYS = """
SELECT k.table_schema, k.table_name, k.column_name
FROM information_schema.table_constraints t JOIN information_schema.key_column_usage k
ON k.constraint_name = t.constraint_name AND k.table_schema = t.table_schema AND k.table_name = t.table_name
WHERE t.constraint_type = 'PRIMARY KEY' ORDER BY k.ordinal_position
"""
_MARKS = {
    "qmark": "?",
    "format": "%s",
    "numeric": ":{0}",
    "named": ":p{0}",
    "pyformat": "%(p{0})s",
    "dollar": "${0}",
}
_PERCENT = ("format", "pyformat")
_SIZES = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_SQLITE_NAMES = {"boolean": t.BOOL, "bool": t.BOOL, "date": t.DATE32, "json": t.JSON}
_SQLITE_TIMES = ("datetime", "timestamp")
_SQLITE_DECIMALS = ("decimal", "numeric")
_AFFINITIES = {
    "int": t.INT64,
    "char": t.STRING,
    "clob": t.STRING,
    "text": t.STRING,
    "blob": t.BINARY,
    "real": t.DOUBLE,
    "floa": t.DOUBLE,
    "doub": t.DOUBLE,
}
"""What a column prefers, by a part of its type, in the order of SQLite's rules."""


class SqlDialect:
    """A dialect of SQL: by default that of the standard, with the tables in `information_schema`.

    Attributes:
        paramstyle: how the driver marks parameters, as in the DB-API: `qmark`, `format`, `numeric`, `named`,
            `pyformat`; or `dollar` ($1).
        types: types of columns by the name that the database has for one, in lower case and without sizes.
            Values of other types, and of None, are texts as Python writes them.
        system_schemas: schemas that are not listed.
    """

    paramstyle = "qmark"
    types: Mapping[str, t.ColumnType | None] = MappingProxyType(_TYPES)
    system_schemas: Sequence[str] = ("information_schema", "pg_catalog", "pg_toast", "sys")

    def quote(self, name: str) -> str:
        """Return a name in quotes."""
        return self.escape('"{}"'.format(name.replace('"', '""')))

    def escape(self, sql: str) -> str:
        """Return a part of a query whose percent signs are no marks of parameters."""
        return sql.replace("%", "%%") if self.paramstyle in _PERCENT else sql

    def quote_table(self, table: Table[Any]) -> str:
        """Return the name of a table in quotes."""
        return ".".join(map(self.quote, filter(None, (table.schema_name, table.name))))

    def mark(self, number: int) -> str:
        """Return the mark of a parameter; the first one has the number 1."""
        return _MARKS[self.paramstyle].format(number)

    def lock_reader(self, number: int) -> str:
        """Return the query that takes a lock of the server until the connection ends, if nobody has it; its
        only value tells whether it did. Empty if the database has no such locks.

        Args:
            number: tells the locks of a user from each other.
        """
        del number
        return ""

    def limit_statements(self, milliseconds: int) -> str:
        """Return the statement after which the server ends each query of the connection that takes longer;
        empty if it has none."""
        del milliseconds
        return ""

    def bind(self, query: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return a query and its parameters, as the driver takes them."""
        if not values:  # then drivers do not look for marks
            return (query.replace("%%", "%") if self.paramstyle in _PERCENT else query,)
        if self.paramstyle in ("named", "pyformat"):
            return (query, {f"p{number}": value for number, value in enumerate(values, 1)})
        return (query, list(values))

    def is_permanent(self, error: Exception) -> bool:
        """Return whether an error of the driver does not go away by itself, also if its class says so."""
        return _PERMANENT.search(str(error)) is not None

    def skip(self, query: str, rows: int) -> str:
        """Return a query that gives one row of another one, which is in order, after some rows."""
        return f"{query} LIMIT 1 OFFSET {rows}"

    def order_key(self, name: str, column_type: t.ColumnType) -> str | None:
        """Return the expression of a column of a key by whose order tables are compared: that of its values,
        or of the bytes of its texts in UTF-8. Its parameters are values of the column's type.

        None if there is none. Then the order that the database has of the column must be this one, and all
        rows are read to find those of a range.
        """
        return None if column_type == t.STRING else self.quote(name)

    def find_type(self, declared: Declaration) -> t.ColumnType | None:
        """Return the type of a column; None if the values are texts as Python writes them, without an
        order."""
        if declared.type_name in _DECIMALS:
            return t.decimal128(declared.digits, declared.places)
        return self.types.get(declared.type_name)

    def select(self, declared: Declaration, column_type: t.ColumnType) -> str:
        """Return the expression that is selected for a column: its name, or a cast if the driver does not
        give its values exactly."""
        del column_type
        return self.quote(declared.name)

    def make_column(self, declared: Declaration) -> Column:
        """Return a column."""
        own_type = self.find_type(declared)
        column_type = own_type or t.STRING
        is_ordered = own_type is not None and own_type not in _UNORDERED
        select = self.select(declared, column_type)
        return Column(declared.name, column_type, select, declared.is_nullable, is_ordered)

    def list_tables(self, ask: Ask) -> list[Table[Column]]:
        """Return the tables and views that the user may read."""
        columns: defaultdict[tuple[str, str], list[Column]] = defaultdict(list)
        for schema, table, name, type_name, digits, places, nullable in ask(_COLUMNS):
            declared = Declaration(
                name,
                str(type_name).lower().partition("(")[0].strip(),
                None if digits is None else int(digits),
                None if places is None else int(places),
                str(nullable).upper() != "NO",
            )
            columns[schema, table].append(self.make_column(declared))
        keys: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for schema, table, name in ask(_KEYS):
            keys[schema, table].append(name)
        return [
            Table(schema, name, columns[schema, name], keys[schema, name])
            for schema, name in sorted(map(tuple, ask(_TABLES)))
            if schema.lower() not in self.system_schemas and columns[schema, name]
        ]


class SqliteDialect(SqlDialect):
    """The dialect of SQLite: types are what a column prefers, and each value has a type of its own. A value
    that is not of the column's type is null, and the change is recorded."""

    def quote(self, name: str) -> str:
        """Return a name in quotes. SQLite takes a name in double quotes that is none for a text."""
        return "`{}`".format(name.replace("`", "``"))

    def order_key(self, name: str, column_type: t.ColumnType) -> str | None:
        if column_type == t.STRING:
            return f"{self.quote(name)} COLLATE BINARY"
        # Dates, times and decimals are texts or numbers, as they were inserted.
        is_exact = column_type in (t.INT64, t.BOOL, t.BINARY)
        return self.quote(name) if is_exact else None

    def find_type(self, declared: Declaration) -> t.ColumnType | None:
        name = declared.type_name
        if name in _SQLITE_NAMES:
            return _SQLITE_NAMES[name]
        if name.startswith(_SQLITE_TIMES):
            return t.TIMESTAMP
        if name in _SQLITE_DECIMALS:
            return t.decimal128(declared.digits, declared.places)
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
