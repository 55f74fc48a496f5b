"""A server, or someone between, that asks for the password or a file does not get it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from connectors.mysql import session as mysql_session
from connectors.mysql.config import MySqlConfig
from connectors.postgres import session as postgres_session
from connectors.postgres.config import PostgresConfig
from elt_assets.errors import ConfigError, EltError
from tests.connectors.mysql.certificates import Authority
from tests.programs import hostile_databases as hostile

PASSWORD = "hunter2-correct-horse"


def open_mysql(port: int, **config: Any) -> None:
    fields = {"host": "127.0.0.1", "port": port, "databases": ["shop"], "user": "elt", **config}
    parsed = MySqlConfig.model_validate({"password": PASSWORD, **fields})
    with mysql_session.open_session(parsed, "test"):
        pass


@pytest.mark.parametrize("ssl_mode", ["preferred", "disabled"])
@pytest.mark.parametrize(
    ("script", "message"),
    [
        (hostile.switch("mysql_clear_password"), "cleartext_password"),
        (hostile.switch("dialog", b"\x05Password: "), "cleartext_password"),
        (hostile.switch("mysql_old_password"), "ALTER USER"),
        (
            hostile.switch("mysql_clear_password", first="caching_sha2_password"),
            "cleartext_password",
        ),
        (hostile.ask_with_key("caching_sha2_password", at_once=True), "ssl_mode"),
        (hostile.ask_with_key("caching_sha2_password", at_once=False), "ssl_mode"),
        (hostile.ask_with_key("sha256_password", at_once=True), "ssl_mode"),
        (hostile.ask_with_key("sha256_password", at_once=False), "ssl_mode"),
    ],
)
def test_mysql_gets_no_password_that_can_be_read(
    script: hostile.Script, message: str, ssl_mode: str
) -> None:
    with hostile.mysql(script) as server:
        with pytest.raises(ConfigError, match="asks for the password") as refused:
            open_mysql(server.port, ssl_mode=ssl_mode)
        assert message in str(refused.value)
        assert PASSWORD.encode() not in server.received
        assert (
            max(map(len, bytes(server.received).split(b"\x00"))) < 256
        )  # nothing is encrypted by its key


def test_a_password_in_clear_text_needs_tls() -> None:
    with pytest.raises(ValueError, match="cleartext_password needs ssl_mode"):
        open_mysql(1, cleartext_password=True)
    with hostile.mysql(hostile.switch("mysql_clear_password")) as server:
        with pytest.raises(EltError, match="SSL is required"):
            open_mysql(server.port, cleartext_password=True, ssl_mode="required")
        assert PASSWORD.encode() not in server.received


def test_mysql_gets_no_file() -> None:
    with hostile.mysql(hostile.ask_for_file) as server:
        with pytest.raises(ConfigError, match="asks for a file of this machine"):
            open_mysql(server.port)
        assert b"SET" in server.received
        assert Path("/etc/hostname").read_bytes().strip() not in server.received


def test_what_the_errors_name_lets_a_client_in(tmp_path: Path) -> None:
    """With TLS that is verified a server gets the password that it asks for: PAM and LDAP need it."""
    authority = Authority.make()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.sign("localhost", tmp_path / "server"))
    verified = {"host": "localhost", "ssl_root_certificate": authority.pem}
    for script, more in (
        (hostile.switch("mysql_clear_password"), {"cleartext_password": True}),
        (hostile.ask_with_key("sha256_password", at_once=True), {}),
    ):
        with hostile.mysql(script, tls) as server:
            with pytest.raises(EltError):  # the server ends after the login
                open_mysql(server.port, ssl_mode="verify_identity", **verified, **more)
            assert PASSWORD.encode() in server.received
    with hostile.mysql(hostile.switch("mysql_clear_password"), tls) as server:
        with pytest.raises(ConfigError, match="cleartext_password"):
            open_mysql(server.port, ssl_mode="verify_identity", **verified)
        assert PASSWORD.encode() not in server.received
    with hostile.postgres(tls) as server:
        with pytest.raises(EltError):
            open_postgres(server.port, ssl_mode="verify-full", **verified)
        assert PASSWORD.encode() in server.received


def open_postgres(port: int, **config: Any) -> None:
    fields = {"host": "127.0.0.1", "port": port, "database": "shop", "user": "elt", **config}
    parsed = PostgresConfig.model_validate({"password": PASSWORD, **fields})
    with postgres_session.open_session(parsed, "test"):
        pass


@pytest.mark.parametrize("ssl_mode", ["disable", "allow", "prefer"])
def test_postgres_gets_no_password_in_clear_text(ssl_mode: str) -> None:
    with hostile.postgres() as server:
        with pytest.raises(ConfigError, match="set `ssl_mode` to `verify-full`"):
            open_postgres(server.port, ssl_mode=ssl_mode)
        assert b"elt" in server.received
        assert PASSWORD.encode() not in server.received
