"""One read of a log: the snapshots of tables that have none, then the changes up to the present end.

The changes are read in windows of whole transactions. Those of a window are files, some for each table, which
are the slices of its stream, and then comes the state at the window's end. A read that is interrupted repeats
what comes after its last state, and its files are removed.

A table that cannot be read is left out, and the others go on. It keeps its state, from which the next sync
reads.

**A log that is followed** (`ReadScope.follow`) is looked at again and again: each look is what a read of its
own would do, from the state that the windows before have left, so all that holds for a read holds for it. The
read ends when its time is over, after the window that it is in: a log with much to read does not keep it
longer, and the next read goes on from the state of that window. It ends before if a table has failed, whose
error is to be seen now; and if a table is not complete, or is no longer what it was when the read began
(`LogReader.is_current`): the next read begins with that. Tests: `tests/connectors/cdc/test_follow.py`
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Generic

from connectors.cdc.changes import ChangeFiles
from connectors.cdc.reader import (
    LogReader,
    LogState,
    ReadScope,
    Snapshot,
    Stream,
    Table,
    TableItems,
    Window,
)
from connectors.cdc.texts import OVER
from connectors.sdk.groups import GroupCheckpoint, GroupItem, GroupState, StreamFailure, StreamPart
from connectors.sdk.items import Checkpoint, Measure, Slice, Wait, Warn
from connectors.sdk.slice_files import find_slice_folder
from elt_assets.errors import EltError
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import SOURCE_COMMIT_TIME

_SIGN_SECONDS = 5.0
"""Seconds between two signs of life while a log is followed that does not change."""


def read_log(
    reader: LogReader[Table], scope: ReadScope[Stream], cursor: str, state: GroupState | None
) -> Iterator[GroupItem]:
    """Yield the slices, the warnings and the states of a read.

    Args:
        cursor: the field with the number of a change.
        state: that of the last read; None to begin.

    Raises:
        EltError: the log cannot be read, or changes are lost.
    """
    with reader.hold() as require_hold:
        for item in _LogRead(reader, scope, cursor, reader.load(state)).items():
            if isinstance(item, GroupCheckpoint):
                require_hold()
            yield item


class _LogRead(Generic[Stream, Table]):
    """A read of a log from a state, which goes on with each table."""

    def __init__(
        self,
        reader: LogReader[Table],
        scope: ReadScope[Stream],
        cursor: str,
        state: LogState[Table],
    ):
        self._reader, self._cursor, self._state = reader, cursor, state
        self._members, self._asked = dict(scope.members), scope.members.keys()
        self._follow, self._began = scope.follow, time.monotonic()
        self._warnings: set[tuple[StreamId, str]] = set()

    def items(self) -> Iterator[GroupItem]:
        first = next(iter(self._members))
        for report in self._reader.reports(self._state):
            yield StreamPart(first, report)
        for stream in list(self._members):
            try:
                yield from self._take(stream, self._reader.snapshot(self._state, stream))
            except EltError as error:  # noqa: PERF203 - the other streams are still read
                yield self._fail(stream, error)
        # One whose snapshot is not complete gets its changes after its next one.
        complete = {name for name, table in self._state.tables.items() if table.is_complete}
        self._members = {name: self._members[name] for name in self._members if name in complete}
        reaches_end = (yield from self._read_changes()) if self._members else True
        for stream in self._members if reaches_end else ():
            yield from self._take(stream, self._reader.finish(self._state, stream))

    def _fail(self, stream: StreamId, error: EltError) -> StreamFailure:
        """Go on without a stream."""
        del self._members[stream]
        return StreamFailure(stream, error)

    def _put(self, stream: StreamId, table: Table) -> GroupCheckpoint:
        self._state.tables[stream] = table
        return GroupCheckpoint(self._state.to_state())

    def _take(self, stream: StreamId, items: TableItems[Table]) -> Iterator[GroupItem]:
        """Yield what a reader has of a table."""
        with closing(items):
            for item in items:
                if isinstance(item, Snapshot):
                    yield from self._read_snapshot(stream, item)
                elif isinstance(item, Warn):
                    yield StreamPart(stream, item)
                elif item != self._state.tables.get(stream):
                    yield self._put(stream, item)

    def _read_snapshot(self, stream: StreamId, snapshot: Snapshot[Table]) -> Iterator[GroupItem]:
        """Yield the slices of a snapshot, and states after which it can go on.

        A table that is read in full again, after a reset, has rows in the lake that may be gone. In a stream
        that deduplicates, their deletes come after the rows of the snapshot, whose numbers are greater: so
        readers see each row that stayed all the time.
        """
        member, table = self._members[stream], snapshot.table
        former = {
            "truncation": snapshot.least - 1,
            "time": snapshot.time,
            "key": member.key_columns,
        }
        deletes = StreamPart(stream, Slice("rows that are gone", former, rows=1))
        if snapshot.is_of_another and not member.deduplicates:
            yield deletes
        for part in snapshot.parts:
            if isinstance(part, Checkpoint):
                assert isinstance(part.state, dict)
                table = replace(table, progress=part.state)
                yield self._put(stream, table)
            elif isinstance(part, Slice) and part.file is None:
                data = {**part.data, "number": snapshot.number, "time": snapshot.time}
                yield StreamPart(stream, replace(part, data=data))
            elif isinstance(part, Wait):
                yield part
            else:
                yield StreamPart(stream, part)
        if snapshot.unfinished:
            yield StreamPart(stream, Warn(snapshot.unfinished))
            yield self._put(stream, table)
        else:
            if member.deduplicates and not table.is_complete:
                yield deletes
            yield self._put(stream, replace(table, progress=None, is_complete=True))
        if snapshot.is_held:
            yield Wait()

    def _read_changes(self) -> Generator[GroupItem, None, bool]:
        """Yield the changes up to the present end of the log, window by window; again, if it is followed.

        Returns:
            Whether the end was reached before the time was over.
        """
        keys = {name: member.key_columns for name, member in self._members.items()}
        folder = Path(tempfile.mkdtemp(prefix="elt-log-", dir=find_slice_folder()))
        try:
            files = ChangeFiles(folder, self._cursor, keys)
            reaches_end = is_due = True
            while is_due:
                began = time.monotonic()
                reaches_end = yield from self._read_windows(files)
                is_due = reaches_end and (yield from self._await_look(began))
            return reaches_end
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _read_windows(self, files: ChangeFiles) -> Generator[GroupItem, None, bool]:
        """Yield the changes of windows; return whether they were all, up to the present end of the log."""
        with closing(self._reader.changes(self._state, files)) as windows:
            for window in windows:
                is_stored = yield from self._close_window(files, window)
                if not self._members:
                    break
                files.begin_window()
                # After a window that is not stored, the next read would begin with the same one.
                if is_stored and not window.is_last and self._is_over(time.monotonic()):
                    yield StreamPart(next(iter(self._members)), Warn(OVER))
                    return False
        return True

    def _is_over(self, moment: float) -> bool:
        """Return whether a moment of the monotonic clock is after the time for which the log is followed."""
        return self._follow is not None and moment > self._began + self._follow.seconds

    def _await_look(self, began: float) -> Generator[GroupItem, None, bool]:
        """Wait until the log is to be looked at again; return False if it is not.

        Args:
            began: when the last look began, by the monotonic clock.
        """
        if self._follow is None or self._members.keys() != self._asked:
            return False
        due = max(began + self._follow.every, time.monotonic())
        if self._is_over(due):
            return False
        while True:
            yield Wait()  # the reader commits, and knows that this read is alive
            left = due - time.monotonic()
            if left <= 0:
                return self._reader.is_current()
            time.sleep(min(left, _SIGN_SECONDS))

    def _close_window(self, files: ChangeFiles, window: Window) -> Generator[GroupItem, None, bool]:
        """Yield what was read in a window, and the state after it, if it is worth a commit; return whether it
        is."""
        parts = [part for part in files.close() if self._is_new(part)]
        if not parts and not files.failures and not window.is_due:
            return False
        yield from parts
        for stream, error in files.failures.items():
            del files.keys[stream]
            yield self._fail(stream, error)
        for stream in self._members:
            table = self._state.tables[stream]
            self._state.tables[stream] = self._reader.move(stream, table)
        if files.oldest is not None and self._members:
            measure = Measure(SOURCE_COMMIT_TIME, files.oldest.timestamp())
            yield StreamPart(next(iter(self._members)), measure)
        yield GroupCheckpoint(self._state.to_state())
        yield Wait()
        self._reader.release(self._state, files)
        return True

    def _is_new(self, part: StreamPart) -> bool:
        """Return whether a part is to be sent: all but a warning that this read has sent already, which each
        window of a log that is followed may repeat with other numbers."""
        if self._follow is None or not isinstance(part.item, Warn):
            return True
        warning = part.stream, re.sub(r"\d+", "0", part.item.text)
        is_new = warning not in self._warnings
        self._warnings.add(warning)
        return is_new
