"""Texts of the log in character sets whose signs have several bytes, and under collations of all kinds."""

from __future__ import annotations

import pytest

from tests.connectors.mysql.logs import assert_equal, make_lake
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external

CHARSETS = (
    "utf8mb4", "utf8mb3", "utf16", "utf16le", "utf32", "ucs2", "latin1", "latin2", "cp1251", "koi8r", "gbk",
    "gb2312", "big5", "sjis", "ujis", "euckr", "tis620", "binary",
)  # fmt: skip
TEXTS = {
    "latin1": "é",
    "latin2": "č",
    "cp1251": "ж",
    "koi8r": "ж",
    "gbk": "中",
    "gb2312": "中",
    "big5": "中",
}
TEXTS |= {"sjis": "ソ", "ujis": "ソ", "euckr": "한", "tis620": "ก", "binary": "b"}


def create(server: MariaDb, charset: str) -> str:
    """Create a table with texts of a character set, and return its name."""
    text, name = TEXTS.get(charset, "é中"), f"t_{charset}"
    members = f"('sports','music','{text}','x{text}y')"
    kind = f"CHARACTER SET {charset}"
    if charset == "binary":
        kind = "CHARACTER SET latin1 COLLATE latin1_bin"
    server.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, s SET{members} {kind}, "
        f"e ENUM{members} {kind} DEFAULT '{text}', v varchar(20) {kind}, c char(9) {kind}, b text {kind})"
    )
    values = [
        ("'sports,music'", "'music'"),
        (f"'{text},x{text}y'", f"'x{text}y'"),
        ("''", "''"),
        ("NULL", "NULL"),
    ]
    rows = [f"({n}, {s}, {e}, {e}, {e}, {e})" for n, (s, e) in enumerate(values)]
    server.execute(f"INSERT IGNORE INTO {name} VALUES {', '.join(rows)}")
    return name


def test_members_and_texts_of_the_log_are_those_of_a_snapshot(logged: MariaDb) -> None:
    """datazip-inc/olake, pull request 940: members of a SET came in their own character set."""
    names = [create(logged, charset) for charset in CHARSETS]
    lake = make_lake(logged, *names)
    lake.sync()
    for name in names:
        logged.execute(
            f"UPDATE {name} SET id = id + 10; INSERT INTO {name} (id, s) VALUES (99, 15); "
            f"INSERT IGNORE INTO {name} (id, e) VALUES (98, 7)"
        )
    lake.sync()
    assert all(len(lake.rows(name)) == 6 for name in names)
    assert_equal(lake)


def test_each_collation_of_the_server_has_a_character_set(logged: MariaDb) -> None:
    """Those of UCA 14.0.0 have no number in the list of collations."""
    names = [
        row[0]
        for row in logged.texts(
            "SELECT FULL_COLLATION_NAME FROM "
            "information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE FULL_COLLATION_NAME LIKE 'utf%'"
        )
    ]
    chosen = [name for name in names if "uca1400" in name][::9] + [
        name for name in names if "nopad" in name
    ][::3]
    assert len(chosen) > 9
    columns = ", ".join(
        f"c{n} varchar(9) COLLATE {name}, s{n} set('a','é') COLLATE {name}"
        for n, name in enumerate(chosen)
    )
    logged.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    lake = make_lake(logged, "t")
    lake.sync()
    values = ", ".join("'é', 'a,é'" for _ in chosen)
    logged.execute(f"INSERT INTO t VALUES (1, {values})")
    lake.sync()
    assert_equal(lake)
