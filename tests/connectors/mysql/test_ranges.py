"""Full refreshes by ranges of a key: each row once, whatever the key is, and from each state the rest."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from connectors.sdk import Checkpoint, Slice
from connectors.sdk.slices import SlicedStream
from tests.connectors.mysql.reads import make_configured_stream, messages, open_stream, states
from tests.connectors.support import errors, records
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external

ROWS = 25
KEYS = {
    "one": ("k int", "1000 - seq * seq"),
    "large": ("k bigint unsigned", "CAST(18446744073709551615 AS DECIMAL(20)) - seq * 1000003"),
    "text": ("k varchar(20)", "CONCAT(CHAR(IF(seq % 2, 65, 97) + seq), '\\'\\\\_%ä😀 ', seq)"),
    "latin": ("k varchar(20) character set latin1", "CONCAT('ÿ', seq % 7, 'é', seq)"),
    "older": (
        "k varchar(20) character set utf8mb3",
        "CONCAT(ELT(seq % 3 + 1, 'é', '日', 'Z'), seq)",
    ),
    "bytes": ("k varbinary(8)", "UNHEX(LPAD(HEX(seq * 1000000007), 10, '0'))"),
    "day": ("k date", "'0000-00-00' + INTERVAL seq DAY"),
    "moment": ("k datetime(6)", "'1999-12-31 23:59:59.5' + INTERVAL seq MICROSECOND"),
    "zoned": ("k timestamp(6)", "'2024-03-31 02:30:00' + INTERVAL seq MINUTE"),
    "exact": ("k decimal(40,20)", "seq / 7 - 3"),
    "rough": ("k double", "seq / 7e0 - 3"),
    "single": ("k float", "seq / 7e0 - 3"),
    "length": ("k time(3)", "SEC_TO_TIME(seq * 100000.125 - 3000000)"),
    "year": ("k year", "1950 + seq"),
    "bits": ("k bit(9)", "511 - seq * 3"),
    "name": (
        "k uuid",
        "CONCAT(LPAD(seq % 7, 8, '0'), '-0000-4000-8000-', LPAD(seq * 7919 % 1000, 12, '0'))",
    ),
    "address": ("k inet6", "CONCAT('2001:db8::', HEX(seq * 77))"),
    "two": ("e enum('z','a','m') not null, k int", "1 + seq % 3, seq DIV 3"),
    "three": (
        "a varchar(5) not null, b date not null, k int",
        "IF(seq % 2, 'A', 'b'), '2024-01-01' + INTERVAL (seq % 3) DAY, seq",
    ),
}


def fill(server: MariaDb, name: str) -> None:
    declared, values = KEYS[name]
    columns = [part.split()[0] for part in declared.replace("','", "").split(", ")]
    dates = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = 'SYSTEM'"
    if name == "day":  # NULL + INTERVAL is null, so the zero date is a row of its own
        values = "IF(seq = 1, '0000-00-00', '0001-01-01' + INTERVAL seq DAY)"
    key = ", ".join(columns)
    server.execute(
        f"{dates}; CREATE TABLE `{name}` (id int NOT NULL, {declared}, PRIMARY KEY ({key}));"
        f"INSERT INTO `{name}` (id, {key}) SELECT seq, {values} "
        f"FROM (SELECT CAST(seq AS SIGNED) AS seq FROM seq_1_to_{ROWS}) AS numbers"
    )


def read_parts(
    stream: SlicedStream, state: object = None
) -> tuple[list[list[int]], list[Checkpoint]]:
    """The ids of each slice, and the states."""
    ids, checkpoints = [], []
    for part in stream.slices(make_configured_stream(stream), state):  # type: ignore[arg-type]
        if isinstance(part, Slice):
            batches = stream.read_slice(part.data)
            ids.append([n for batch in batches for n in batch.column("id").to_pylist()])
        elif isinstance(part, Checkpoint):
            checkpoints.append(part)
    return ids, checkpoints


def test_each_row_is_in_one_range(shop: MariaDb) -> None:
    for name in KEYS:
        fill(shop, name)
        stream = open_stream(shop, name, slice_rows=7)
        slices, checkpoints = read_parts(stream)
        assert sorted(chain(*slices)) == [*range(1, ROWS + 1)], name
        assert [len(ids) for ids in slices] == [7, 7, 7, 4], name
        for done in (1, 3):
            rest, _ = read_parts(stream, checkpoints[done - 1].state)
            assert rest == slices[done:], (name, checkpoints)
        assert read_parts(stream, checkpoints[-1].state) == ([], [])


def test_tables_of_any_form(shop: MariaDb) -> None:
    """A table without a key, with another key, with a part of a text as its key; an empty one; a view."""
    shop.execute("""
        CREATE TABLE plain (id int, `o``dd \\"n{}%s` int);
        INSERT INTO plain SELECT seq, seq FROM seq_1_to_20;
        CREATE TABLE other (id int NOT NULL, UNIQUE (id));
        INSERT INTO other SELECT seq FROM seq_1_to_20;
        CREATE TABLE part (id int, t text, PRIMARY KEY (t(5)));
        INSERT INTO part SELECT seq, CONCAT(seq, '.') FROM seq_1_to_20;
        CREATE TABLE empty (id int PRIMARY KEY);
        CREATE VIEW seen AS SELECT id FROM plain;
        CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3;
        INSERT INTO parted SELECT seq FROM seq_1_to_20;
        CREATE TABLE old (id int PRIMARY KEY) ENGINE MyISAM;
        INSERT INTO old SELECT seq FROM seq_1_to_20;
        CREATE TABLE versioned (id int PRIMARY KEY) WITH SYSTEM VERSIONING;
        INSERT INTO versioned SELECT seq FROM seq_1_to_20;
        UPDATE versioned SET id = id + 100 WHERE id = 20; UPDATE versioned SET id = 20 WHERE id = 120;
    """)
    sizes = {"plain": 1, "other": 3, "part": 1, "empty": 1, "seen": 1, "parted": 3, "old": 3}
    for name, count in {**sizes, "versioned": 3}.items():
        stream = open_stream(shop, name, slice_rows=8)
        slices, _ = read_parts(stream)
        rows = [] if name == "empty" else [*range(1, 21)]
        assert sorted(chain(*slices)) == rows and len(slices) == count, name
        assert stream.is_resumable == (name not in ("plain", "part", "seen")), name


def test_values_of_many_megabytes(shop: MariaDb) -> None:
    """Rows of more than one packet, of exactly one, and small ones after them."""
    full = (1 << 24) - 1 - 14  # without what marks nulls, two numbers, and the length of the text
    sizes = [3, full, full - 1, full + 1, full + 4, 40_000_000, 0, 1]
    shop.execute("CREATE TABLE heavy (id int PRIMARY KEY, t longtext, u int)")
    for n, size in enumerate(sizes):
        shop.execute(f"INSERT INTO heavy VALUES ({n}, REPEAT('x', {size}), {n})")
    stream = open_stream(shop, "heavy")
    (part,) = (
        p for p in stream.slices(make_configured_stream(stream), None) if isinstance(p, Slice)
    )
    rows = [
        (row["id"], len(row["t"]), row["u"])
        for batch in stream.read_slice(part.data)
        for row in batch.to_pylist()
    ]
    assert rows == [(n, size, n) for n, size in enumerate(sizes)]


@pytest.mark.parametrize("change", ["ALTER TABLE {} MODIFY id bigint", "DROP TABLE {}"])
def test_a_table_that_changes_during_the_read(shop: MariaDb, tmp_path: Path, change: str) -> None:
    """A range of a table that is created again would be read without an error."""
    fill(shop, "one")
    (first, *_) = states(messages(shop, tmp_path, "one", slice_rows=7))
    stream = open_stream(shop, "one", slice_rows=7)
    parts = stream.slices(make_configured_stream(stream), None)
    slices = [part for part in parts if isinstance(part, Slice)]
    # The time of creation has seconds.
    shop.execute("DO SLEEP(1.1); " + change.format("one"))
    if change.startswith("DROP"):
        shop.execute("CREATE TABLE one (id int NOT NULL, k int PRIMARY KEY)")
    with pytest.raises(Exception, match="was altered or created again during the read"):
        list(stream.read_slice(slices[3].data))
    output = messages(shop, tmp_path, "one", slice_rows=7, state=first)
    (error,) = errors(output)
    assert error["failure_type"] == "config_error"
    assert "created again since the read that was interrupted" in error["message"]
    assert not records(output)


def test_a_table_without_a_key_is_read_at_once_and_has_no_state(
    shop: MariaDb, tmp_path: Path
) -> None:
    shop.execute("CREATE TABLE plain (n int); INSERT INTO plain VALUES (1), (1), (NULL)")
    output = messages(shop, tmp_path, "plain", slice_rows=1)
    assert [row["n"] for row in records(output)] == [1, 1, None] and states(output) == []
