"""Errors are told apart whatever the language of the server is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.postgres import Postgres as Source
from connectors.postgres.config import PostgresConfig
from connectors.postgres.session import open_session
from elt_assets.errors import ConfigError, TransientError
from tests.connectors.postgres.support import Json
from tests.support.postgres import Postgres, run_postgres

LANGUAGES = {"C": "does not exist", "de_DE.UTF-8": "existiert nicht"}
"""Locales, and a part of the server's text for a database that is not there."""


@pytest.fixture(scope="module", params=LANGUAGES)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Postgres, str]]:
    """A server that speaks a language, and this language; it asks the user `locked` for a password."""
    name = request.param
    folder = tmp_path_factory.mktemp("locales")
    with pytest.MonkeyPatch.context() as patch:
        if name != "C":
            language, _, code = name.partition(".")
            if not Path("/usr/share/i18n/locales", language).exists():
                pytest.skip("no definition of the locale: the package `locales` of Debian has it")
            made = ["localedef", "-i", language, "-f", code, str(folder / name)]
            subprocess.run(made, check=True, capture_output=True)
            for path in [folder, *folder.parents[:3]]:
                path.chmod(path.stat().st_mode | 0o055)  # the server is another user
            patch.setenv("LOCPATH", str(folder))
        with run_postgres(f"lc_messages={name}") as running:
            hba = running.data / "pg_hba.conf"
            hba.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + hba.read_text())
            running.execute("CREATE ROLE locked LOGIN PASSWORD 'right'; SELECT pg_reload_conf()")
            yield running, name


def connect(port: int, **config: str | int) -> None:
    address: Json = {
        "host": "127.0.0.1",
        "port": port,
        "database": "postgres",
        "user": "elt",
        **config,
    }
    Source().check(PostgresConfig.model_validate(address))


def test_what_the_config_can_mend_is_an_error_of_the_config(server: tuple[Postgres, str]) -> None:
    running, name = server
    with pytest.raises(ConfigError, match=LANGUAGES[name]):
        connect(running.port, database="nowhere")
    for config in ({"user": "locked", "password": "wrong"}, {"user": "nobody", "database": "x"}):
        with pytest.raises(ConfigError):
            connect(running.port, **config)


def test_a_server_that_is_not_there_is_no_error_of_the_config(server: tuple[Postgres, str]) -> None:
    running, _ = server
    with pytest.raises(TransientError, match="cannot be reached"):
        connect(1)
    address = {"host": "127.0.0.1", "port": running.port, "database": "postgres", "user": "elt"}
    config = PostgresConfig.model_validate(address)
    for snapshot in ("00000003-0000001B-1", "no snapshot"):
        with (
            pytest.raises(TransientError, match="the session that keeps the snapshot has ended"),
            open_session(config, "a slice", snapshot=snapshot),
        ):
            pass


def test_a_query_that_takes_too_long_is_told_in_each_language(
    server: tuple[Postgres, str],
) -> None:
    running, _ = server
    address = {"host": "127.0.0.1", "port": running.port, "database": "postgres", "user": "elt"}
    config = PostgresConfig.model_validate({**address, "limits": {"statement_seconds": 1}})
    limit = config.limits.limit_statements("wait")
    slow = "SELECT pg_sleep(0.01)::text AS s FROM generate_series(1, 500)"
    for read in ("rows", "batches"):
        with (
            pytest.raises(ConfigError, match=r"a slice: .*`limits\.statement_seconds` \(1 s\)"),
            open_session(config, "a slice", limit=limit) as session,
        ):
            list(getattr(session, read)(slow))
