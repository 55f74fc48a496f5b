"""A source that goes on from its state, and runs that are killed at failpoints.

`python -m tests.lake.crashing FOLDER`: syncs `SCRIPT` into a lake in FOLDER, and compacts its tables, until
the process is killed at the failpoint that `ELT_FAILPOINT` names.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.admin import maintenance
from elt_assets.lake.delta.table import Table
from elt_assets.lake.read.snapshots import snapshot
from elt_assets.lake.write.stored_stream import RefreshMode, StoredStream
from elt_assets.orchestration.resources import SparkResource
from elt_assets.protocol.catalog import APPEND_DEDUP, ConfiguredStream
from elt_assets.sync.events import Checkpoint, Committed
from tests.lake.harness import Lake
from tests.lake.staging import APP, INTEGER, STRING, checkpoint, stage, stream, take_generations

EVENTS: dict[str, Any] = {"id": INTEGER, "at": INTEGER, "text": STRING}
Batch = Sequence[Any]


def event(number: int | None, at: int, text: str = "") -> dict[str, Any]:
    """A version of the record `number`; one without a number is rejected."""
    return {"id": number, "at": at, "text": text or f"{number} at {at}"}


def seeded(seed: int, batches: int) -> list[list[dict[str, Any]]]:
    """Events of few keys, some late, some rejected; no two of a key at one time."""
    chance = random.Random(seed)
    found = []
    for number in range(batches):
        times = chance.sample(range(number * 10, number * 10 + 30), 5)
        ids = [chance.choice([1, 2, 3, 4, 5, None]) for _ in times]
        found.append([event(i, at * batches + number) for i, at in zip(ids, times, strict=True)])
    return found


SCRIPT = seeded(7, 5)


# A source


def configured(
    lake: Lake,
    policy: str = APPEND_DEDUP,
    refresh: RefreshMode = "none",
    properties: dict[str, Any] | None = None,
) -> ConfiguredStream:
    """The stream as a run configures it: its generation comes from the table."""
    wanted = stream(properties or EVENTS, policy, key=["id"], cursor=["at"])
    head = lake.tables().metadata
    take_generations(wanted, head, refresh)
    wanted.sync_id = head.sync_id + 1
    return wanted


def sync(
    lake: Lake,
    batches: Sequence[Batch],
    wanted: ConfiguredStream | None = None,
    refresh: RefreshMode = "none",
    seen: Callable[[], None] = lambda: None,
) -> list[Committed]:
    """A run: from the table's state to the end, a checkpoint for each batch; `seen` after each."""
    wanted = wanted or configured(lake, refresh=refresh)
    begin = position(StoredStream(wanted, lake.tables().metadata).find_starting_state(refresh)) or 0
    writer, done, records = lake.writer(wanted), [], 0
    for number, batch in enumerate(batches[begin:], begin + 1):
        writer.write(stage(lake.folder / "staging", batch, first=records))
        records += len(batch)
        done.append(writer.commit(checkpoint(number, final=number == len(batches))))
        seen()
    if begin == len(batches):
        done.append(writer.commit(Checkpoint((), final=True)))
    writer.close()
    return done


def position(state: str | None) -> int | None:
    """Return the number of batches that were acknowledged to the source."""
    return None if state is None else int(json.loads(state)["stream"]["stream_state"])


# A reader


class View(NamedTuple):
    """The contents of a stream's tables, as readers see them."""

    position: int | None
    current: list[Any]
    history: list[Any]
    dead: list[Any]


def view(lake: Lake) -> View:
    current = [_values(row) for row in _rows(lake, "")]
    versions = [
        (*_values(row), row["_is_current"], _is_open(lake, row)) for row in _rows(lake, "_history")
    ]
    dead = [(_text(row["record"]),) for row in _rows(lake, "_dead_letter")]
    return View(
        position(lake.tables().metadata.state),
        *(sorted(rows, key=repr) for rows in (current, versions, dead)),
    )


def _values(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["id"], row["at"], row["text"]


def _is_open(lake: Lake, row: Mapping[str, Any]) -> bool:
    """Return whether a version has no end; without Spark, versions have no times."""
    return row["_is_current"] if lake.is_plain else row["_valid_to"] is None


def _text(record: str) -> str:
    body = json.loads(record)
    return str(body["text"]) if isinstance(body, dict) and "text" in body else record


def _rows(lake: Lake, suffix: str) -> list[Mapping[str, Any]]:
    """Return the rows of a table as a snapshot gives them."""
    if not Table(lake.uri + suffix, APP).exists:
        return []
    rows: Any = snapshot(lake.spark, lake.uri + suffix, APP + suffix)
    return list(rows.rows) if lake.is_plain else [row.asDict() for row in rows.collect()]


def read(lake: Lake, suffix: str, *columns: str) -> list[Any]:
    """Rows as a snapshot gives them, sorted."""
    if not Table(lake.uri + suffix, APP).exists:
        return []
    rows = snapshot(lake.spark, lake.uri + suffix, APP + suffix)
    if not rows.columns:
        return []
    return sorted(map(tuple, rows.selectExpr(*columns).collect()), key=repr)


def expected(batches: Sequence[Batch]) -> View:
    """Return what readers must see of whole events once this number of batches is safe."""
    events = [each for batch in batches for each in batch]
    chains: dict[int, list[Any]] = {}
    for each in sorted(events, key=lambda each: int(each["at"])):
        chains.setdefault(each["id"], []).append((each["id"], each["at"], each["text"]))
    dead = chains.pop(None, [])  # type: ignore[call-overload]
    versions = [
        (*each, each == chain[-1], each == chain[-1]) for chain in chains.values() for each in chain
    ]
    return View(
        len(batches) or None,
        sorted((chain[-1] for chain in chains.values()), key=repr),
        sorted(versions, key=repr),
        sorted(((text,) for _, _, text in dead), key=repr),
    )


# A process that is killed


class Killed(BaseException):
    """An error that passes by all code that cleans up after errors, as a kill does."""


class Death:
    """Ends a run at a failpoint: the `number`th time that it is reached, or any, if none is named.

    Each failpoint that is reached later, in another thread or by code that cleans up, ends it too: a dead
    process changes nothing on disk.

    Attributes:
        point: where the run ended; None while it runs.
    """

    def __init__(self, named: Failpoint | None = None, number: int = 1):
        self.point: Failpoint | None = None
        self._named = named
        self._rest = number

    def __call__(self, point: Failpoint) -> None:
        if self.point is None:
            self._rest -= self._named in (None, point)
            self.point = None if self._rest else point
        if self.point is not None:
            raise Killed


def killed_at(point: Failpoint, number: int, run: Callable[[], object]) -> None:
    """Run up to a failpoint."""
    death = Death(point, number)
    with contextlib.suppress(Killed), armed(death):
        run()
    assert death.point is point, f"{point.name} was not reached {number} times"


def done_at(
    point: Failpoint, act: Callable[[], object], number: int = 1
) -> contextlib.AbstractContextManager[None]:
    """Context in which something is done when a failpoint is reached for the `number`th time."""
    numbers = itertools.count(1)
    return armed(lambda reached: reached is point and next(numbers) == number and act())


def main(folder: str) -> None:
    config = {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "1"}
    lake = Lake(SparkResource(spark_config=config).provider, Path(folder), history=True)
    sync(lake, SCRIPT)
    maintenance.maintain(lake.spark, lake.tables())


if __name__ == "__main__":
    main(*sys.argv[1:])
