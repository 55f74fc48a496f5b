"""What `check` and `discover` say, and what a read says that the server ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.mysql.source import MySql
from connectors.sdk import Slice
from elt_assets.errors import ConfigError, TransientError
from tests.connectors.mysql.certificates import Authority
from tests.connectors.mysql.reads import make_configured_stream, messages, open_stream
from tests.connectors.support import call, catalog, errors
from tests.support.mariadb import PASSWORD, MariaDb, run_mariadb

pytestmark = pytest.mark.external


def check(folder: Path, config: dict[str, Any]) -> str:
    """The message of a check that fails; an empty text if it succeeds."""
    code, output = call(MySql(), folder, "check", config=config)
    assert code == 0
    status = output[-1]["connectionStatus"]
    text = "" if status["status"] == "SUCCEEDED" else str(status["message"])
    assert (status["status"] == "SUCCEEDED") == (not text)
    assert PASSWORD not in json.dumps(output)
    return text


def test_each_problem_has_what_mends_it(shop: MariaDb, tmp_path: Path) -> None:
    config = shop.config()
    assert "the database 'shop' has no table that the user may read" in check(tmp_path, config)
    shop.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int, secret int)")
    assert check(tmp_path, config) == ""
    assert "correct `user` and `password`" in check(tmp_path, {**config, "password": "wrong"})
    text = check(tmp_path, {**config, "databases": ["shop", "gone"]})
    assert "there is no database 'gone'" in text
    assert "GRANT SELECT ON `gone`.* TO 'elt'@'127.0.0.1';" in text
    text = check(tmp_path, {**config, "include": ["x*"]})
    assert "no table of the database 'shop' is read" in text and "`include`" in text
    text = check(tmp_path, {**config, "port": 1})
    assert "cannot be reached" in text and "check that the server runs" in text
    assert "correct `host`" in check(tmp_path, {**config, "host": "no-such-host.invalid"})
    assert "set `ssl_mode` to `preferred`" in check(tmp_path, {**config, "ssl_mode": "required"})
    text = check(tmp_path, {**config, "ssl_mode": "verify_ca"})
    assert "ssl_mode verify_ca needs ssl_root_certificate" in text


def test_rights_of_single_tables_and_broken_views(shop: MariaDb, tmp_path: Path) -> None:
    shop.execute("""
        CREATE TABLE a (id int PRIMARY KEY, t text); CREATE TABLE b (id int);
        CREATE VIEW broken AS SELECT id FROM b; CREATE TABLE c (id int); DROP TABLE b;
        CREATE USER IF NOT EXISTS part@'127.0.0.1' IDENTIFIED BY 'x';
        GRANT INSERT ON shop.c TO part@'127.0.0.1'; GRANT SELECT ON shop.a TO part@'127.0.0.1';
    """)
    text = check(tmp_path, shop.config())
    assert "shop.broken" in text and "correct the view" in text and "shop.a" not in text
    text = check(tmp_path, shop.config(user="part", password="x"))
    assert "GRANT SELECT ON `shop`.`c` TO 'part'@'127.0.0.1';" in text and "shop.a" not in text
    assert check(tmp_path, shop.config(user="part", password="x", exclude=["shop.c"])) == ""
    # The tables that can be read are read, in spite of the others.
    assert not errors(messages(shop, tmp_path, "a"))
    view = {"name": "broken", "namespace": "shop", "json_schema": {}}
    files = {"config": shop.config(), "catalog": catalog(view)}
    (error,) = errors(call(MySql(), tmp_path, "read", **files)[1])
    assert (
        error["failure_type"] == "config_error"
        and "the view broken cannot be read" in error["message"]
    )


def test_discovery(shop: MariaDb, tmp_path: Path) -> None:
    shop.execute("""
        CREATE TABLE t (b int, a varchar(5) COMMENT 'the ''name''', j json, PRIMARY KEY (a, b)) COMMENT 'äöü';
        CREATE VIEW v AS SELECT a FROM t; CREATE SEQUENCE s;
        CREATE DATABASE IF NOT EXISTS more; CREATE OR REPLACE TABLE more.t (id int);
        GRANT SELECT ON more.* TO elt@'127.0.0.1';
    """)
    config = shop.config(databases=["shop", "more"])
    _, output = call(MySql(), tmp_path, "discover", config=config)
    (streams,) = [m["catalog"]["streams"] for m in output if m["type"] == "CATALOG"]
    assert [(s["namespace"], s["name"]) for s in streams] == [
        ("more", "t"),
        ("shop", "t"),
        ("shop", "v"),
    ]
    table = streams[1]
    assert table["source_defined_primary_key"] == [["a"], ["b"]] and table["is_resumable"]
    assert table["json_schema"]["description"] == "äöü"
    assert table["json_schema"]["properties"] == {
        "b": {"type": ["integer", "null"]},
        "a": {"type": ["string", "null"], "description": "the 'name'"},
        "j": {},
    }
    assert "description" not in streams[2]["json_schema"]


def test_a_connection_that_is_cut(shop: MariaDb) -> None:
    """At each point: while rows come, between two slices, and before the first one."""
    shop.execute(
        "CREATE TABLE t (id int PRIMARY KEY, x text);"
        "INSERT INTO t SELECT seq, REPEAT('x', 20000) FROM seq_1_to_3000"
    )
    stream = open_stream(shop, "t", slice_rows=2900)
    parts = stream.slices(make_configured_stream(stream), None)
    first = next(part for part in parts if isinstance(part, Slice))
    batches = stream.read_slice(first.data)
    next(batches)
    kill = "SELECT CONCAT('KILL ', ID) FROM information_schema.PROCESSLIST WHERE USER = 'elt'"
    for (command,) in shop.texts(kill):
        shop.execute(command)
    with pytest.raises(TransientError, match=r"shop\.t cannot be read from"):
        list(batches)
    with pytest.raises(TransientError, match=r"shop\.t cannot be read from"):
        list(parts)
    assert sum(len(batch) for batch in stream.read_slice(first.data)) == 2900


def test_a_server_that_prepares_no_statements(shop: MariaDb) -> None:
    shop.execute("CREATE TABLE t (id int PRIMARY KEY); SET GLOBAL max_prepared_stmt_count = 0")
    stream = open_stream(shop, "t")
    parts = list(stream.slices(make_configured_stream(stream), None))
    try:
        with pytest.raises(ConfigError, match="max_prepared_stmt_count"):
            list(stream.read_slice(next(part.data for part in parts if isinstance(part, Slice))))
    finally:
        shop.execute("SET GLOBAL max_prepared_stmt_count = DEFAULT")


def test_a_server_that_is_restarted_and_tls(tmp_path: Path) -> None:
    authority = Authority.make()
    certificate, key = authority.sign("localhost", tmp_path / "server")
    options = [f"ssl-cert={certificate}", f"ssl-key={key}", f"ssl-ca={authority.write(tmp_path)}"]
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == "root" and len(path.parts) > 2:
            path.chmod(0o755)
    with run_mariadb(*options) as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
        server.execute("ALTER USER elt@'127.0.0.1' REQUIRE X509")
        certificate, key = authority.sign("client", tmp_path / "client")
        trusted = {
            "host": "localhost",
            "ssl_root_certificate": authority.pem,
            "ssl_certificate": certificate.read_text(),
            "ssl_key": key.read_text(),
        }
        for mode in ("required", "verify_ca", "verify_identity"):
            assert check(tmp_path, server.config(**trusted, ssl_mode=mode)) == ""
        text = check(tmp_path, server.config())
        assert "correct `user` and `password`" in text
        other = {**trusted, "ssl_root_certificate": Authority.make().pem}
        text = check(tmp_path, server.config(**other, ssl_mode="verify_ca"))
        assert "set `ssl_root_certificate` to the authority" in text
        text = check(
            tmp_path, server.config(**{**trusted, "host": "127.0.0.1"}, ssl_mode="verify_identity")
        )
        assert "`host` to a name of the server's certificate" in text
        broken = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----"
        text = check(
            tmp_path, server.config(**{**trusted, "ssl_certificate": broken}, ssl_mode="required")
        )
        assert "a certificate or a key of the config cannot be read" in text

        stream = open_stream(server, "t", **trusted, ssl_mode="required")
        (part,) = (
            p for p in stream.slices(make_configured_stream(stream), None) if isinstance(p, Slice)
        )
        server.stop()
        with pytest.raises(TransientError, match="cannot be reached"):
            list(stream.read_slice(part.data))
        server.start()
        assert [len(batch) for batch in stream.read_slice(part.data)] == [1]
