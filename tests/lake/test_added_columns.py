"""Columns that are added for undeclared fields, by writers that know of each other only by the table."""

from __future__ import annotations

from typing import Any

import pytest

from elt_assets.errors import ConcurrentSync
from elt_assets.lake.admin.maintenance import compact
from elt_assets.protocol.catalog import OVERWRITE
from tests.lake.harness import USERS, Lake, user
from tests.lake.staging import checkpoint, rows, stream

ADDING: dict[str, Any] = {"adds_undeclared": True}


@pytest.mark.parametrize("colour", ["blue", 5])
def test_two_partitions_add_a_column_at_once(lake: Lake, colour: Any) -> None:
    """Of different types, one run ends, and the next one widens the column."""
    lake.sync(stream(USERS), user(0), partition="first")
    writers = [lake.writer(stream(USERS), partition=name, **ADDING) for name in ("first", "second")]
    for writer, value in zip(writers, ("red", colour), strict=True):
        writer.write(lake.stage(user(1, colour=value)))
    writers[0].commit(checkpoint(final=True))
    if colour == "blue":
        writers[1].commit(checkpoint(final=True))
    else:
        with pytest.raises(ConcurrentSync, match="changed columns of the table"):
            writers[1].commit(checkpoint(final=True))
        writers[1].close()
        lake.sync(stream(USERS), user(1, colour=colour), partition="second", **ADDING)
    assert rows(lake.spark, lake.table, "_elt_partition", "colour") == [
        ("first", "red"),
        ("first", None),
        ("second", str(colour)),
    ]


def test_an_added_column_survives_a_compaction_and_an_overwrite(lake: Lake) -> None:
    lake.sync(stream(USERS), user(1, colour="red"), **ADDING)
    lake.sync(stream(USERS), user(2))
    compact(lake.spark, lake.table)
    lake.sync(stream(USERS), user(3, colour="blue"))
    assert rows(lake.spark, lake.table, "colour") == [("blue",), ("red",), (None,)]
    lake.sync(stream(USERS, OVERWRITE, generation=2), user(4, colour="green"))
    assert rows(lake.spark, lake.table, "id", "colour") == [(4, "green")]
