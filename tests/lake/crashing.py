"""A source that goes on from its state, and a process that syncs it until it is killed.

`python -m tests.lake.crashing FOLDER CALL NUMBER DELAY`: syncs `SCRIPT` into a lake in FOLDER; DELAY seconds
after the NUMBERth call of CALL (`Table.commit`, say) began, the process group is killed. A delay of −1: when
that call has ended.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deltalake import DeltaTable

from elt_assets.lake.admin import maintenance
from elt_assets.lake.admin.snapshots import snapshot
from elt_assets.lake.delta import commits, opening
from elt_assets.lake.delta.files import Files
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import file_splitting, key_merge
from elt_assets.lake.write.write_spec import RefreshMode, generations, starting_state
from elt_assets.orchestration.resources import SparkResource
from elt_assets.protocol.airbyte.catalog import ConfiguredStream
from elt_assets.protocol.airbyte.sync_modes import APPEND_DEDUP
from elt_assets.sync.events import Checkpoint, Committed
from tests.lake.harness import Lake
from tests.lake.staging import APP, INTEGER, STRING, checkpoint, stream

EVENTS: dict[str, Any] = {"id": INTEGER, "at": INTEGER, "text": STRING}
Batch = Sequence[Any]

POINTS: dict[str, tuple[Any, str]] = {
    "DeltaTable.create": (DeltaTable, "create"),
    "Files.discard": (Files, "discard"),
    "Table.commit": (Table, "commit"),
    "Table.prepare": (Table, "prepare"),
    "Table.reorganise": (Table, "reorganise"),
    "Table.roll_back": (Table, "roll_back"),
    "Table.write_files": (Table, "write_files"),
    "commits._write": (commits, "_write"),
    "commits.enable_ntz": (commits, "enable_ntz"),
    "maintenance.in_tasks": (maintenance, "in_tasks"),
    "merge.run_tasks": (key_merge, "run_tasks"),
    "opening.write_deltalake": (opening, "write_deltalake"),
    "split.in_tasks": (file_splitting, "in_tasks"),
}
"""The calls that change what is on disk."""


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
    written = generations(wanted, head, refresh)
    wanted.generation_id = written.generation_id
    wanted.minimum_generation_id = written.minimum_generation_id
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
    begin = position(starting_state(wanted, lake.tables().metadata, refresh)) or 0
    writer, done = lake.writer(wanted), []
    for number, batch in enumerate(batches[begin:], begin + 1):
        writer.write(lake.stage(*batch))
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
    current = read(lake, "", "id", "at", "text")
    versions = read(lake, "_history", "id", "at", "text", "_is_current", "_valid_to is null")
    dead = read(lake, "_dead_letter", "coalesce(get_json_object(record, '$.text'), record)")
    return View(position(lake.tables().metadata.state), current, versions, dead)


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


def killed_before(call: str, number: int, run: Callable[[], object]) -> None:
    """Run up to the beginning of a call."""
    calls = iter(range(1, sys.maxsize))

    def before() -> None:
        if next(calls) == number:
            raise Killed

    undo = around(call, before, lambda: None)
    try:
        run()
    except Killed:
        return
    finally:
        undo()
    raise AssertionError(f"{call} was not called {number} times")


def around(call: str, before: Callable[[], None], after: Callable[[], None]) -> Callable[[], None]:
    """Call functions before and after each of the calls; return a function that takes this back."""
    owner, name = POINTS[call]
    original, raw = getattr(owner, name), owner.__dict__[name]

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before()
        result = original(*args, **kwargs)
        after()
        return result

    is_bound = isinstance(raw, classmethod | staticmethod)
    setattr(owner, name, staticmethod(wrapped) if is_bound else wrapped)
    return lambda: setattr(owner, name, raw)


def main(folder: str, call: str, number: str, delay: str) -> None:
    calls, ended = iter(range(1, sys.maxsize)), iter(range(1, sys.maxsize))

    def kill() -> None:
        os.killpg(0, signal.SIGKILL)

    def before() -> None:
        if next(calls) == int(number) and float(delay) >= 0:
            if not float(delay):
                kill()
            threading.Timer(float(delay), kill).start()

    def after() -> None:
        if next(ended) == int(number) and float(delay) < 0:
            kill()

    around(call, before, after)
    config = {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "1"}
    lake = Lake(SparkResource(spark_config=config).provider, Path(folder), history=True)
    sync(lake, SCRIPT)
    if call in ("Table.reorganise", "maintenance.in_tasks"):
        maintenance.maintain(lake.spark, lake.tables())


if __name__ == "__main__":
    main(*sys.argv[1:])
