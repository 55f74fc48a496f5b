"""Whether a database can be read as the config says, and the SQL that mends what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.postgres.catalog import Relation, Table
from connectors.postgres.config import CURSOR, PostgresConfig
from connectors.postgres.dialect import quote_name, quote_texts
from connectors.postgres.session import Session
from elt_assets.errors import ConfigError, Problems

OLDEST = 130000
_SERVER = """
SELECT current_setting('server_version_num')::int AS version, current_setting('server_version') AS shown,
  pg_encoding_to_char(encoding)::text AS encoding, pg_is_in_recovery() AS is_standby,
  CASE WHEN pg_is_in_recovery() THEN current_setting('hot_standby_feedback') ELSE '' END AS feedback
FROM pg_catalog.pg_database WHERE datname = current_database()
"""


def read_version(session: Session) -> int:
    """Return the version of the server as a number.

    Raises:
        ConfigError: it is too old.
    """
    server = session.row(_SERVER)
    version = int(server["version"])
    if version < OLDEST:
        raise ConfigError(
            f"the server has version {server['shown']}",
            guidance="version 13 or later is needed: upgrade the server",
        )
    if server["encoding"] == "SQL_ASCII":
        raise ConfigError(
            "the database has the encoding SQL_ASCII: its texts may have any bytes",
            guidance="create it again with an encoding: pg_dump, CREATE DATABASE … ENCODING 'UTF8' "
            "TEMPLATE template0, and pg_restore",
        )
    return version


def list_warnings(
    session: Session, config: PostgresConfig, relations: Sequence[Relation]
) -> list[str]:
    """Return what the user should know, and which SQL helps."""
    server = session.row(_SERVER)
    warnings = []
    if server["is_standby"] and server["feedback"] != "on":
        warnings.append(
            "the server is a standby without hot_standby_feedback: the primary may remove rows that are "
            "being read, which ends the read. On the standby: ALTER SYSTEM SET hot_standby_feedback = on; "
            "SELECT pg_reload_conf();"
        )
    if config.incremental == CURSOR and config.lookback is None:
        warnings.append(
            "with `incremental: cursor`, a row that is committed after a read with a smaller value of the "
            "cursor than the last one is never read. Set `lookback` to more than your longest transaction, "
            "or `incremental: xmin`"
        )
    hidden = [sql for relation in relations for sql in relation.grants(config.user)]
    if hidden:
        statements = " ".join(dict.fromkeys(hidden[:20]))
        warnings.append(
            f"{len(hidden)} tables are left out, since the user may not read them: {statements}"
        )
    secured = [relation.quoted for relation in relations if relation.has_row_security]
    if secured:
        warnings.append(
            f"row security hides rows of {', '.join(secured[:20])} from this user. To read all: "
            f"ALTER ROLE {quote_name(config.user)} BYPASSRLS;"
        )
    return warnings


def check_access(
    session: Session,
    config: PostgresConfig,
    relations: Sequence[Relation],
    tables: Sequence[Table],
) -> None:
    """Check that there is something to read, and nothing that the config names is missing.

    Raises:
        ConfigError: with the SQL that mends it.
    """
    problems = Problems()
    problems.of(lambda: _check_schemas(session, config))
    if tables or (config.include and relations):
        problems.of(lambda: _check_patterns(config, relations))
    else:
        problems.of(lambda: _refuse_nothing(config, relations))
    problems.raise_all()


def _check_schemas(session: Session, config: PostgresConfig) -> None:
    names = quote_texts(config.schemas)
    query = (
        f"SELECT nspname::text AS name FROM pg_catalog.pg_namespace WHERE nspname = ANY ({names})"
    )
    missing = set(config.schemas) - {row["name"] for row in session.rows(query)}
    if missing:
        raise ConfigError(
            f"the database has no schema {', '.join(sorted(missing))}", guidance="correct `schemas`"
        )


def _check_patterns(config: PostgresConfig, relations: Sequence[Relation]) -> None:
    """Check that what `include` names is there and can be read."""
    if not config.include:
        return
    sql = [sql for relation in relations for sql in relation.grants(config.user)]
    if sql:
        raise ConfigError(
            "the user may not read all tables that `include` selects",
            guidance=f"run as their owner: {' '.join(dict.fromkeys(sql))}",
        )


def _refuse_nothing(config: PostgresConfig, relations: Sequence[Relation]) -> None:
    schemas = ", ".join(config.schemas)
    if not relations:
        raise ConfigError(
            f"no table of the schemas {schemas} is selected",
            guidance="correct `include` and `exclude`",
        )
    role = quote_name(config.user)
    sql = [
        f"GRANT USAGE ON SCHEMA {quote_name(name)} TO {role}; "
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {quote_name(name)} TO {role};"
        for name in config.schemas
    ]
    raise ConfigError(
        f"the user may read no table of the schemas {schemas}",
        guidance=f"run as their owner: {' '.join(sql)}",
    )
