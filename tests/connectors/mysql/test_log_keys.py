"""Keys that become null in the lake: each row says so, by a snapshot and by the log."""

from __future__ import annotations

from typing import Any

import pytest

from elt_assets.protocol.messages import INVALID
from tests.connectors.logged import Lake
from tests.connectors.mysql.logs import make_lake
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external

TABLE = """
CREATE TABLE k (a int, day date, moment datetime(3), v int, PRIMARY KEY (a, day, moment));
INSERT INTO k VALUES (1, '0000-00-00', '2024-01-01', 1), (1, '2024-00-10', '2024-01-01', 2),
    (1, '2024-01-01', '0000-00-00', 3), (1, '2024-01-01', '2024-01-01', 4);
"""


def list_events(lake: Lake) -> list[tuple[Any, ...]]:
    """The value, whether it is a delete, and the fields of the key that the source has nulled."""
    table = lake.tables["k"]
    return [
        (row["v"], row["_ab_cdc_deleted_at"] is not None, sorted(reasons))
        for row, reasons in zip(table.events, table.reasons, strict=True)
        if row["v"] is not None and set(reasons.values()) <= {INVALID}
    ]


def test_each_row_whose_key_is_no_value_of_the_lake_says_so(logged: MariaDb) -> None:
    logged.execute(f"SET sql_mode = 'ALLOW_INVALID_DATES'; {TABLE}")
    lake = make_lake(logged, "k")
    lake.sync()
    first = [(1, False, ["day"]), (2, False, ["day"]), (3, False, ["moment"]), (4, False, [])]
    assert sorted(list_events(lake)) == first
    lake.tables.clear()
    logged.execute(
        "SET sql_mode = 'ALLOW_INVALID_DATES'; UPDATE k SET v = v + 10 WHERE v <= 3; "
        "UPDATE k SET day = '2024-02-02', v = 20 WHERE v = 11; "
        "UPDATE k SET day = '2024-02-31', v = 30 WHERE v = 4; DELETE FROM k WHERE v IN (12, 20)"
    )
    lake.sync()
    assert list_events(lake) == [
        (11, False, ["day"]),
        (12, False, ["day"]),
        (13, False, ["moment"]),
        (11, True, ["day"]),
        (20, False, []),
        (4, True, []),
        (30, False, ["day"]),
        (12, True, ["day"]),
        (20, True, []),
    ]
