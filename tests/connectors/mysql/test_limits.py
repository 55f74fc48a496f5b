"""What a server sees of the limits of reads: connections, rows a second, statements, hours."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from connectors.sdk import Slice
from connectors.sdk.slices import SlicedStream
from elt_assets.errors import ConfigError, TransientError
from tests.connectors.mysql.logs import assert_equal, make_lake
from tests.connectors.mysql.reads import make_configured_stream, messages, open_stream
from tests.connectors.mysql.test_comparison import ask
from tests.connectors.row_hashes import list_ranges
from tests.connectors.sql.limits import INSIDE, OUTSIDE, sample, write_hours
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external

READING = (
    "SELECT COUNT(*) FROM information_schema.PROCESSLIST "
    "WHERE USER = 'elt' AND INFO LIKE 'SELECT%`wide`%' AND COMMAND <> 'Sleep'"
)
WIDE = (
    "CREATE TABLE wide (id int PRIMARY KEY, v varchar(9000)); "
    "INSERT INTO wide SELECT seq, REPEAT('x', 9000) FROM seq_1_to_4000"
)
SLOW = "CREATE VIEW slow AS SELECT seq AS id, SLEEP(0.005) AS s FROM seq_1_to_{}"


def list_slices(stream: SlicedStream) -> list[Slice]:
    parts = stream.slices(make_configured_stream(stream), None)
    return [part for part in parts if isinstance(part, Slice)]


def test_tasks_together_have_so_many_connections_and_rows(shop: MariaDb) -> None:
    shop.execute(WIDE)
    limits = {"connections": 2, "rows_per_second": 2000}
    stream = open_stream(shop, "wide", slice_rows=1000, limits=limits)
    slices, counts = list_slices(stream), list[int]()

    def read(part: Slice) -> None:
        counts.append(sum(len(batch) for batch in stream.read_slice(part.data)))

    threads = [threading.Thread(target=read, args=(part,)) for part in slices]
    begin = time.monotonic()
    with sample(lambda: int(shop.texts(READING)[0][0])) as numbers:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(counts) == 4000 and len(slices) >= 4
    assert 0 < max(numbers) <= 2
    assert time.monotonic() - begin >= 4000 / 2000 - 0.1


def test_the_server_ends_a_query_that_takes_too_long(shop: MariaDb, tmp_path: Path) -> None:
    shop.execute(SLOW.format(600))
    stream = open_stream(shop, "slow", limits={"statement_seconds": 1})
    (part,) = list_slices(stream)
    with pytest.raises(ConfigError, match=r"slow .*limits\.statement_seconds` \(1 s\)") as error:
        list(stream.read_slice(part.data))
    assert "raise `limits.statement_seconds`" in (error.value.guidance or "")
    output = messages(shop, tmp_path, "slow", limits={"statement_seconds": 30})
    assert sum(message["type"] == "RECORD" for message in output) == 600


def test_whole_tables_are_read_and_compared_within_the_hours(shop: MariaDb, tmp_path: Path) -> None:
    shop.execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')")
    inside, outside = ({"hours": write_hours(*hours)} for hours in (INSIDE, OUTSIDE))
    (part,) = list_slices(open_stream(shop, "t", limits=inside))
    later = open_stream(shop, "t", limits=outside)
    for read in (lambda: list_slices(later), lambda: list(later.read_slice(part.data))):
        with pytest.raises(TransientError, match=r"only within `limits\.hours`"):
            read()
    with pytest.raises(TransientError, match=r"`limits\.hours`"):
        ask(shop, tmp_path, config={"limits": outside})
    within: dict[str, Any] = {**inside, "connections": 1, "statement_seconds": 30}
    assert list(list_ranges(ask(shop, tmp_path, config={"limits": within})))


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_the_log_is_read_at_any_hour(logged: MariaDb, mode: str) -> None:
    logged.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
    logged.execute("INSERT INTO a VALUES (1)")
    inside, outside = ({"hours": write_hours(*hours)} for hours in (INSIDE, OUTSIDE))
    lake = make_lake(logged, "a", limits=inside)
    lake.mode = {"sync_mode": "incremental", "destination_sync_mode": mode}
    lake.sync()
    logged.execute("INSERT INTO a VALUES (2); INSERT INTO b VALUES (1)")
    lake.names = ["a", "b"]
    lake.config = {**lake.config, "limits": outside}
    with pytest.raises(TransientError, match=r"shop\.b .*`limits\.hours`"):
        lake.sync()
    assert lake.rows("a") == [{"id": 1}, {"id": 2}] and not lake.rows("b")
    lake.config = {**lake.config, "limits": inside}
    lake.sync()
    assert_equal(lake)
