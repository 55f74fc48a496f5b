"""A third-party Singer tap from PyPI, unmodified, over a real PostgreSQL."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from tests.support.postgres import Postgres, postgres
from tests.support.project import Project
from tests.support.runs import materialize

__all__ = ["postgres"]

pytestmark = pytest.mark.external

TAP = "meltanolabs-tap-postgres==0.10.0"
TABLES = """
CREATE TABLE people (
    id bigint PRIMARY KEY, name text, height double precision, price numeric(12, 4), size smallint,
    active boolean, born date, seen timestamptz, noted timestamp, wakes time, doc jsonb, tags text[],
    secret text, updated_at timestamptz NOT NULL);
INSERT INTO people VALUES
    (1, 'Ada \u2028 ü', 1.5, 12.3456, 3, true, '1815-12-10', '2026-01-01 03:04:05.123456+02',
     '2026-01-01 03:04:05', '10:11:12', '{"a": [1, {"b": null}]}', '{x,y}', 'S3CRET', '2026-01-01Z'),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-02Z');
CREATE TABLE colours (code text PRIMARY KEY, title text);
INSERT INTO colours VALUES ('r', 'red'), ('g', 'green');
"""
CHANGES = """
UPDATE people SET name = 'Grace', updated_at = '2026-01-03Z' WHERE id = 2;
INSERT INTO people (id, name, updated_at) VALUES (3, 'Edsger', '2026-01-04Z');
DELETE FROM colours WHERE code = 'r';
INSERT INTO colours VALUES ('b', 'blue');
"""


@pytest.mark.spec("singer.10")
def test_tables_and_their_changes_are_synced(
    postgres: Postgres, own: Project, packages: Path, spark: object
) -> None:
    (own.home / "packages").symlink_to(packages)
    postgres.execute(TABLES)
    server = {"host": "127.0.0.1", "port": postgres.port, "database": "postgres", "user": "elt"}
    people = {
        "name": "public-people",
        "sync_mode": "incremental",
        "cursor_field": ["updated_at"],
        "destination_sync_mode": "append_dedup",
        "fields": {"exclude": ["secret"]},
    }
    own.connection(
        "crm",
        source={
            "tap": TAP,
            "config": {**server, "password": "hunter22", "filter_schemas": ["public"]},
        },
        streams=[people, {"name": "public-colours", "destination_sync_mode": "overwrite"}],
    )
    own.discover("crm")
    assert materialize(own, "group:crm").success

    first, second = sorted(own.rows("crm", "public_people"), key=lambda row: int(row["id"]))
    assert "secret" not in first
    assert first == {
        "id": 1,
        "name": "Ada \u2028 ü",
        "height": 1.5,
        "price": 12.3456,
        "size": 3,
        "active": True,
        "born": dt.date(1815, 12, 10),
        "seen": dt.datetime(2026, 1, 1, 1, 4, 5, 123456, dt.timezone.utc),
        "noted": dt.datetime(2026, 1, 1, 3, 4, 5, tzinfo=dt.timezone.utc),
        "wakes": "10:11:12",
        "doc": '{"a":[1,{"b":null}]}',
        "tags": ["x", "y"],
        "updated_at": dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    }
    assert set(second.values()) == {2, None, dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)}
    assert [row["code"] for row in own.rows("crm", "public_colours")] == ["g", "r"]

    postgres.execute(CHANGES)
    assert materialize(own, "group:crm").success

    names = {row["id"]: row["name"] for row in own.rows("crm", "public_people")}
    assert names == {1: "Ada \u2028 ü", 2: "Grace", 3: "Edsger"}
    assert [row["code"] for row in own.rows("crm", "public_colours")] == ["b", "g"]
    metadata = own.metadata("crm", "public-people")
    # The bookmark is inclusive: the row that it came from is sent again, unless it changed.
    assert metadata["elt/records_read"] == metadata["elt/records_committed"] == 2
    assert metadata["elt/records_rejected"] == metadata["elt/records_changed"] == 0
    assert metadata["elt/state"] == own.committed_state("crm", "public_people")
    bookmark = metadata["elt/state"]["stream"]["stream_state"]
    assert bookmark["replication_key"] == "updated_at"
    assert bookmark["replication_key_value"].startswith("2026-01-04T00:00:00")
    assert not any(b"S3CRET" in p.read_bytes() for p in own.home.rglob("*.parquet"))
