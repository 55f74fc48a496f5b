"""Discovery and `check`: what a user may read, and the SQL that mends what is missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from connectors.postgres import Postgres as Source
from elt_assets.errors import ConfigError, EltError, TransientError
from tests.connectors.postgres.support import FULL, Database
from tests.connectors.support import call, errors
from tests.support.postgres import Postgres

pytestmark = pytest.mark.external

ODD = 'o\'dd {0} %s "é" x'
TABLES = """
CREATE TABLE keys (b int, a text, "C d" numeric(10,3), PRIMARY KEY ("C d", b) INCLUDE (a));
COMMENT ON TABLE keys IS 'Keys of doors'; COMMENT ON COLUMN keys.a IS 'Who has it';
CREATE TABLE parent (id int) PARTITION BY RANGE (id);
CREATE TABLE child PARTITION OF parent FOR VALUES FROM (0) TO (10);
CREATE VIEW seen AS SELECT * FROM keys; CREATE MATERIALIZED VIEW kept AS SELECT * FROM keys;
CREATE TABLE nothing (); CREATE TABLE "o'dd {0} %s ""é"" x" ("a ""b"" {c} %d" int, "_x'" text);
INSERT INTO "o'dd {0} %s ""é"" x" VALUES (1, '{}');
"""


def test_tables_views_keys_and_comments(database: Database) -> None:
    database.execute(TABLES)
    streams = database.streams()
    assert set(streams) == {"keys", "kept", ODD, "parent", "seen"}
    keys = streams["keys"].describe()
    assert keys.json_schema["description"] == "Keys of doors"
    assert keys.json_schema["properties"]["a"] == {
        "type": ["string", "null"],
        "description": "Who has it",
    }
    assert keys.source_defined_primary_key == [["C d"], ["b"]]
    assert keys.is_resumable and not streams["seen"].is_resumable
    assert database.reader(ODD, FULL).read() == [{'a "b" {c} %d': 1, "_x'": "{}"}]


def test_patterns_select_tables(database: Database) -> None:
    database.execute(TABLES)
    schema = database.schema
    assert set(database.streams(include=["k*"])) == {"keys", "kept"}
    assert list(database.streams(include=[f"{schema}.k*", "seen"], exclude=["kept"])) == [
        "keys",
        "seen",
    ]


@pytest.fixture
def user(database: Database) -> Iterator[str]:
    name = f"{database.schema} o'user"
    database.execute(f'CREATE ROLE "{name}" LOGIN')
    yield name
    database.execute(f'DROP OWNED BY "{name}"; DROP ROLE "{name}"')


def check(place: Database, **config: Any) -> None:
    source = Source()
    source.check(source.parse(place.config(**config)))


def test_the_sql_of_check_grants_what_is_missing(database: Database, user: str) -> None:
    database.execute(TABLES)
    with pytest.raises(ConfigError, match="may read no table") as caught:
        check(database, user=user)
    assert caught.value.guidance is not None
    database.execute(caught.value.guidance.partition(": ")[2])
    check(database, user=user)
    assert len(database.streams(user=user)) == 5
    database.execute(f'REVOKE SELECT ON keys FROM "{user}"')
    assert "keys" not in database.streams(user=user)
    with pytest.raises(ConfigError, match="may not read all tables that `include`") as caught:
        check(database, user=user, include=["keys"])
    database.execute(str(caught.value.guidance).partition(": ")[2])
    check(database, user=user, include=["keys"])


def test_columns_without_rights_are_left_out(database: Database, user: str) -> None:
    database.execute(TABLES + "INSERT INTO keys VALUES (1, 'x', 2)")
    database.execute(f'GRANT USAGE ON SCHEMA {database.schema} TO "{user}"')
    database.execute(f'GRANT SELECT (a, b) ON keys TO "{user}"')
    assert database.reader("keys", FULL, user=user).read() == [{"b": 1, "a": "x"}]
    assert database.streams(user=user)["keys"].primary_key == ()


def test_warnings_of_check(database: Database, user: str, tmp_path: Path) -> None:
    database.execute(
        TABLES + "CREATE TABLE own (id int); ALTER TABLE own ENABLE ROW LEVEL SECURITY"
    )
    database.execute(
        f'GRANT USAGE ON SCHEMA {database.schema} TO "{user}"; GRANT SELECT ON own TO "{user}"'
    )
    code, messages = call(Source(), tmp_path, "check", config=database.config(user=user))
    texts = [message["log"]["message"] for message in messages if message["type"] == "LOG"]
    assert code == 0 and messages[-1]["connectionStatus"]["status"] == "SUCCEEDED"
    assert [re.search("is never read|left out|BYPASSRLS", text) is not None for text in texts] == [
        True
    ] * 3


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        ({"database": "no db"}, ConfigError, 'database "no db" does not exist\ncorrect `database`'),
        ({"user": "no'body"}, ConfigError, "does not exist"),
        ({"host": "nowhere.invalid"}, ConfigError, "correct `host`"),
        ({"port": 1}, TransientError, "Connection refused"),
        ({"ssl_mode": "require"}, ConfigError, "set `ssl_mode` to `prefer`"),
        ({"schemas": ["none"]}, ConfigError, "no schema none"),
        ({"include": ["x*"]}, ConfigError, "correct `include`"),
    ],
)
def test_a_config_that_does_not_work(
    database: Database, config: dict[str, Any], kind: type[EltError], message: str
) -> None:
    database.execute("CREATE TABLE t (id int)")
    with pytest.raises(kind, match=re.escape(message)):
        check(database, password="s3cret/:@?#", **config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"ssl_mode": "verify-full"}, "needs ssl_root_certificate"),
        ({"ssl_root_certificate": "/etc/ca.pem"}, "no certificate in the form PEM"),
        ({"ssl_key": "-----BEGIN KEY-----\n-----END KEY-----"}, "needed together"),
        ({"lookback": "1'; DROP"}, "config.lookback"),
        ({"schemas": []}, "config.schemas"),
        ({"shemas": ["a"]}, "config.shemas"),
    ],
)
def test_a_config_that_is_not_valid(config: dict[str, Any], message: str) -> None:
    valid = {"host": "h", "database": "d", "user": "u"}
    with pytest.raises(ConfigError, match=message) as caught:
        Source().parse({**valid, **config})
    assert "-----BEGIN" not in str(caught.value) or "PEM" in str(caught.value)


def make_certificate(folder: Path, name: str) -> tuple[str, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    start = datetime.now(timezone.utc) - timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(start + timedelta(days=9))
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (folder / f"{name}.crt").write_bytes(certificate)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(encoding, form, serialization.NoEncryption())
    path = folder / f"{name}.key"
    path.write_bytes(secret)
    return certificate.decode(), path


def test_tls_with_certificates(database: Database, server: Postgres, tmp_path: Path) -> None:
    data = server.folder / "data"
    own, key = make_certificate(data, "server")
    other, _ = make_certificate(tmp_path, "other")
    key.chmod(0o640)  # as root's; the server wants it to be its own otherwise
    owner = data.stat()
    for path in (key, data / "server.crt"):
        os.chown(path, owner.st_uid, owner.st_gid)
    key.chmod(0o600)
    database.execute("CREATE TABLE t (id int)")
    server.execute("ALTER SYSTEM SET ssl = on")
    server.execute("SELECT pg_reload_conf()")
    try:
        check(database, ssl_mode="require")
        check(database, ssl_mode="verify-full", host="localhost", ssl_root_certificate=own)
        with pytest.raises(ConfigError, match="does not match host name"):
            check(database, ssl_mode="verify-full", ssl_root_certificate=own)
        with pytest.raises(ConfigError, match="certificate verify failed"):
            check(database, ssl_mode="verify-ca", ssl_root_certificate=other)
    finally:
        server.execute("ALTER SYSTEM RESET ssl")
        server.execute("SELECT pg_reload_conf()")


def test_rights_that_are_lost(database: Database, user: str, tmp_path: Path) -> None:
    """Before a read, and between two slices of it."""
    database.execute(
        "CREATE TABLE t (id int, pad text); INSERT INTO t SELECT g, repeat('x', 900) FROM "
        f'generate_series(1, 4000) g; GRANT SELECT ON t TO "{user}";'
        f'GRANT USAGE ON SCHEMA {database.schema} TO "{user}"'
    )
    reader = database.reader("t", FULL, user=user, slice_megabytes=1)
    revoke = f'REVOKE SELECT ON t FROM "{user}"'
    with pytest.raises(ConfigError, match="may not read the table t\nrun as its owner: GRANT"):
        reader.read(lambda number: number == 2 and database.execute(revoke))
    described = {"stream": {"name": "t", "namespace": database.schema, "json_schema": {}}, **FULL}
    files = {"config": database.config(user=user), "catalog": {"streams": [described]}}
    code, messages = call(Source(), tmp_path, "read", **files)
    assert code == 1
    (error,) = errors(messages)
    assert error["failure_type"] == "config_error"
    assert "the user may not read the table t" in error["message"]


def test_columns_that_are_renamed_or_have_another_type(database: Database) -> None:
    database.execute("CREATE TABLE t (id int, a int, b int); INSERT INTO t VALUES (1, 2, 3)")
    reader = database.reader("t", FULL)
    database.execute("ALTER TABLE t RENAME a TO c; ALTER TABLE t ALTER b TYPE text USING 'x' || b")
    later = database.reader("t", FULL)
    later.configured = reader.configured
    assert later.read() == [{"id": 1, "b": "x3"}]
    assert later.warnings == ["columns of the catalog are gone, and not read: a"]
