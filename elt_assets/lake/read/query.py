"""Queries over tables by DuckDB, which can read these tables and nothing else; for `elt sql`.

A query comes from a person or a program, and runs with the rights of this process. So:

- DuckDB gets the tables that the query names as rows in memory, never as files. It may open no file and no
  connection, and load no extension; a function of it that would is refused. These settings are locked before
  the query is parsed.
- One statement is run, and only one that reads: all that a statement could change is a database in memory.
- It may use temporary files for what does not fit in memory, in a private folder that is removed.

Test: `tests/cli/test_sql.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.lake.read.scans import RowScan, open_dataset

Name = tuple[str, ...]


class Tables(Protocol):
    """The tables that a query may read."""

    def find(self, name: Name) -> Name:
        """Return the key of the table that has a name, whose case may be another than that of the key.

        Raises:
            ConfigError: there is none, or there are several.
        """

    def open(self, key: Name) -> RowScan:
        """Return the rows of a table."""


_SETTINGS: Mapping[str, str] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",  # else a name could be that of a variable of this program
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}
_READING = "SELECT"
"""The type of the statements that are run; `WITH`, `FROM`, `VALUES`, `DESCRIBE` and `SUMMARIZE` are of it."""
_MAX_LEVELS = 3
_OUT_OF_MEMORY = "Out of Memory Error"
_MEMORY = "memory"
"""DuckDB's name of a database in memory that was given none."""


@dataclass(frozen=True)
class Limits:
    """What a query may use."""

    scratch: Path  # a folder for the temporary files of this query alone
    memory: str  # as DuckDB writes it: `1GB`; what does not fit goes to temporary files
    batch_rows: int  # the rows that are returned at a time


@dataclass(frozen=True)
class QueryRows:
    """The rows that a query returns."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]  # computed as they are read


@contextlib.contextmanager
def run_query(query: str, tables: Tables, limits: Limits) -> Iterator[QueryRows]:
    """Run a query, and yield its rows.

    Args:
        query: one statement that reads, in DuckDB's dialect. A name has up to three levels: `shop.users`.

    Raises:
        ConfigError: DuckDB is not installed, or cannot run the query; or as `Tables`.
    """
    session = _Session(limits)
    try:
        with session.translate_errors():
            session.open_tables(query, tables)
            rows = session.run(query, limits.batch_rows)
        yield rows
    finally:
        session.close()


class _Session:
    """A session of DuckDB for one query."""

    def __init__(self, limits: Limits):
        self._duckdb = _import_duckdb()
        own = {"temp_directory": str(limits.scratch), "memory_limit": limits.memory}
        settings = {**_SETTINGS, **own}
        self._connection = self._duckdb.connect(f":memory:{_MEMORY}", config=settings)
        self._connection.execute("SET TimeZone = 'UTC'")  # as in Spark and in the tables
        self._connection.execute("SET lock_configuration = true")
        self._rows: dict[str, _WatchedScan] = {}
        self._reader: pa.RecordBatchReader | None = None

    def close(self) -> None:
        """End the query, and release the tables."""
        if self._reader is not None:
            self._reader.close()
        self._connection.close()

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise an error of DuckDB as one of this project, and one of a table as it was."""
        try:
            yield
        except (self._duckdb.Error, pa.ArrowException, OSError) as error:
            for rows in self._rows.values():
                if rows.error is not None:
                    raise rows.error from error
            raise _translate(error, self._duckdb) from error

    def open_tables(self, query: str, tables: Tables) -> None:
        """Open the tables that a query names, as views of these names."""
        self._refuse_writing(query)
        names, keys = self._list_names(query), dict[Name, Name]()
        firsts = {name[0].casefold() for name in names if len(name) == _MAX_LEVELS}
        for name in names:
            key, folded = _find(tables, name), _fold(name)
            is_open = folded in keys
            if keys.setdefault(folded, key) != key:  # DuckDB would take them for one
                raise ConfigError(
                    f"{'.'.join(keys[folded])} and {'.'.join(key)} differ in case only, and a query can read "
                    "only one of them",
                    guidance='read the other one with elt_assets.read_table("…/…", form=…)',
                )
            if is_open:
                continue
            view = f"elt_rows_{len(self._rows)}"
            self._rows[view] = _WatchedScan(tables.open(key))
            self._connection.register(view, open_dataset(self._rows[view]))
            self._create_view(name, view, is_database=name[0].casefold() in firsts)

    def _create_view(self, name: Name, view: str, *, is_database: bool) -> None:
        """Create a view of a name. Its first level is a schema or, with three levels, a database."""
        levels = [f'"{level}"' for level in (level.replace('"', '""') for level in name)]
        if is_database:
            self._connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {levels[0]}")
        above = ".".join(levels[:-1])
        if len(levels) > 1 + is_database:
            self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {above}")
        self._connection.execute(f"CREATE VIEW {'.'.join(levels)} AS SELECT * FROM {view}")  # noqa: S608

    def _refuse_writing(self, query: str) -> None:
        statements = self._connection.extract_statements(query)
        if len(statements) != 1:
            raise ConfigError(
                f"there are {len(statements)} statements, and one is run at a time",
                guidance="write one query",
            )
        kind = statements[0].type.name
        if kind == "MULTI":
            raise ConfigError(
                "PIVOT without the values of its columns is several statements",
                guidance="name the values: PIVOT … ON status IN ('new', 'paid') USING …",
            )
        if kind != _READING:
            raise ConfigError(
                f"a statement {kind} is not run: tables are only read",
                guidance="write a query that begins with SELECT, WITH, FROM, VALUES, DESCRIBE or SUMMARIZE",
            )

    def _list_names(self, query: str) -> list[Name]:
        """Return the names of the tables in a query, as DuckDB's own parser finds them.

        A name of one level may be that of a part of the query (`WITH`).
        """
        [[text]] = self._connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
        tree = msgspec.json.decode(text)
        if tree["error"]:
            raise ConfigError(
                f"the query cannot be run: {tree['error_message']}", guidance="correct the query"
            )
        nodes = list(_walk(tree))
        maps = (node["cte_map"]["map"] for node in nodes if "cte_map" in node)
        parts = {_fold([part["key"]]) for entries in maps for part in entries}
        tables = [_name_of(node) for node in nodes if node.get("type") == "BASE_TABLE"]
        return [name for name in dict.fromkeys(tables) if _fold(name) not in parts]

    def run(self, query: str, batch_rows: int) -> QueryRows:
        """Return the rows of a query."""
        relation = self._connection.sql(query)
        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        self._reader = read(batch_rows)
        return QueryRows(self._reader.schema, self._read(self._reader))

    def _read(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        while True:
            with self.translate_errors():
                batch = next(reader, None)
            if batch is None:
                return
            yield batch


class _WatchedScan:
    """A scan that keeps the error of its read: DuckDB raises one of its own, with the text of this one."""

    def __init__(self, scan: RowScan):
        self._scan = scan
        self.error: BaseException | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._scan.schema

    def select(self, columns: Sequence[str]) -> RowScan:
        selected = _WatchedScan(self._scan.select(columns))
        selected._keep = self._keep  # type: ignore[method-assign]
        return selected

    def batches(self, condition: pc.Expression | None = None) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._scan.batches(condition)
        except Exception as error:
            self._keep(error)
            raise

    def to_table(self) -> pa.Table:
        return self._scan.to_table()

    def _keep(self, error: BaseException) -> None:
        self.error = error


def _find(tables: Tables, name: Name) -> Name:
    """Return the key of the table that has a name, if SQL can have this name."""
    if len(name) > _MAX_LEVELS:
        raise ConfigError(
            f"the name {'.'.join(name)} has {len(name)} levels, and SQL has at most {_MAX_LEVELS}",
            guidance='read this table with elt_assets.read_table("…/…", form=…)',
        )
    return tables.find(name)


def _walk(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a JSON document."""
    if isinstance(tree, dict):
        yield tree
    if isinstance(tree, dict | list):
        for inner in tree.values() if isinstance(tree, dict) else tree:
            yield from _walk(inner)


def _name_of(node: Mapping[str, Any]) -> Name:
    """Return the levels of the name of a table, from DuckDB's parser."""
    path = node.get("qualified_name", {}).get("path")  # since DuckDB 2
    return tuple(path or filter(None, (node[f"{k}_name"] for k in ("catalog", "schema", "table"))))


def _fold(name: Sequence[str]) -> Name:
    return tuple(level.casefold() for level in name)


def _translate(error: Exception, duckdb: Any) -> ConfigError | SystemFailure:
    """Return an error of DuckDB as one of this project, without the query that it repeats."""
    # What DuckDB proposes are settings, which a query cannot change.
    text = re.split(r"\n\s*\n(?:LINE |Possible solutions:)", str(error))[0].strip()
    # While rows are fetched, the error has another class.
    if isinstance(error, duckdb.OutOfMemoryException) or text.startswith(_OUT_OF_MEMORY):
        return SystemFailure(
            f"the query needs more memory than there is: {text}",
            guidance="allow more (`elt sql --memory 4GB`), or select fewer columns or rows",
        )
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        return SystemFailure(text, guidance="report it as a bug of DuckDB")
    if isinstance(error, duckdb.PermissionException):
        return ConfigError(
            text, guidance="a query reads the tables of the project, and no other file or address"
        )
    return ConfigError(f"the query cannot be run: {text}", guidance="correct the query")


def _import_duckdb() -> Any:
    try:
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise ConfigError(
            "DuckDB, which runs the queries, is not installed",
            guidance="pip install 'elt-assets[duckdb]'",
        ) from error
