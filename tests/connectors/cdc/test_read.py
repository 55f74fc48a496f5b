"""The order of a read, by a log whose reader does what a test says."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from connectors.cdc import reader
from connectors.cdc.changes import ChangeFiles, RowFiles
from connectors.cdc.read import read_log
from connectors.cdc.reader import LogReader, LogState, ReadScope, Snapshot, TableItems, Window
from connectors.sdk import Checkpoint, Slice
from connectors.sdk.groups import GroupCheckpoint, GroupState, StreamFailure, StreamPart
from connectors.sdk.items import Warn
from connectors.sdk.slice_files import read_slice_file
from connectors.sdk.slices import Part
from elt_assets.errors import ConfigError, TransientError
from elt_assets.protocol.catalog import ConfiguredStream, StreamId

A, B = StreamId("a"), StreamId("b")
CURSOR = "_ab_cdc_number"


@dataclass(frozen=True)
class TableState(reader.TableState):
    position: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"position": self.position, "progress": self.progress, "complete": self.is_complete}


@dataclass(frozen=True)
class Form:
    names: tuple[str, ...]


def write(files: ChangeFiles, stream: StreamId, *numbers: int) -> None:
    """Write a row for each number."""
    columns = {"id": pa.array(numbers, pa.int64()), CURSOR: pa.array(numbers, pa.int64())}
    files.write(stream, pa.RecordBatch.from_pydict(columns))


@dataclass
class ScriptedReader(LogReader[TableState]):
    """A reader of tables that are complete, unless `snapshots` has one of them.

    Attributes:
        windows: each writes the changes of a window.
        calls: what was called, for the order.
    """

    snapshots: dict[StreamId, Snapshot[TableState]] = field(default_factory=dict)
    windows: list[Callable[[ChangeFiles], Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def hold(self) -> AbstractContextManager[Callable[[], object]]:
        return nullcontext(lambda: self.calls.append("confirm"))

    def load(self, state: GroupState | None) -> LogState[TableState]:
        return LogState({})

    def snapshot(self, log: LogState[TableState], stream: StreamId) -> TableItems[TableState]:
        if stream in self.snapshots:
            yield self.snapshots[stream]
            self.calls.append("closed")
        else:
            yield TableState(is_complete=True)

    def changes(
        self, log: LogState[TableState], files: ChangeFiles
    ) -> Generator[Window, None, None]:
        for window in self.windows:
            window(files)
            yield Window()

    def move(self, stream: StreamId, table: TableState) -> TableState:
        return replace(table, position=table.position + 1)

    def release(self, log: LogState[TableState], files: ChangeFiles) -> None:
        self.calls.append("release")


def make_members(mode: str) -> dict[StreamId, ConfiguredStream]:
    """Return both tables as they are configured."""
    members = {}
    for stream in (A, B):
        described = {
            "name": stream.name,
            "json_schema": {},
            "supported_sync_modes": ["incremental"],
        }
        modes = {"sync_mode": "incremental", "destination_sync_mode": mode, "primary_key": [["id"]]}
        text = msgspec.json.encode({"stream": described, "cursor_field": [CURSOR], **modes})
        members[stream] = ConfiguredStream.from_json(text)
    return members


def read(reader: ScriptedReader, *, mode: str = "append_dedup") -> Iterator[Any]:
    """Yield the items of a read of both tables; the call of each is in `reader.calls`."""
    members = make_members(mode)
    scope = ReadScope[Any]({}, members, is_acknowledged=True)
    for item in read_log(reader, scope, CURSOR, None):
        reader.calls.append(type(item).__name__)
        yield item


def make_snapshot(*parts: Part, **options: Any) -> Snapshot[TableState]:
    return Snapshot(TableState(), 7, 7, parts, 5, **options)


def list_slices(items: Iterable[Any]) -> list[Slice]:
    parts = [item.item for item in items if isinstance(item, StreamPart)]
    return [part for part in parts if isinstance(part, Slice)]


def last_state(items: list[Any]) -> GroupState:
    return [item.state for item in items if isinstance(item, GroupCheckpoint)][-1]


def test_a_window_is_released_when_it_is_committed() -> None:
    reader = ScriptedReader(windows=[lambda files: write(files, A, 1), lambda _: None])
    items = list(read(reader))
    tables = ["confirm", "GroupCheckpoint"] * 2
    assert reader.calls == [*tables, "StreamPart", "confirm", "GroupCheckpoint", "Wait", "release"]
    assert [part["position"] for part in last_state(items).streams.values()] == [1, 1]


def test_a_log_that_is_not_its_own_any_more_has_no_more_states() -> None:
    class Lost(ScriptedReader):
        def hold(self) -> AbstractContextManager[Callable[[], object]]:
            return nullcontext(raise_loss)

    def raise_loss() -> None:
        raise TransientError("lost", guidance="wait")

    with pytest.raises(TransientError):
        list(read(Lost()))


def test_a_snapshot_is_kept_until_its_slices_are_read() -> None:
    reader = ScriptedReader(snapshots={A: make_snapshot(Slice("x", {}), is_held=True)})
    list(read(reader))
    assert reader.calls[:6] == [
        "StreamPart",
        "StreamPart",
        "confirm",
        "GroupCheckpoint",
        "Wait",
        "closed",
    ]


def test_a_snapshot_goes_on_after_its_last_state_and_deletes_the_rows_before_its_first() -> None:
    parts = (Slice("x", {}), Checkpoint({"after": 1}), Slice("y", {}))
    items = list(read(ScriptedReader(snapshots={A: make_snapshot(*parts)})))
    states = [item.state.streams[A] for item in items if isinstance(item, GroupCheckpoint)]
    assert [part["progress"] for part in states[:2]] == [{"after": 1}, None]
    slices = list_slices(items)
    assert [part.data.get("number") for part in slices] == [7, 7, None]
    assert slices[-1].data == {"truncation": 4, "time": 7, "key": ["id"]}


@pytest.mark.parametrize(("mode", "place"), [("append", 0), ("append_dedup", 1)])
def test_a_table_that_has_the_name_of_another_ends_the_rows_of_that(mode: str, place: int) -> None:
    reader = ScriptedReader(snapshots={A: make_snapshot(Slice("x", {}), is_of_another=True)})
    slices = list_slices(read(reader, mode=mode))
    assert [number for number, part in enumerate(slices) if "truncation" in part.data] == [place]


def test_a_table_whose_snapshot_is_to_be_read_again_gets_no_changes() -> None:
    snapshots = {A: make_snapshot(Slice("x", {}), unfinished="again")}
    keys: list[StreamId] = []
    reader = ScriptedReader(snapshots, [lambda files: keys.extend(files.keys)])
    items = list(read(reader))
    assert keys == [B]
    assert StreamPart(A, Warn("again")) in items
    assert not last_state(items).streams[A]["complete"]


def test_a_stream_that_fails_in_a_window_has_no_slices_and_the_others_go_on() -> None:
    def fail() -> None:
        raise ConfigError("no", guidance="reset")

    def write_both(files: ChangeFiles) -> None:
        files.attempt(A, write, files, A, 1)
        files.attempt(A, fail)
        files.attempt(A, write, files, A, 2)
        files.attempt(B, write, files, B, 1)

    items = list(read(ScriptedReader(windows=[write_both, write_both])))
    assert [item.stream for item in items if isinstance(item, StreamPart)] == [B, B]
    assert [item.stream for item in items if isinstance(item, StreamFailure)] == [A]
    positions = {name: part["position"] for name, part in last_state(items).streams.items()}
    assert positions == {A: 0, B: 2}


def read_numbers(part: StreamPart) -> list[int]:
    assert isinstance(part.item, Slice)
    batches = list(read_slice_file(part.item.file))
    numbers = [number for batch in batches for number in batch.column("id").to_pylist()]
    assert part.item.rows == len(numbers)
    return numbers


def test_rows_that_were_rolled_back_are_removed_from_their_files(tmp_path: Path) -> None:
    files = ChangeFiles(tmp_path, CURSOR, {A: ["id"], B: ["id"]})
    write(files, A, 1, 2, 3)
    write(files, A, 4, 5)
    write(files, B, 1)
    files.void[A] += [(1, 2), (3, 5)]
    files.void[B] += [(0, 1)]
    (part,) = files.close()
    assert (part.stream, read_numbers(part)) == (A, [1, 3])
    files.begin_window()
    write(files, A, 2)
    assert [read_numbers(part) for part in files.close()] == [[2]]


def test_warnings_of_a_stream_are_few_and_each_is_said_once(tmp_path: Path) -> None:
    files = ChangeFiles(tmp_path, CURSOR, {A: ["id"]})
    for number in (1, 1, 2, 3, 4, 5, 6, 7):
        files.warn(A, f"altered {number}")
    assert [part.item for part in files.close()] == [Warn(f"altered {n}") for n in range(1, 6)]


def test_rows_of_each_form_are_built_by_their_own_columns(tmp_path: Path) -> None:
    places: list[Any] = []

    def build(stream: StreamId, form: Form, columns: Any, rows: Any) -> pa.RecordBatch:
        places.append((list(columns), len(rows)))
        return pa.RecordBatch.from_pydict({"id": [int(row[columns[0]]) for row in rows]})

    files = ChangeFiles(tmp_path, CURSOR, {A: ["id"]})
    rows = RowFiles[Form, list[str]](files, {A: ["id", "v"]}, {A: 0}, build)
    rows.add(A, Form(("ID", "v")), [], [["1", "x"], ["2", "y"]], 1)
    rows.add(A, Form(("v", "id")), [["x", "1"]], [["x", "3"]], 1)
    rows.flush()
    assert places == [([0, 1], 2), ([1, 0], 2)]
    assert rows.numbers == {A: 4}
    (part,) = files.close()
    assert read_numbers(part) == [1, 2, 1, 3]
