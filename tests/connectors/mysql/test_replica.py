"""Tables that are read at a replica, and whose log is read at the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import ConfigError, TransientError
from tests.connectors.mysql.logs import assert_equal, begin_pair, make_lake, run_pair
from tests.connectors.mysql.reads import messages
from tests.connectors.mysql.test_comparison import ask
from tests.connectors.row_hashes import list_ranges
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[MariaDb, MariaDb]]:
    with run_pair() as pair:
        yield pair


@pytest.fixture
def servers(pair: tuple[MariaDb, MariaDb]) -> tuple[MariaDb, MariaDb]:
    """A server with a table, and its replica."""
    begin_pair(*pair, "CREATE TABLE t (id int PRIMARY KEY, v varchar(20))")
    return pair


def use_replica(server: MariaDb, **more: Any) -> dict[str, Any]:
    return {"replica": {"host": "127.0.0.1", "port": server.port, **more}}


def read_ids(server: MariaDb, folder: Path, **config: Any) -> list[int]:
    output = messages(server, folder, "t", **config)
    errors = [m["trace"]["error"] for m in output if m.get("trace", {}).get("type") == "ERROR"]
    if errors:
        raise TransientError(errors[0]["message"])
    return [m["record"]["data"]["id"] for m in output if m["type"] == "RECORD"]


def test_slices_and_comparisons_read_the_replica_alone(
    servers: tuple[MariaDb, MariaDb], tmp_path: Path
) -> None:
    server, replica = servers
    server.execute("INSERT INTO t SELECT seq, 'a' FROM seq_1_to_500")
    # The user may read nothing of the table at the server but its description.
    server.execute("SET sql_log_bin = 0; RENAME TABLE t TO hidden; CREATE TABLE t LIKE hidden")
    config = {**use_replica(replica), "slice_rows": 100}
    assert read_ids(server, tmp_path, **config) == list(range(1, 501))
    assert sum(part[2] for part in list_ranges(ask(server, tmp_path, config=config))) == 500
    assert not read_ids(server, tmp_path)


def test_rows_of_the_replica_and_the_log_of_the_server_are_one(
    servers: tuple[MariaDb, MariaDb],
) -> None:
    server, replica = servers
    server.execute("INSERT INTO t SELECT seq, 'a' FROM seq_1_to_500")
    lake = make_lake(server, "t", **use_replica(replica), slice_rows=50)
    number = [1000]

    def go_on(item: object) -> None:
        del item
        number[0] += 1
        server.execute(
            f"INSERT INTO t VALUES ({number[0]}, 'b'); DELETE FROM t WHERE id = {number[0] - 1000}; "
            f"UPDATE t SET v = '{number[0]}' WHERE id = {number[0] - 900}"
        )

    for _ in range(2):
        lake.sync(go_on)
    lake.sync()
    assert_equal(lake)


def test_a_stream_that_appends_has_its_first_read_at_the_server(
    servers: tuple[MariaDb, MariaDb],
) -> None:
    server, replica = servers
    server.execute("INSERT INTO t VALUES (1, 'a')")
    replica.execute("STOP SLAVE", "mysql")
    server.execute("INSERT INTO t VALUES (2, 'b')")
    lake = make_lake(server, "t", **use_replica(replica, wait_seconds=1))
    lake.mode = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    lake.sync()
    assert [row["id"] for row in lake.tables["t"].events] == [1, 2]


def test_a_replica_that_is_behind_is_waited_for_and_then_an_error(
    servers: tuple[MariaDb, MariaDb], tmp_path: Path
) -> None:
    server, replica = servers
    replica.execute("STOP SLAVE", "mysql")
    server.execute("INSERT INTO t VALUES (1, 'a')")
    config = use_replica(replica, wait_seconds=1)
    problem = "the replica does not have all transactions of 127"
    with pytest.raises(TransientError, match=problem):
        read_ids(server, tmp_path, **config)
    with pytest.raises(TransientError, match=problem):
        ask(server, tmp_path, config=config)
    lake = make_lake(server, "t", **config)
    with pytest.raises(TransientError, match=problem):
        lake.sync()
    replica.execute("START SLAVE", "mysql")
    assert read_ids(server, tmp_path, **use_replica(replica, wait_seconds=60)) == [1]
    lake.config = {**lake.config, **use_replica(replica, wait_seconds=60)}
    lake.sync()
    assert_equal(lake)


def test_a_server_without_numbers_of_transactions_is_refused(
    shop: MariaDb, servers: tuple[MariaDb, MariaDb], tmp_path: Path
) -> None:
    shop.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with pytest.raises(ConfigError, match="does not number its transactions"):
        ask(shop, tmp_path, config=use_replica(servers[1]))
