"""What follows the commits of tables: each follower makes the tables known in another place, as they are now.

`pipeline.following` has the followers of a project, by its settings; `pipeline.read` tells them of each
commit.

A sync is neither delayed nor failed by its followers:

1. They work in one thread of their own, after the commit. A table that gets several commits meanwhile is
   followed once, at its newest version, so they never fall behind by a queue.
2. The read waits for them at its end, for a limited time (`Followers.wait`). A follower that takes longer
   ends with the process; the next sync, or the command that catches up, does what it has not done.
3. Their errors are kept as the reason why a table is behind (`Followers.problems`), and never raised.

A follower only looks at the table as it is now, so it does not matter which commits it missed, and a kill at
any point leaves what the next call of `follow` brings up to date.
Test: `tests/lake/publishing/test_followers.py`
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from elt_assets.errors import EltError, SystemFailure
from elt_assets.machine_faults import first_line, translate
from elt_assets.storage.location import Location


@dataclass(frozen=True)
class LakeTable:
    """A table of the lake, with what other places show of it beside its columns."""

    location: Location
    connection: str
    """The connection's name; of an asset that is no stream, the first level of its key."""
    levels: tuple[str, ...]
    """The path of the table below the root of the lake, by which people know it."""
    companion: str | None = None
    """The kind of companion, as in `SUFFIXES`; None for the table of a stream or of another asset."""
    comment: str | None = None
    column_comments: Mapping[str, str] = field(default_factory=dict)
    """The description of each column that has one, by its name."""
    key: tuple[str, ...] = ()
    """The columns of the primary key; none if rows are not told apart by one."""

    @property
    def name(self) -> str:
        """The name of the table, as messages and Dagster's `dagster/table_name` have it."""
        return ".".join(self.levels)


class Follower(Protocol):
    """A place in which tables are made known: an Iceberg catalog, or a catalog of Delta tables."""

    name: str
    """The place, as messages call it."""

    def follow(self, table: LakeTable) -> None:
        """Bring the place up to date with a table as it is now; do nothing if it is, or is not to have it.

        Raises:
            EltError: it could not be; a later call tries again.
        """

    def drop(self, table: LakeTable) -> None:
        """Remove a table from the place; do nothing if it is not there.

        Raises:
            EltError: it could not be removed, or is another program's.
        """

    def metadata(self, table: LakeTable) -> Mapping[str, Any]:
        """Return what the event of the table says of the place, from what is known without a request."""


OpenFollower = Callable[[], Follower]
"""Opens a follower. It loads libraries and asks a catalog, which takes a while; it may raise an EltError."""


class Followers:
    """The followers of the tables of one read, and the thread in which they work."""

    def __init__(self, opening: Sequence[OpenFollower] = ()):
        self._opening = opening
        self._followers: list[Follower] = []
        self._changed = threading.Condition()
        self._waiting: dict[str, LakeTable] = {}
        self._current: str | None = None
        self._problems: dict[str, list[str]] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def are_there(self) -> bool:
        """Return whether anything follows the tables."""
        return bool(self._opening)

    def start(self) -> None:
        """Open the followers in their thread, while the source is read; without followers, do nothing."""
        with self._changed:
            if self._opening and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="followers", daemon=True)
                self._thread.start()

    def notice(self, table: LakeTable) -> None:
        """Have a table followed that has a new commit. Returns at once."""
        if not self._opening:
            return
        with self._changed:
            self._waiting[table.location.uri] = table
            self._changed.notify_all()
        self.start()

    def wait(self, seconds: float, table: LakeTable | None = None) -> None:
        """Wait until a table (default: all tables) is followed up to its newest commit, or time is over."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._is_busy(table) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def problems(self, table: LakeTable) -> list[str]:
        """Return why a place is not up to date with a table; none if every place is, as far as is known."""
        with self._changed:
            if self._is_busy(table):
                return ["its commit is not published yet, it took too long; the next sync goes on"]
            return list(self._problems.get(table.location.uri, ()))

    def metadata(self, table: LakeTable) -> dict[str, Any]:
        """Return what the event of a table says of all places."""
        with self._changed:
            followers = list(self._followers)
        return {k: v for follower in followers for k, v in follower.metadata(table).items()}

    def close(self) -> None:
        """End the thread when it has done what it is doing; what waits is left to the next sync."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _is_busy(self, table: LakeTable | None) -> bool:
        if table is None:
            return bool(self._waiting) or self._current is not None
        return table.location.uri in self._waiting or table.location.uri == self._current

    def _run(self) -> None:
        unopened = [text for text in map(self._open, self._opening) if text is not None]
        while (table := self._take()) is not None:
            failures = [explain_failure(follower.follow, table) for follower in self._followers]
            problems = [*unopened, *(text for text in failures if text is not None)]
            with self._changed:
                self._problems[table.location.uri] = problems
                self._current = None
                self._changed.notify_all()

    def _open(self, open_follower: OpenFollower) -> str | None:
        def add() -> None:
            follower = open_follower()
            with self._changed:
                self._followers.append(follower)

        return explain_failure(add)

    def _take(self) -> LakeTable | None:
        """Return the next table, when there is one; None when the followers are closed."""
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                return None
            uri = next(iter(self._waiting))
            self._current, table = uri, self._waiting.pop(uri)
            return table


def explain_failure(action: Callable[..., object], *arguments: object) -> str | None:
    """Call a function; return why it failed, with the remedy, in one line, or None if it did not."""
    try:
        action(*arguments)
    except EltError as error:
        fault = error
    except Exception as error:  # noqa: BLE001 - of any library; a follower never fails a sync
        fault = translate(error) or SystemFailure(
            f"{type(error).__name__}: {first_line(error)}",
            guidance="the next sync tries it again; if it fails again, report it with this message",
        )
    else:
        return None
    return "; ".join(filter(None, (fault.message, fault.guidance)))
