"""The source, and its streams."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.cdc.stream import LogGroup, list_taken
from connectors.cdc.texts import describe_taken
from connectors.postgres.catalog import (
    LSN,
    PARTITIONED,
    Relation,
    Table,
    describe_tables,
    list_relations,
)
from connectors.postgres.check import check_access, list_warnings, read_version
from connectors.postgres.config import LOG, PostgresConfig
from connectors.postgres.dialect import quote_name
from connectors.postgres.log.check import (
    PublishedTable,
    PublishedTables,
    check_log,
    list_log_warnings,
    list_published,
)
from connectors.postgres.log.slot import drop_slot, hold_slot
from connectors.postgres.session import Session, open_session
from connectors.postgres.stream import LogStream, TableStream
from connectors.sdk import Source, Stream
from connectors.sdk.reports import report_warning
from elt_assets.errors import ConfigError, EltError

_READER = "connectors.postgres.log.read:SlotReader"
"""It is imported when a log is read: numpy and pyarrow are slow to import."""


class Postgres(Source):
    """Tables and views of a PostgreSQL database."""

    name = "postgres"
    config_type = PostgresConfig

    def __init__(self) -> None:
        self._grants: dict[str, list[str]] = {}

    def check(self, config: PostgresConfig) -> None:
        with open_session(config, "check") as session:
            version = read_version(session)
            relations = list_relations(session, config)
            tables = describe_tables(session, relations, version)
            check_access(session, config, relations, tables)
            if config.incremental == LOG:
                check_log(session, config, relations)
            published = _list_published(session, config, version)
            for text in _list_warnings(session, config, relations, published):
                report_warning(text)

    def streams(self, config: PostgresConfig) -> Sequence[Stream]:
        with open_session(config, "the list of tables") as session:
            version = read_version(session)
            relations = list_relations(session, config, self.selected)
            self._grants = {relation.name: relation.grants(config.user) for relation in relations}
            published = _list_published(session, config, version)
            if self.selected is None:
                for text in _list_warnings(session, config, relations, published):
                    report_warning(text)
            tables = describe_tables(session, relations, version)
        return make_streams(config, tables, published)

    def release(self, config: PostgresConfig) -> None:
        if config.incremental == LOG and config.slot:
            with hold_slot(config, config.slot):
                drop_slot(config, config.slot)

    def refusal(self, name: str) -> EltError | None:
        sql = self._grants.get(name)
        if not sql:
            return None
        return ConfigError(
            f"the user may not read the table {name}",
            guidance=f"run as its owner: {' '.join(sql)}",
        )


def _list_published(session: Session, config: PostgresConfig, version: int) -> PublishedTables:
    """Return the tables that are read from the log; empty if none is."""
    if config.incremental != LOG:
        return {}
    return list_published(session, config.publication or "", version)


def _list_warnings(
    session: Session,
    config: PostgresConfig,
    relations: Sequence[Relation],
    published: PublishedTables,
) -> list[str]:
    warnings = list_warnings(session, config, relations)
    if config.incremental == LOG:
        warnings += list_log_warnings(session, config, relations, published)
    return warnings


def make_streams(
    config: PostgresConfig, tables: Sequence[Table], published: PublishedTables
) -> list[Stream]:
    """Return the streams of tables; those that are published are read from the log, as a group."""
    group = LogGroup[LogStream](_READER, config)
    streams: list[Stream] = []
    for table in tables:
        part = published.get((table.relation.schema, table.relation.name))
        taken = list_taken((column.name for column in table.columns), LSN)
        if part is not None and table.is_lockable and not taken:
            streams.append(group.add(LogStream(config, part.narrow(table))))
            continue
        stream = TableStream(config, table)
        if config.incremental == LOG:
            stream.why_full_refresh = _explain(config, table, part, taken)
        streams.append(stream)
    return streams


def _explain(
    config: PostgresConfig, table: Table, part: PublishedTable | None, taken: Sequence[str]
) -> str:
    """Return why a table is not read from the log, as the end of a sentence."""
    if taken:
        return f": {describe_taken(taken)}"
    if part is None:
        change = f"ALTER PUBLICATION {quote_name(config.publication or '')}"
        roots = f" {change} SET (publish_via_partition_root = true);"
        return (
            f": it is not in the publication ({change} ADD TABLE {table.relation.quoted};"
            f"{roots if table.relation.kind == PARTITIONED else ''})"
        )
    role = quote_name(config.user)
    return f": the user may not lock it (GRANT SELECT ON {table.relation.quoted} TO {role};)"
