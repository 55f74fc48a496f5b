"""Discovery: the tables and views that the user may read, with their columns, keys and comments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from connectors.mysql.config import MySqlConfig
from connectors.mysql.dialect import Declaration, Kind, kind_of, quote_name, quote_texts
from connectors.mysql.session import Row, Session
from connectors.sql import tables

_COLUMNS = (
    "TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, LOWER(DATA_TYPE), LOWER(COLUMN_TYPE), NUMERIC_PRECISION, "
    "NUMERIC_SCALE, IS_NULLABLE, COLUMN_COMMENT"
)
_INDEXES = "TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, NON_UNIQUE, COLUMN_NAME, SUB_PART, NULLABLE"
_TABLE_TYPES = "('BASE TABLE', 'SYSTEM VERSIONED', 'VIEW')"
PRIMARY = "PRIMARY"
ELSEWHERE = {
    "BLACKHOLE", "CONNECT", "EXAMPLE", "FEDERATED", "FEDERATEDX", "MERGE", "MRG_MYISAM", "MROONGA",
    "OQGRAPH", "S3", "SEQUENCE", "SPHINX", "SPIDER",
}  # fmt: skip
"""Engines of tables whose rows are elsewhere, so that the log need not name the table when they change."""

TableId = tuple[str, str]


@dataclass(frozen=True)
class Column(tables.Column):
    """A column of a table."""

    kind: Kind = field(kw_only=True)
    type_name: str = field(kw_only=True)
    """Its type without sizes, in lower case."""

    @property
    def quoted(self) -> str:
        return quote_name(self.name)

    @property
    def position(self) -> str:
        """The expression whose text `dialect.literal` takes."""
        return self.kind.position.format(self.quoted)

    @property
    def compared(self) -> str:
        """The expression that is compared with such a literal."""
        return self.kind.compared.format(self.quoted)


@dataclass(frozen=True)
class Index:
    """A B-tree of a table. `is_key`: whether it is unique, of whole columns, none of which is nullable."""

    name: str
    columns: tuple[str, ...]
    is_key: bool


@dataclass(frozen=True)
class Table(tables.Table[Column]):
    """A table or a view."""

    indexes: tuple[Index, ...] = ()
    is_logged: bool = False
    """Whether its rows are in the log as it has them: not a view, and no table with versions of its rows, or
    whose rows are elsewhere."""

    @property
    def database(self) -> str:
        return self.schema_name or ""

    @property
    def quoted(self) -> str:
        return quote_name(self.database, self.name)

    @property
    def key_columns(self) -> Sequence[Column]:
        """The columns of the index by which the table is divided: the primary key, or else another one."""
        keys = [
            (index.name != PRIMARY, columns)
            for index in self.indexes
            if index.is_key and (columns := self._list_divisible(index))
        ]
        return min(keys, key=lambda key: key[0], default=(False, []))[1]

    def _list_divisible(self, index: Index) -> list[Column]:
        """Return the columns of an index; none if rows cannot be divided by one of them."""
        columns = [self.column(name) for name in index.columns]
        divisible = [column for column in columns if column is not None and column.kind.literal]
        return divisible if len(divisible) == len(columns) else []


def list_tables(
    session: Session, config: MySqlConfig, selected: Sequence[str] | None = None
) -> list[Table]:
    """Return the tables of a config. A view that is not valid has no columns.

    Args:
        selected: the names of the tables to look at; None for all.

    Raises:
        EltError: the server does not list them.
    """
    where = f"TABLE_SCHEMA IN {quote_texts(config.databases)}"
    if selected is not None:
        where += f" AND TABLE_NAME IN {quote_texts(selected)}" if selected else " AND FALSE"
    head = "TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, TABLE_ROWS, TABLE_COMMENT, ENGINE"
    listed = session.rows(
        f"SELECT {head} FROM information_schema.TABLES WHERE {where} "
        f"AND TABLE_TYPE IN {_TABLE_TYPES} ORDER BY TABLE_SCHEMA, TABLE_NAME"
    )
    rows = [row for row in listed if config.reads(str(row[0]), str(row[1]))]
    columns = _list_columns(session, where)
    indexes = _list_indexes(session, where)
    return [
        Table(
            str(database),
            str(name),
            columns.get((str(database), str(name)), ()),
            next((i.columns for i in indexes[str(database), str(name)] if i.name == PRIMARY), ()),
            "" if kind == "VIEW" else comment,
            _number(count),
            indexes[str(database), str(name)],
            kind == "BASE TABLE" and str(engine).upper() not in ELSEWHERE,
        )
        for database, name, kind, count, comment, engine in rows
    ]


def _list_columns(session: Session, where: str) -> dict[TableId, tuple[Column, ...]]:
    json_columns = _list_json_columns(session, where)
    columns: defaultdict[TableId, list[Column]] = defaultdict(list)
    for row in session.rows(
        f"SELECT {_COLUMNS} FROM information_schema.COLUMNS WHERE {where} ORDER BY ORDINAL_POSITION"
    ):
        database, table, name, data_type, full_type, precision, scale, nullable, comment = row
        declared = Declaration(
            data_type or "",
            full_type or "",
            _number(precision),
            _number(scale),
            is_json=(database, table, f"json_valid({quote_name(name or '')})") in json_columns,
        )
        kind, place = kind_of(declared), (str(database), str(table))
        select = kind.select.format(quote_name(name or ""))
        description = (kind.type, select, nullable == "YES", kind.is_cursor, comment)
        columns[place].append(
            Column(name or "", *description, kind=kind, type_name=declared.data_type)
        )
    return {table: tuple(group) for table, group in columns.items()}


def _list_json_columns(session: Session, where: str) -> set[Row]:
    """Return the checks of tables that MariaDB makes for a column of the type JSON, which is a text there."""
    if not session.is_mariadb:
        return set()
    where = where.replace("TABLE_SCHEMA", "CONSTRAINT_SCHEMA")
    return set(
        session.rows(
            "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS "
            f"WHERE {where} AND CHECK_CLAUSE LIKE 'json_valid(%'"
        )
    )


def _list_indexes(session: Session, where: str) -> defaultdict[TableId, tuple[Index, ...]]:
    parts: defaultdict[TableId, defaultdict[str, list[Row]]]
    parts = defaultdict(lambda: defaultdict(list))
    for row in session.rows(
        f"SELECT {_INDEXES} FROM information_schema.STATISTICS WHERE {where} AND INDEX_TYPE = 'BTREE' "
        "ORDER BY INDEX_NAME, SEQ_IN_INDEX"
    ):
        parts[str(row[0]), str(row[1])][str(row[2])].append(row)
    result: defaultdict[TableId, tuple[Index, ...]] = defaultdict(tuple)
    for table, indexes in parts.items():
        result[table] = tuple(_index(name, rows) for name, rows in indexes.items())
    return result


def _index(name: str, rows: Iterable[Row]) -> Index:
    columns, is_key = [], True
    for _, _, _, non_unique, column, prefix, nullable in rows:
        columns.append(column or "")  # that of an expression has no name
        is_key &= non_unique == "0" and prefix is None and nullable != "YES" and column is not None
    return Index(name, tuple(columns), is_key)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
