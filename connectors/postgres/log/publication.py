"""The publication: which tables, and which of their columns, the log has for this source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from connectors.postgres.catalog import TABLE, Table
from connectors.postgres.session import Session
from connectors.postgres.sql import quote_text

COLUMN_LISTS = 150000
"""The first version that publishes parts of tables."""
_PUBLISHED = """
SELECT schemaname::text AS schema, tablename::text AS name, {parts}
FROM pg_catalog.pg_publication_tables WHERE pubname = {name}
"""


@dataclass(frozen=True)
class PublishedTable:
    """What is published of a table. `columns`: None for all; `condition`: the rows, empty for all."""

    columns: frozenset[str] | None
    condition: str

    def narrow(self, table: Table) -> Table:
        """Return a table with the columns and rows that the log has: the server does not log generated
        columns, and changes of a table that inherits from this one are changes of that table."""
        columns = [
            column
            for column in table.columns
            if not column.is_generated and (self.columns is None or column.name in self.columns)
        ]
        names = {column.name for column in columns}
        return replace(
            table,
            columns=tuple(columns),
            key=table.key if names.issuperset(table.key) else (),
            condition=self.condition,
            is_alone=table.relation.kind == TABLE,
        )


PublishedTables = Mapping[tuple[str, str], PublishedTable]
"""The tables of a publication by schema and name."""


def list_published(session: Session, publication: str, version: int) -> PublishedTables:
    """Return the tables of a publication by schema and name; empty if there is none of that name."""
    parts = "NULL::text[] AS columns, '' AS condition"
    if version >= COLUMN_LISTS:
        parts = "attnames::text[] AS columns, coalesce(rowfilter, '') AS condition"
    rows = session.rows(_PUBLISHED.format(parts=parts, name=quote_text(publication)))
    return {
        (row["schema"], row["name"]): _describe(row["columns"], row["condition"]) for row in rows
    }


def _describe(columns: Sequence[str] | None, condition: str) -> PublishedTable:
    return PublishedTable(None if columns is None else frozenset(columns), condition)
