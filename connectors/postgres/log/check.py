"""Whether the log can be read as the config says, and the SQL that mends what is missing: which tables, and
which of their columns, the publication has for this source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from connectors.postgres.catalog import PARTITIONED, TABLE, Relation, Table
from connectors.postgres.config import PostgresConfig
from connectors.postgres.dialect import quote_name, quote_text
from connectors.postgres.log.slot import FAILOVER_VERSION, find_slot
from connectors.postgres.session import Session
from elt_assets.errors import ConfigError, Problems

COLUMN_LISTS = 150000
"""The first version that publishes parts of tables."""
_PUBLISHED = """
SELECT schemaname::text AS schema, tablename::text AS name, {parts}
FROM pg_catalog.pg_publication_tables WHERE pubname = {name}
"""
_SETTINGS = """
SELECT pg_is_in_recovery() AS is_standby, current_setting('wal_level') AS level,
  current_setting('max_replication_slots')::int AS most,
  (SELECT count(*) FROM pg_catalog.pg_replication_slots)::int AS used,
  current_setting('server_version_num')::int AS version,
  coalesce((SELECT rolreplication OR rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user), false)
    AS may_replicate
"""
_PUBLICATION = """
SELECT pubinsert AND pubupdate AND pubdelete AS is_full, pubtruncate AS has_truncations,
  pubviaroot AS has_roots
FROM pg_catalog.pg_publication WHERE pubname = {name}
"""
_IDENTITIES = """
SELECT c.oid::int8 AS oid, c.relreplident::text AS identity,
  EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) AS has_key
FROM pg_catalog.pg_class c WHERE c.oid IN ({oids})
"""
_FULL, _DEFAULT = "f", "d"
_ALL_KINDS = "publish = 'insert, update, delete, truncate'"


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
            primary_key=table.primary_key if names.issuperset(table.primary_key) else (),
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


def check_log(session: Session, config: PostgresConfig, relations: Sequence[Relation]) -> None:
    """Check that a slot can be read, and that the publication has what is needed.

    Raises:
        ConfigError: with the SQL that mends it.
    """
    problems = Problems()
    settings = session.row(_SETTINGS)
    problems.of(lambda: _check_server(settings, config))
    problems.of(lambda: _check_slot(session, config, settings))
    problems.of(lambda: check_publication(session, config, relations))
    problems.raise_all()


def _check_server(settings: Mapping[str, Any], config: PostgresConfig) -> None:
    if settings["is_standby"]:
        raise ConfigError(
            "the server is a standby: its log cannot be read by this source",
            guidance="set `host` to the primary, or use another `incremental`",
        )
    if settings["level"] != "logical":
        raise ConfigError(
            f"wal_level is {settings['level']}, and the log then has no rows",
            guidance="as a superuser: ALTER SYSTEM SET wal_level = logical; and restart the server "
            "(Amazon RDS: the parameter rds.logical_replication; Google: cloudsql.logical_decoding)",
        )
    if not settings["may_replicate"]:
        role = quote_name(config.user)
        raise ConfigError(
            "the user may not read the log",
            guidance=f"as a superuser: ALTER ROLE {role} REPLICATION; (Amazon RDS: "
            f"GRANT rds_replication TO {role};)",
        )


def _check_slot(session: Session, config: PostgresConfig, settings: Mapping[str, Any]) -> None:
    name = config.slot or ""
    if config.failover_slot and settings["version"] < FAILOVER_VERSION:
        raise ConfigError(
            "standbys of this server synchronize no slots: they do from version 17 on",
            guidance="remove `failover_slot`, or upgrade the server",
        )
    slot = find_slot(session, name)
    if slot is not None and config.failover_slot and not slot.fails_over:
        raise ConfigError(
            f"the slot {name!r} was not made for a failover: no standby synchronizes it",
            guidance=f"in a replication connection (psql 'replication=database …'): ALTER_REPLICATION_SLOT "
            f"{name} (FAILOVER); or remove `failover_slot`",
        )
    if slot is None and settings["used"] >= settings["most"]:
        raise ConfigError(
            f"the slot {name!r} cannot be created: all {settings['most']} slots are in use",
            guidance="drop one that nobody reads (SELECT slot_name, active FROM pg_replication_slots;), or: "
            f"ALTER SYSTEM SET max_replication_slots = {settings['most'] + 10}; and restart the server",
        )


def check_publication(
    session: Session, config: PostgresConfig, relations: Sequence[Relation]
) -> None:
    """Check that the log has all kinds of changes of tables, under the tables' names.

    Raises:
        ConfigError: with the SQL that mends it.
    """
    name = config.publication or ""
    quoted = quote_name(name)
    rows = session.rows(_PUBLICATION.format(name=quote_text(name)))
    tables = ", ".join(relation.quoted for relation in relations[:20]) or "…"
    if not rows:
        raise ConfigError(
            f"there is no publication {name!r}",
            guidance=f"as the tables' owner: CREATE PUBLICATION {quoted} FOR TABLE {tables} "
            "WITH (publish_via_partition_root = true);",
        )
    if not rows[0]["is_full"]:
        raise ConfigError(
            f"the publication {name!r} leaves out some kinds of changes",
            guidance=f"ALTER PUBLICATION {quoted} SET ({_ALL_KINDS});",
        )
    if not rows[0]["has_roots"] and any(part.kind == PARTITIONED for part in relations):
        raise ConfigError(
            f"the publication {name!r} has changes of partitions under the partitions' names",
            guidance=f"ALTER PUBLICATION {quoted} SET (publish_via_partition_root = true);",
        )


def list_log_warnings(
    session: Session,
    config: PostgresConfig,
    relations: Sequence[Relation],
    published: PublishedTables,
) -> Iterator[str]:
    """Yield what the user should know of the log, with the SQL that helps."""
    name = config.publication or ""
    pairs = [(part, published.get((part.schema, part.name))) for part in relations]
    missing = [part.quoted for part, entry in pairs if entry is None]
    if missing:
        yield (
            f"tables and views that are not in the publication {name!r} are only read in full: "
            f"{', '.join(missing[:20])}. For a table: ALTER PUBLICATION {quote_name(name)} ADD TABLE …;"
        )
    narrowed = [part.quoted for part, entry in pairs if entry is not None and entry.condition]
    if narrowed:
        yield (
            f"the publication {name!r} has only some rows of {', '.join(narrowed)} (WHERE): only these are "
            "read"
        )
    hidden = [part.quoted for part, entry in pairs if entry is not None and part.has_row_security]
    if hidden:
        yield (
            f"row security hides rows of {', '.join(hidden)} from this user, and the log has them: no first "
            f"read of these tables is made. ALTER ROLE {quote_name(config.user)} BYPASSRLS;"
        )
    rows = session.rows(_PUBLICATION.format(name=quote_text(name)))
    if rows and not rows[0]["has_truncations"]:
        yield (
            f"the publication {name!r} leaves out TRUNCATE: rows of truncated tables stay in the lake. To "
            f"have them deleted: ALTER PUBLICATION {quote_name(name)} SET ({_ALL_KINDS});"
        )
    yield from _list_identity_warnings(session, [part for part, entry in pairs if entry])
    slot = find_slot(session, config.slot or "")
    shortage = None if slot is None else slot.describe_shortage(config.slot or "")
    if shortage is not None:
        yield shortage


def _list_identity_warnings(session: Session, relations: Sequence[Relation]) -> Iterator[str]:
    """Yield the tables whose updates and deletes the log cannot tell."""
    if not relations:
        return
    oids = ", ".join(str(part.oid) for part in relations)
    rows = {row["oid"]: row for row in session.rows(_IDENTITIES.format(oids=oids))}
    for part in relations:
        row = rows[part.oid]
        if row["identity"] == _FULL or (row["identity"] == _DEFAULT and row["has_key"]):
            continue
        mode = "DEFAULT" if row["has_key"] else "FULL"
        yield (
            f"the log does not have the primary key of rows of {part.quoted} that are updated or deleted: "
            f"ALTER TABLE {part.quoted} REPLICA IDENTITY {mode};"
        )
