"""Each type and value in the log is the value that a snapshot of the table shows."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.sdk.arrow_records import page_of
from connectors.sdk.groups import StreamPart
from connectors.sdk.items import Slice
from connectors.sdk.slice_files import read_slice_file
from tests.connectors.mysql import exact_types
from tests.connectors.mysql.logs import assert_equal, make_lake, run_logged

pytestmark = pytest.mark.external

COMPRESSED = """
CREATE TABLE compressed (id int PRIMARY KEY, y year, u int unsigned, a varchar(2000) COMPRESSED,
  b text COMPRESSED, n varchar(300), p varchar(3000) CHARACTER SET latin1 COMPRESSED,
  i mediumblob COMPRESSED, z decimal(65,30) unsigned zerofill, e enum('é','b') CHARACTER SET latin1,
  s set('ß','ü') CHARACTER SET cp1250);
INSERT INTO compressed VALUES
  (1, 2001, 4000000000, REPEAT('a', 1000), REPEAT('b', 1000), 'q', REPEAT('é', 900),
    REPEAT('c', 90000), 1.5, 'é', 'ü,ß'),
  (2, 0, 1, 'x', '', '', 'é', 'x', 0, '', ''),
  (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
"""


@pytest.mark.parametrize("settings", [(), ("log-bin-compress=1", "log-bin-compress-min-len=10")])
def test_each_value_of_the_log_is_that_of_a_snapshot(settings: tuple[str, ...]) -> None:
    with run_logged(*settings) as server:
        exact_types.create(server)
        server.execute(COMPRESSED)
        lake = make_lake(server, "exact", "compressed")
        lake.sync()
        before = lake.rows("exact")
        server.execute("UPDATE exact SET id = id + 100; UPDATE compressed SET id = id + 100")
        changes: list[tuple[int, Any]] = []

        def keep_changes(item: Any) -> None:
            if isinstance(item, StreamPart) and isinstance(item.item, Slice):
                for batch in read_slice_file(item.item.file or ""):
                    page = page_of(batch, {})
                    changes.extend(
                        (page.records[n]["id"], change["field"])
                        for n, entries in page.changes.items()
                        for change in entries
                    )

        lake.sync(keep_changes)
        assert len(lake.rows("exact")) == len(before) == exact_types.ROWS
        assert_equal(lake)
        nulled = {(row, field) for row, field in changes if row >= 100}
        assert len(nulled) >= len(exact_types.NULLED)  # some of these are there twice
        assert nulled == {(row + 100, field) for row, field in changes if row < 100}
