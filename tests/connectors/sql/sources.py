"""Sources of databases for tests, which tasks can import."""

from __future__ import annotations

import sqlite3
from types import MappingProxyType
from typing import Any

import duckdb
import psycopg2
import psycopg2.extras
from pydantic import BaseModel

from connectors.sdk.columns.types import FLOAT
from connectors.sql import SqlDialect, SqliteDialect, SqlSource


class FileConfig(BaseModel):
    """A file of a database."""

    path: str
    slice_rows: int = 3
    lookback: int = 0


class FileSource(SqlSource):
    """A database in a file."""

    config_type = FileConfig

    def streams(self, config: FileConfig) -> Any:
        self.slice_rows = config.slice_rows
        return super().streams(config)

    def lookback(self, config: FileConfig) -> int:
        return config.lookback


class Sqlite(FileSource):
    name = "sqlite"
    dialect = SqliteDialect()

    def connect(self, config: FileConfig) -> Any:
        return sqlite3.connect(f"file:{config.path}?mode=ro", uri=True)


class DuckDbDialect(SqlDialect):
    types = MappingProxyType({**SqlDialect.types, "float": FLOAT})


class DuckDb(FileSource):
    name = "duckdb"
    dialect = DuckDbDialect()

    def connect(self, config: FileConfig) -> Any:
        return duckdb.connect(config.path, read_only=True)


class PostgresDialect(SqlDialect):
    paramstyle = "format"


class PostgresConfig(BaseModel):
    """A database of PostgreSQL."""

    host: str
    port: int
    user: str
    database: str
    schema_name: str


class Postgres(SqlSource):
    """Tables of PostgreSQL by the driver psycopg2, with a cursor that does not keep all rows."""

    name = "postgres-by-psycopg2"
    config_type = PostgresConfig
    dialect = PostgresDialect()
    slice_rows = 7

    def connect(self, config: PostgresConfig) -> Any:
        connection = psycopg2.connect(
            host=config.host, port=config.port, user=config.user, dbname=config.database
        )
        connection.set_session(readonly=True)
        for register in (
            psycopg2.extras.register_default_json,
            psycopg2.extras.register_default_jsonb,
        ):
            register(connection, loads=lambda text: text)
        return connection

    def cursor(self, connection: Any) -> Any:
        return connection.cursor(name="rows")

    def is_read(self, config: PostgresConfig, table: Any) -> bool:
        return bool(table.schema_name == config.schema_name)
