"""What a database brings so that its log is read. `connectors.cdc.read` calls it, and does the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from connectors.cdc.state import LogState, Table
from connectors.sdk.groups import GroupState
from connectors.sdk.items import Measure, Warn
from connectors.sdk.slices import Part
from elt_assets.protocol.airbyte.catalog import ConfiguredStream, StreamId

if TYPE_CHECKING:
    from connectors.cdc.changes import ChangeFiles


Stream = TypeVar("Stream")


@dataclass(frozen=True)
class ReadScope(Generic[Stream]):
    """What one sync reads of a log.

    Attributes:
        streams: the tables.
        members: how they are configured.
        is_acknowledged: see `StreamGroup.read`.
    """

    streams: Mapping[StreamId, Stream]
    members: Mapping[StreamId, ConfiguredStream]
    is_acknowledged: bool


@dataclass(frozen=True)
class Snapshot(Generic[Table]):
    """Rows of a table as they were at a moment: all of them, the rest of an interrupted read, or new parts.

    Attributes:
        table: its state when these rows are read. If it is complete, they are new parts of the table.
        number: that of the rows in the field that is the cursor: greater than the numbers of all changes that
            the rows show, and less than those of the changes that they do not show.
        time: that of the rows, in microseconds since 1970.
        parts: the slices, and a `Checkpoint` of the table's `progress` wherever a later read can go on.
        least: the number of the first rows of the table, which an interrupted read may have read.
        is_held: whether the slices can be read only as long as the snapshot is kept.
        is_of_another: whether another table had the name when the state was stored.
        unfinished: why the table must be read in a later snapshot again; empty if it need not.
    """

    table: Table
    number: int
    time: int
    parts: Iterable[Part]
    least: int
    is_held: bool = False
    is_of_another: bool = False
    unfinished: str = ""


TableItems = Generator[Warn | Snapshot[Table] | Table, None, None]


class LogReader(ABC, Generic[Table]):
    """The read of a log by one sync. Its methods are called in the order in which they are here."""

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other syncs from the log while this one reads it, if they would disturb."""
        yield

    def confirm(self) -> None:
        """Check before each state that no other sync reads the log, if it would disturb.

        Raises:
            TransientError: one does, or may.
        """

    @abstractmethod
    def load(self, state: GroupState | None) -> LogState[Table]:
        """Return the state to go on from, when it is proven that the log does.

        Raises:
            EltError: changes are lost, or may be; or the log cannot be read.
        """

    def reports(self, log: LogState[Table]) -> Iterator[Warn | Measure]:
        """Yield what the user should know of the log."""
        del log
        yield from ()

    @abstractmethod
    def snapshot(self, log: LogState[Table], stream: StreamId) -> TableItems[Table]:
        """Yield what is to be read of a table before its changes: a `Snapshot` if it was not read completely.

        A state of the table takes the place of the former one. What a snapshot needs is kept until the next
        item is asked for.

        Raises:
            EltError: the table cannot be read, or changes of it are lost; the other tables are read.
        """

    @abstractmethod
    def changes(self, log: LogState[Table], files: ChangeFiles) -> Generator[bool, None, None]:
        """Write the changes up to the present end of the log, and yield after each window of transactions.

        The windows are committed one by one. The reader yields whether a window is to be committed if it has
        no changes: each commit is one of all tables, but a log whose position stays cannot be removed.

        Raises:
            EltError: the log cannot be read, or changes are lost.
        """

    @abstractmethod
    def move(self, stream: StreamId, table: Table) -> Table:
        """Return the state of a table with the changes of the last window."""

    def release(self, log: LogState[Table], files: ChangeFiles) -> None:
        """Let the server forget what is in all tables: a window is committed if the reader of the source
        acknowledges its states."""
        del log, files

    def finish(self, log: LogState[Table], stream: StreamId) -> TableItems[Table]:
        """Yield what is to be said of a table when all changes are read."""
        del log, stream
        yield from ()
