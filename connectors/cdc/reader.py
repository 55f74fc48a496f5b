"""What a database brings so that its log is read: the state of a table, and a reader of the log.

**Each change once.** The state of a table says which changes of the log are in it. Rows and state are one
commit of the table, so the tables may be at different places of the log: the log is read from what all of
them have, and each leaves out what it has already.

`connectors.cdc.read` calls a reader, and does the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from connectors.cdc.texts import RESET_ALL
from connectors.sdk.groups import GroupState
from connectors.sdk.items import Measure, Warn
from connectors.sdk.slices import Part
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import ConfiguredStream, StreamId
from elt_assets.protocol.messages import FollowRequest

if TYPE_CHECKING:
    from connectors.cdc.changes import ChangeFiles

FORM = 1
"""The form of states."""
Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TableState(ABC):
    """What is known of one table. Each log has its own subclass, with the position of the table.

    Attributes:
        progress: the state of its snapshot, if it is not complete.
        is_complete: whether its snapshot is.
    """

    progress: Json | None = None
    is_complete: bool = False

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the state as it is stored."""


Table = TypeVar("Table", bound=TableState)


@dataclass
class LogState(Generic[Table]):
    """A state of the group of tables. `shared`: says which log it is, as it is stored."""

    shared: Json
    tables: dict[StreamId, Table] = field(default_factory=dict)

    def is_within(self, streams: Collection[StreamId]) -> bool:
        """Return whether all its tables are some streams: else the others still need the log."""
        return self.tables.keys() <= set(streams)

    def to_state(self) -> GroupState:
        """Return the state as the SDK sends it."""
        tables = {name: table.to_json() for name, table in self.tables.items()}
        return GroupState({"form": FORM, **self.shared}, tables, is_independent=True)


def load_state(
    state: GroupState,
    parse_shared: Callable[[Json], Json],
    parse_table: Callable[[Json, Json], Table],
    is_configured: Callable[[StreamId], bool],
) -> LogState[Table]:
    """Return a state, without the tables that the config does not have any more.

    Args:
        parse_shared: returns what says which log it is.
        parse_table: returns the state of a table, from its JSON and what `parse_shared` returns. Both raise a
            KeyError, TypeError, ValueError or AttributeError if they get something else.

    Raises:
        ConfigError: it is not of a log, or of a newer version.
    """
    try:
        is_known, shared = state.shared["form"] == FORM, parse_shared(state.shared)
        tables = {
            name: parse_table(part, shared)
            for name, part in state.streams.items()
            if is_configured(name)
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            "the state is not one of `incremental: log`",
            guidance=f"after a change of `incremental`, {RESET_ALL}",
        ) from None
    if not is_known:
        raise ConfigError(
            "the state is of a newer version of this source",
            guidance=f"install that version, or {RESET_ALL}",
        )
    return LogState(shared, tables)


Stream = TypeVar("Stream")


@dataclass(frozen=True)
class ReadScope(Generic[Stream]):
    """What one sync reads of a log.

    Attributes:
        streams: the tables.
        members: how they are configured.
        is_acknowledged: see `StreamGroup.read`.
        follow: how long the log is followed; None to read up to its present end.
    """

    streams: Mapping[StreamId, Stream]
    members: Mapping[StreamId, ConfiguredStream]
    is_acknowledged: bool
    follow: FollowRequest | None = None


@dataclass(frozen=True)
class Snapshot(Generic[Table]):
    """Rows of a table as they were at a moment: all of them, the rest of an interrupted read, or new parts.

    Attributes:
        table: its state when these rows are read. If it is complete, they are new parts of the table.
        number: that of the rows in the field that is the cursor: greater than all numbers that the table had
            before, and less than those of the changes that the rows do not show. Changes that they show may
            come again after them, in their order.
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


@dataclass(frozen=True)
class Window:
    """Some whole transactions of the log, whose changes are in the files.

    Attributes:
        is_due: whether it is to be committed if it has no changes: each commit is one of all tables, but a
            log whose position stays cannot be removed.
        is_last: whether it ends at the present end of the log.
    """

    is_due: bool = False
    is_last: bool = True


TableItems = Generator[Warn | Snapshot[Table] | Table, None, None]


class LogReader(ABC, Generic[Table]):
    """The read of a log by one sync. Its methods are called in the order in which they are here; if the log
    is followed, those from `changes` to `is_current` again and again."""

    def hold(self) -> AbstractContextManager[Callable[[], object]]:
        """Keep other syncs from the log while this one reads it, if they would disturb.

        Gives a function that is called before each state: it raises a TransientError if another sync may read
        the log by now.
        """
        return nullcontext(lambda: None)

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
    def changes(self, log: LogState[Table], files: ChangeFiles) -> Generator[Window, None, None]:
        """Write the changes up to the present end of the log, and yield after each window of transactions.

        The windows are committed one by one. No further one is asked for if the time is over for which a log
        is followed.

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

    def is_current(self) -> bool:
        """Return whether the tables are still what they were when the read began.

        A read that follows the log asks before each further look. If a column came, or a table was made
        again, it ends, and the next one begins with what the tables are then.
        """
        return True

    def finish(self, log: LogState[Table], stream: StreamId) -> TableItems[Table]:
        """Yield what is to be said of a table when all changes are read up to the present end of the log."""
        del log, stream
        yield from ()
