"""The source, and its streams."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.postgres.catalog import describe_tables, list_relations
from connectors.postgres.check import check_access, list_warnings, read_version
from connectors.postgres.config import PostgresConfig
from connectors.postgres.session import open_session
from connectors.postgres.stream import TableStream
from connectors.sdk import Source, Stream
from connectors.sdk.reports import report_warning
from elt_assets.errors import ConfigError, EltError


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
            for text in list_warnings(session, config, relations):
                report_warning(text)

    def streams(self, config: PostgresConfig) -> Sequence[Stream]:
        with open_session(config, "the list of tables") as session:
            version = read_version(session)
            relations = list_relations(session, config, self.selected)
            self._grants = {relation.name: relation.grants(config.user) for relation in relations}
            if self.selected is None:
                for text in list_warnings(session, config, relations):
                    report_warning(text)
            tables = describe_tables(session, relations, version)
        return [TableStream(config, table) for table in tables]

    def refusal(self, name: str) -> EltError | None:
        sql = self._grants.get(name)
        if not sql:
            return None
        return ConfigError(
            f"the user may not read the table {name}",
            guidance=f"run as its owner: {' '.join(sql)}",
        )
