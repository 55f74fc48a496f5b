"""What follows the commits of tables: each follower makes the tables known in another place, as they are now.

`pipeline.following` has the followers of a project, by its settings; `pipeline.read` tells them of each
commit.

A sync is neither delayed nor failed by its followers:

1. They work in one thread of their own, after the commit. A table that gets several commits meanwhile is
   followed once, at its newest version, so they never fall behind by a queue.
2. The read waits for them at its end, no longer than `PATIENCE` in all. A follower that takes longer ends
   with the process; the next sync, or the command that catches up, does what it has not done.
3. Their errors are kept as the reason why a table is behind (`Followers.problems`), and never raised.

A follower only looks at the table as it is now, so it does not matter which commits it missed, and a kill at
any point leaves what the next call of `follow` brings up to date.
Test: `tests/lake/publishing/test_followers.py`
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from elt_assets.branches import BRANCH_ENVIRONMENT, branch
from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.machine_faults import first_line, translate
from elt_assets.settings import is_set_for
from elt_assets.storage.location import Location

PATIENCE = 60.0
"""How long a read waits for its followers in all, in seconds."""


@dataclass(frozen=True)
class TableTexts:
    """What people say of a table."""

    comment: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    """The description of each column that has one, by its name."""
    key: tuple[str, ...] = ()
    """The columns of the primary key; none if rows are not told apart by one."""


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
    texts: TableTexts | None = None
    """Its descriptions and its key; None if they are not known here: then those that a place has stay."""
    iceberg: bool | None = None
    """Whether the connection or the stream says that the table is published in Iceberg, or is not."""

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

    def drop(self, table: LakeTable) -> bool:
        """Remove a table from the place, and return whether it was there.

        What others have by its name is not the table, and stays. A place that refuses the name, or the place
        of the table, does not have it.

        Raises:
            EltError: it could not be removed, or another program has changed it.
        """

    def metadata(self, table: LakeTable) -> Mapping[str, Any]:
        """Return what the event of the table says of the place, from what is known without a request."""


@dataclass(frozen=True)
class Publication:
    """What is published of a table in Iceberg."""

    snapshot: int
    """The id of the Iceberg snapshot."""
    version: int
    """The Delta version that it is."""
    lag: int = 0
    """How many Delta versions are newer."""


@dataclass(frozen=True)
class Expiry:
    """What was done before a vacuum."""

    removed: int = 0
    """The number of removed metadata files."""
    other_folders: tuple[str, ...] = ()
    """Folders below the table's root, each with a slash at its end, in which a catalog has its own files."""
    left: int = 0
    """The number of metadata files that could not be removed."""


class IcebergPublisher(Follower, Protocol):
    """The follower that publishes in Iceberg (`iceberg.Publisher`), for those who do not load its library."""

    def publishes(self, table: LakeTable) -> bool:
        """Return whether a table is to be published."""

    def publish(self, table: LakeTable, *, replace: bool = False) -> Publication | None:
        """Publish the newest version of a table; see `iceberg.Publisher.publish`."""

    def look(self, table: LakeTable) -> Publication | None:
        """Return what is published of a table, without a change; see `iceberg.Publisher.look`."""

    def expire(self, table: LakeTable, retention: dt.timedelta) -> Expiry:
        """Publish a table, and remove what a vacuum would break; see `iceberg.Publisher.expire`."""


OpenFollower = Callable[[], Follower]
"""Opens a follower. It loads libraries and asks a catalog, which takes a while; it may raise an EltError."""


class Followers:
    """The followers of the tables of one read, and the thread in which they work.

    Args:
        opening: opens the followers.
        patience: how long `wait` waits in all its calls, in seconds.
    """

    def __init__(self, opening: Sequence[OpenFollower] = (), patience: float = PATIENCE):
        self._opening = opening
        self._patience = patience
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

    def wait(self, table: LakeTable | None = None) -> None:
        """Wait until a table (default: each) is followed up to its newest commit, or patience is over."""
        start = time.monotonic()
        with self._changed:
            while self._is_busy(table) and (left := start + self._patience - time.monotonic()) > 0:
                self._changed.wait(left)
            self._patience = max(0.0, self._patience - (time.monotonic() - start))

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


def refuse_shared_with_branch(setting: str, remedy: str) -> None:
    """Refuse a place of production in the deployment of a branch.

    Args:
        setting: the table of the settings that names the place.
        remedy: what to write in the table of branches, for the error.

    Raises:
        ConfigError: the settings of branches do not name a place.
    """
    name = branch()
    if name is not None and not is_set_for(setting, BRANCH_ENVIRONMENT):
        raise ConfigError(
            f"this is the deployment of the branch {name!r}, and [tool.elt.{setting}] is not of its own: "
            "what is published of production would be changed",
            guidance=f"write [tool.elt.env.{BRANCH_ENVIRONMENT}.{setting}] {remedy}",
        )


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
