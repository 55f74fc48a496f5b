"""Tables, views and their columns, as the server's catalog has them and the user may read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from connectors.cdc.texts import UPDATED_AT
from connectors.postgres.config import PostgresConfig
from connectors.postgres.dialect import Kind, ServerType, kind_of, quote_name, quote_texts
from connectors.postgres.session import Session
from connectors.sdk.items import Warn
from connectors.sql import tables
from elt_assets.protocol.catalog import DELETED_AT, ConfiguredStream
from elt_assets.protocol.messages import STOPS_AT_UNDECLARED, UNDECLARED_COLUMNS

TABLE, PARTITIONED, VIEW, MATERIALIZED, FOREIGN = "r", "p", "v", "m", "f"
"""The values of `relkind` that can be read."""

LSN = "_ab_cdc_lsn"
LOG_FIELDS = (LSN, UPDATED_AT, DELETED_AT)
"""The fields that streams have beside their columns if they are read from the log, as other sources of
Airbyte name them."""

_TABLES = """
SELECT c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
  obj_description(c.oid, 'pg_class') AS description, has_table_privilege(c.oid, 'SELECT') AS is_readable,
  has_any_column_privilege(c.oid, 'SELECT') AS has_readable_column,
  has_schema_privilege(n.oid, 'USAGE') AS is_schema_usable, row_security_active(c.oid) AS has_row_security
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND n.nspname = ANY ({schemas}){names}
ORDER BY 2, 3
"""
_COLUMNS = """
SELECT a.attrelid::int8 AS oid, a.attname::text AS name, b.modifier, t.typtype = 'c' AS is_composite,
  a.attgenerated <> '' AS is_generated,
  CASE WHEN t.typnamespace = 'pg_catalog'::regnamespace THEN t.typname::text ELSE '' END AS type,
  t.typcategory = 'A' AND t.typelem <> 0 AND t.oid NOT IN (22, 30) AS is_array,
  t.typcategory = 'A' AND EXISTS (
    WITH RECURSIVE element AS (
      SELECT t.typelem AS oid
      UNION ALL
      SELECT d.typbasetype FROM element JOIN pg_catalog.pg_type d ON d.oid = element.oid AND d.typtype = 'd')
    SELECT FROM element JOIN pg_catalog.pg_type e ON e.oid = element.oid WHERE e.typtype = 'e') AS has_labels,
  format_type(a.atttypid, a.atttypmod) AS declared, col_description(a.attrelid, a.attnum) AS description
FROM pg_catalog.pg_attribute a
CROSS JOIN LATERAL (
  WITH RECURSIVE base AS (
    SELECT a.atttypid AS oid, a.atttypmod AS modifier
    UNION ALL
    SELECT d.typbasetype, CASE WHEN d.typtypmod = -1 THEN base.modifier ELSE d.typtypmod END
    FROM base JOIN pg_catalog.pg_type d ON d.oid = base.oid WHERE d.typtype = 'd')
  SELECT * FROM base) b
JOIN pg_catalog.pg_type t ON t.oid = b.oid AND t.typtype <> 'd'
WHERE a.attrelid IN ({oids}) AND a.attnum > 0 AND NOT a.attisdropped
  AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')
ORDER BY a.attrelid, a.attnum
"""
_KEYS = """
SELECT i.indrelid::int8 AS oid, a.attname::text AS name
FROM pg_catalog.pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, position)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indisprimary AND k.position <= i.indnkeyatts AND i.indrelid IN ({oids})
ORDER BY 1, k.position
"""


@dataclass(frozen=True)
class Column(tables.Column):
    """A column of a table."""

    kind: Kind = field(kw_only=True)
    declared: str = field(kw_only=True)
    """Its type, as the server names it."""
    is_generated: bool = False
    """Whether the server computes its values."""
    has_labels: bool = False
    """Whether it is an array of an enum."""


@dataclass(frozen=True)
class Relation:
    """A table or view before its columns are read."""

    oid: int
    schema: str
    name: str
    kind: str
    description: str | None
    is_readable: bool
    has_readable_column: bool
    is_schema_usable: bool
    has_row_security: bool

    @property
    def quoted(self) -> str:
        return quote_name(self.schema, self.name)

    def grants(self, user: str) -> list[str]:
        """Return the SQL that lets a user read it."""
        role, sql = quote_name(user), []
        if not self.is_schema_usable:
            sql.append(f"GRANT USAGE ON SCHEMA {quote_name(self.schema)} TO {role};")
        if not (self.is_readable or self.has_readable_column):
            sql.append(f"GRANT SELECT ON {self.quoted} TO {role};")
        return sql


@dataclass(frozen=True)
class Table(tables.Table[Column]):
    """A table or view with the columns that the user may read."""

    relation: Relation = field(kw_only=True)
    condition: str = ""
    """Which of its rows are read, as SQL; empty for all."""
    is_alone: bool = False
    """Whether the rows of tables that inherit from it are not read as its own."""

    @property
    def is_lockable(self) -> bool:
        """Whether the user may lock it, and so read it by slices. LOCK needs the right to all columns, and
        does not work on materialized views and foreign tables."""
        return self.relation.kind in (TABLE, PARTITIONED) and self.relation.is_readable

    def choose_columns(self, configured: ConfiguredStream) -> list[Column]:
        """Return the columns to read: those that the catalog has, or all if it names none; and if it is asked
        for (`UNDECLARED_COLUMNS`), those that the catalog does not know."""
        fields = configured.stream.json_schema.get("properties") or {}
        left_out = configured.extra.get(UNDECLARED_COLUMNS)
        names = None if left_out is None else msgspec.json.decode(left_out, type=frozenset[str])
        return [
            column
            for column in self.columns
            if not fields
            or column.name in fields
            or (names is not None and column.name not in names)
        ]

    def list_undeclared(self, configured: ConfiguredStream) -> frozenset[str]:
        """Return the names of the columns that the catalog does not have, of a stream that stops at them."""
        fields = configured.stream.json_schema.get("properties") or {}
        if not fields or STOPS_AT_UNDECLARED not in configured.extra:
            return frozenset()
        return frozenset(column.name for column in self.choose_columns(configured)) - fields.keys()

    def list_warnings(self, configured: ConfiguredStream) -> Iterator[Warn]:
        """Yield a warning if the catalog has columns that the table has not any more."""
        fields = configured.stream.json_schema.get("properties") or {}
        own_names = {*LOG_FIELDS, *(column.name for column in self.columns)}
        gone = [name for name in fields if name not in own_names]
        if gone:
            yield Warn(f"columns of the catalog are gone, and not read: {', '.join(gone)}")


def list_relations(
    session: Session, config: PostgresConfig, names: Sequence[str] | None = None
) -> list[Relation]:
    """Return the tables and views of the config, also those that the user may not read.

    Args:
        names: the only ones to return, if it is not None.
    """
    narrowed = "" if names is None else f" AND c.relname = ANY ({quote_texts(names)})"
    rows = session.rows(_TABLES.format(schemas=quote_texts(config.schemas), names=narrowed))
    relations = [Relation(**row) for row in rows]
    return [part for part in relations if config.reads(part.schema, part.name)]


def describe_tables(session: Session, relations: Sequence[Relation], version: int) -> list[Table]:
    """Return tables with their columns and keys. A table without a column that can be read is left out."""
    readable = [part for part in relations if not part.grants("")]
    if not readable:
        return []
    oids = ", ".join(str(part.oid) for part in readable)
    columns: dict[int, list[Column]] = {}
    for row in session.rows(_COLUMNS.format(oids=oids)):
        server_type = ServerType(
            row["type"], row["modifier"], row["is_array"], row["is_composite"], version
        )
        kind = kind_of(server_type)
        column = Column(
            row["name"],
            kind.type,
            kind.select.format(quote_name(row["name"])),
            is_ordered=kind.orders is not None,
            comment=row["description"],
            kind=kind,
            declared=row["declared"],
            is_generated=row["is_generated"],
            has_labels=row["has_labels"],
        )
        columns.setdefault(row["oid"], []).append(column)
    keys: dict[int, list[str]] = {}
    for row in session.rows(_KEYS.format(oids=oids)):
        keys.setdefault(row["oid"], []).append(row["name"])
    return [
        _table(part, columns[part.oid], keys.get(part.oid, []))
        for part in readable
        if part.oid in columns
    ]


def _table(relation: Relation, columns: list[Column], key: list[str]) -> Table:
    """Return a table. A key of which the user may not read all columns is none."""
    is_whole = {column.name for column in columns}.issuperset(key)
    names = (relation.schema, relation.name)
    own_key = tuple(key) if is_whole else ()
    return Table(*names, tuple(columns), own_key, relation.description, relation=relation)
