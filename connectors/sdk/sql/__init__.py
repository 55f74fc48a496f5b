"""Base classes of sources that read the tables of a database with SQL.

`SqlSource` needs one method, `connect`, which returns a connection of any driver of the DB-API 2.0 or ADBC.
What databases do in ways of their own is in a `SqlDialect`.
"""

from connectors.sdk.sql.dialect import SqlDialect
from connectors.sdk.sql.kinds import (
    BOOLEAN,
    BYTES,
    DATE,
    INTEGER,
    JSON,
    NUMBER,
    OTHER,
    SINGLE,
    TEXT,
    TIMESTAMP,
    TIMESTAMP_TZ,
    Kind,
    decimal,
)
from connectors.sdk.sql.source import SqlSource
from connectors.sdk.sql.sqlite import SqliteDialect
from connectors.sdk.sql.stream import SqlStream
from connectors.sdk.sql.tables import Column, Declaration, Table

__all__ = [
    "BOOLEAN",
    "BYTES",
    "DATE",
    "INTEGER",
    "JSON",
    "NUMBER",
    "OTHER",
    "SINGLE",
    "TEXT",
    "TIMESTAMP",
    "TIMESTAMP_TZ",
    "Column",
    "Declaration",
    "Kind",
    "SqlDialect",
    "SqlSource",
    "SqlStream",
    "SqliteDialect",
    "Table",
    "decimal",
]
