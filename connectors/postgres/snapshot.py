"""A snapshot of the database, and the parts of a table that are read in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from connectors.postgres.catalog import FOREIGN, Table
from connectors.postgres.dialect import quote_name
from connectors.postgres.session import Session

RANGES_VERSION = 140000
"""The first version that reads a range of ctids without a read of the whole table."""
_SNAPSHOT = """
SELECT pg_export_snapshot() AS name, pg_snapshot_xmin(pg_current_snapshot())::text::int8 AS least,
  pg_snapshot_xmax(pg_current_snapshot())::text::int8 AS end, pg_current_snapshot()::text AS transactions,
  extract(epoch FROM now())::float8 AS time,
  CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_current_wal_insert_lsn() - '0/0'::pg_lsn END::int8 AS lsn,
  CASE WHEN pg_is_in_recovery() THEN 0
    ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END AS timeline,
  current_setting('server_version_num')::int AS version, current_setting('block_size')::int AS block,
  has_function_privilege('pg_control_system()', 'EXECUTE')
    AND has_function_privilege('pg_control_checkpoint()', 'EXECUTE') AS has_identity
"""
_IDENTITY = """
SELECT system_identifier::text AS identity, (SELECT timeline_id FROM pg_control_checkpoint())::int AS timeline
FROM pg_control_system()
"""
_PARTS = """
WITH RECURSIVE tree AS (
  SELECT {oid}::oid AS oid
  UNION
  SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid{narrowed})
SELECT c.oid::int8 AS oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
  coalesce(pg_relation_filenode(c.oid), 0)::int8 AS filenode,
  coalesce(pg_relation_size(c.oid) / {block}, 0)::int8 AS pages,
  c.reltuples::float8 / greatest(c.relpages, 1) AS density, greatest(c.reltuples, 0)::int8 AS rows,
  has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE')
    AND NOT row_security_active(c.oid) AS is_open
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind <> 'p' ORDER BY c.oid
"""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that its session exports under `name`.

    `least`: all transactions before it have ended. `end`: the first one that had not begun. Both have 64
    bits. `identity`: the server's system identifier, empty if the user may not read it. `timeline`: that of
    its log, which a restored backup and a promoted standby change; 0 if it is unknown. `replayed`: up to
    where a standby had replayed the log before; it shows commits before that, and perhaps later ones, and
    names no transactions that are open. 0 at a primary.
    """

    name: str
    least: int
    end: int
    transactions: str
    lsn: int
    time: float
    version: int
    block: int
    identity: str
    timeline: int = 0
    replayed: int = 0


@dataclass(frozen=True)
class TablePart:
    """What is read by itself: a table without its children, a partition, a view, or a whole table.

    Attributes:
        source: the quoted name, after ONLY if children are not to be read with it.
        oid, filenode: they tell a table that was made again, and one that was rewritten or truncated.
        pages: the number of its pages; None if it cannot be read by ranges of pages.
        rows: about how many it has.
    """

    source: str
    oid: int
    filenode: int
    pages: int | None
    rows: int

    @property
    def has_transactions(self) -> bool:
        """Whether its rows have an `xmin`."""
        return self.pages is not None


def export_snapshot(session: Session) -> Snapshot:
    """Return the snapshot of a session. It can be used until the session ends."""
    row = session.row(_SNAPSHOT)
    identity = ""
    if row.pop("has_identity"):
        control = session.row(_IDENTITY)
        identity, row["timeline"] = control["identity"], row["timeline"] or control["timeline"]
    if session.replayed:
        row["lsn"] = session.replayed - 1
    return Snapshot(**row, identity=identity, replayed=session.replayed)


def list_parts(session: Session, table: Table, block: int) -> tuple[list[TablePart], str]:
    """Return the parts of a table, and why it has only one, if that is worth a warning.

    Partitions and children are read one by one: the size of their parent is 0, and their ctids are the same.
    If the user may read only the parent, or policies decide which rows are shown, it is read as a whole.
    """
    relation = table.relation
    only = "ONLY " if table.is_alone else ""
    whole = TablePart(only + relation.quoted, relation.oid, 0, None, 0)
    if not table.is_lockable:
        return [whole], ""
    narrowed = " AND false" if table.is_alone else ""
    rows = session.rows(_PARTS.format(oid=relation.oid, block=block, narrowed=narrowed))
    closed = [row for row in rows if not row["is_open"]]
    if closed or relation.has_row_security:
        return [whole], _explain(closed, relation.has_row_security)
    return [_make_part(row) for row in rows], ""


def _make_part(row: dict[str, Any]) -> TablePart:
    is_foreign = row["kind"] == FOREIGN
    source = f"ONLY {quote_name(row['schema'], row['name'])}"
    pages = None if is_foreign else row["pages"]
    rows = row["rows"] if is_foreign else int(max(row["density"], 0) * row["pages"])
    return TablePart(source, row["oid"], row["filenode"], pages, rows)


def _explain(closed: list[dict[str, Any]], has_row_security: bool) -> str:
    if has_row_security:
        return "it is read without slices: row security decides which rows this user sees"
    name = quote_name(closed[0]["schema"], closed[0]["name"])
    return (
        f"it is read without slices: GRANT SELECT ON {name} and on its other partitions to the user"
    )
