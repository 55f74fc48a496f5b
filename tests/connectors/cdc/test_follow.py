"""A log that is followed: when it is looked at, what is said again, and what ends the read."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from connectors.cdc.changes import ChangeFiles
from connectors.cdc.read import read_log
from connectors.cdc.reader import LogState, ReadScope, TableItems, Window
from connectors.cdc.stream import LogGroup
from connectors.cdc.texts import OVER
from connectors.sdk.groups import GroupCheckpoint, StreamFailure, StreamPart
from connectors.sdk.items import Wait, Warn
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import FOLLOW, FollowRequest
from tests.connectors.cdc.test_read import (
    CURSOR,
    A,
    ScriptedReader,
    TableState,
    list_slices,
    make_members,
    make_snapshot,
    write,
)

Look = Callable[[ChangeFiles], Any]


@dataclass
class FollowedReader(ScriptedReader):
    """A reader whose looks at the log find what a test says; then nothing.

    Attributes:
        alters_at: the number of the look before which a table is altered.
    """

    alters_at: int | None = None
    looks: int = 0

    def changes(
        self, log: LogState[TableState], files: ChangeFiles
    ) -> Generator[Window, None, None]:
        if self.looks < len(self.windows):
            self.windows[self.looks](files)
        self.looks += 1
        yield Window()

    def is_current(self) -> bool:
        return self.alters_at != self.looks


def follow(reader: FollowedReader, seconds: float, every: float = 0.01) -> Iterator[Any]:
    scope = ReadScope[Any](
        {}, make_members("append_dedup"), True, FollowRequest(seconds=seconds, every=every)
    )
    yield from read_log(reader, scope, CURSOR, None)


def fail(files: ChangeFiles) -> None:
    def refuse() -> None:
        raise ConfigError("the key is gone", guidance="reset it")

    files.attempt(A, refuse)


def test_each_look_is_a_window_with_its_state() -> None:
    reader = FollowedReader(windows=[partial(_write, number) for number in range(1, 4)])
    items = list(follow(reader, seconds=0.5))
    assert reader.looks > 3
    assert len(list_slices(items)) == 3
    last = [item.state for item in items if isinstance(item, GroupCheckpoint)][-1]
    assert [part["position"] for part in last.streams.values()] == [3, 3]


def _write(number: int, files: ChangeFiles) -> None:
    write(files, A, number)


def test_a_log_that_does_not_change_has_no_state_and_shows_that_the_read_is_alive() -> None:
    reader = FollowedReader()
    items = list(follow(reader, seconds=0.3))
    tables = 2  # of which the reader says that they are complete
    assert sum(isinstance(item, GroupCheckpoint) for item in items) == tables
    assert sum(isinstance(item, Wait) for item in items) >= reader.looks - 1 > 1


def test_the_log_is_looked_at_every_so_often_for_some_time() -> None:
    reader, start = FollowedReader(), time.monotonic()
    list(follow(reader, seconds=1.0, every=0.3))
    assert reader.looks in (3, 4)
    assert time.monotonic() - start < 1.3


def test_a_log_that_is_not_followed_is_looked_at_once() -> None:
    reader = FollowedReader()
    scope = ReadScope[Any]({}, make_members("append_dedup"), True)
    list(read_log(reader, scope, CURSOR, None))
    assert reader.looks == 1


def test_a_time_that_is_over_is_one_look() -> None:
    reader = FollowedReader()
    list(follow(reader, seconds=0))
    assert reader.looks == 1


class BackloggedReader(FollowedReader):
    """A reader whose first look finds some windows, one after another."""

    def changes(
        self, log: LogState[TableState], files: ChangeFiles
    ) -> Generator[Window, None, None]:
        while self.windows:
            self.windows.pop(0)(files)
            yield Window(is_last=not self.windows)

    def finish(self, log: LogState[TableState], stream: StreamId) -> TableItems[TableState]:
        self.calls.append("finish")
        yield from ()


def test_a_time_that_is_over_ends_a_backlog_after_the_window_that_is_read() -> None:
    reader = BackloggedReader(windows=[partial(_write, number) for number in range(1, 5)])
    for left in (3, 2, 1):
        items = list(follow(reader, seconds=0))
        assert (len(reader.windows), len(list_slices(items))) == (left, 1)
        assert any(isinstance(i, StreamPart) and i.item == Warn(OVER) for i in items)
        assert "finish" not in reader.calls  # it is said of a log that was read to its end
    items = list(follow(reader, seconds=0))
    assert not any(isinstance(i, StreamPart) and isinstance(i.item, Warn) for i in items)
    assert "finish" in reader.calls


def test_a_time_that_is_over_does_not_end_a_backlog_before_a_window_is_stored() -> None:
    """The next read would begin at the same place."""
    changes = [partial(_write, number) for number in (1, 2)]
    reader = BackloggedReader(windows=[lambda files: None, lambda files: None, *changes])
    assert len(list_slices(follow(reader, seconds=0))) == 1
    assert len(reader.windows) == 1


def test_a_backlog_is_read_while_there_is_time() -> None:
    reader = BackloggedReader(windows=[partial(_write, number) for number in range(1, 5)])
    assert len(list_slices(follow(reader, seconds=0.2))) == 4


def test_a_table_that_fails_ends_the_read_so_that_its_error_is_seen() -> None:
    reader = FollowedReader(windows=[fail])
    items = list(follow(reader, seconds=60))
    assert [item.stream for item in items if isinstance(item, StreamFailure)] == [A]


def test_an_altered_table_ends_the_read_before_the_next_look() -> None:
    reader = FollowedReader(alters_at=3)
    list(follow(reader, seconds=60))
    assert reader.looks == 3


def test_a_table_that_is_not_complete_ends_the_read() -> None:
    reader = FollowedReader(snapshots={A: make_snapshot(unfinished="wait for a transaction")})
    items = list(follow(reader, seconds=60))
    assert reader.looks == 1
    assert any(isinstance(item, StreamPart) and isinstance(item.item, Warn) for item in items)


def test_a_warning_that_each_window_would_repeat_is_sent_once() -> None:
    counts = itertools.count(3)

    def leave_out(files: ChangeFiles) -> None:
        files.add_unstored(A, "new", next(counts))
        write(files, A, next(counts))

    items = list(follow(FollowedReader(windows=[leave_out] * 3), seconds=0.5))
    parts = [item.item for item in items if isinstance(item, StreamPart)]
    warnings = [part.text for part in parts if isinstance(part, Warn)]
    assert len(warnings) == 1
    assert "new (3)" in warnings[0]
    assert len(list_slices(items)) == 3


@pytest.mark.parametrize("request_text", ['{"seconds": 3}', "7", '{"seconds": 3, "every": 0}'])
def test_a_request_that_is_not_valid_is_refused(request_text: str) -> None:
    member = make_members("append_dedup")[A]
    member.extra = {FOLLOW: Raw(request_text.encode())}
    group = LogGroup[Any]("tests.programs.logged_source:FileReader", {})
    group._streams = {A: None}
    with pytest.raises(ConfigError) as error:
        next(iter(group.read([member], None, is_acknowledged=True)))
    assert "every" in (error.value.guidance or "")
    assert msgspec.json.decode('{"seconds": 3300, "every": 5}', type=FollowRequest).every == 5
