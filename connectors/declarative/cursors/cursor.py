"""Cursors: which slices of a stream are read, what of them is new, and which state records it.

A `Cursor` is a stream's, as its manifest describes it. Its method `begin` returns the `Progress` of one read:

    progress = cursor.begin(state)
    for each in progress.slices():
        for page in read_slice(progress, each, pages(each, progress.options(each))):
            ...  # send the records
        progress.close(each)
        if progress.is_due():
            ...  # send progress.encode()
    progress.finish()
    ...  # send progress.encode()

Slices may be read in several threads (`options`, `take`, `is_past`), and may be closed in any order: the
state never covers a slice that was not closed. One thread closes slices and sends states; `slices` may run in
another.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Generic, TypeVar

from msgspec import Raw

from connectors.declarative.cursors.settings import Settings
from connectors.declarative.cursors.slices import Option, Slice, options_of
from connectors.sdk.encoding import encode
from connectors.sdk.http.places import Place
from connectors.sdk.items import Context, Record
from elt_assets.errors import ConfigError

NO_CURSOR = "__ab_no_cursor_state_message"
"""Key of the state that the Airbyte CDK sends after a complete read without a cursor."""
STATES = "states"
GLOBAL_STATE = "state"
USE_GLOBAL = "use_global_cursor"
LOOKBACK = "lookback_window"
PARENT_STATE = "parent_state"
"""Keys of the state of a stream whose partitions have a cursor each."""
RESERVED = frozenset({NO_CURSOR, STATES, GLOBAL_STATE, USE_GLOBAL, LOOKBACK, PARENT_STATE})
"""Keys of a state that are no cursor fields."""

_OF_INTERVALS = frozenset({"slices", "state_type", "legacy"})
"""Keys of a state that lists the intervals that were read."""

State = Mapping[str, Any]
Page = list[Record]


class Progress(ABC):
    """One read of a stream.

    Attributes:
        warnings: what the user should know about the read so far, one line each.
    """

    def __init__(self) -> None:
        self.warnings: list[str] = []

    @abstractmethod
    def slices(self, contexts: Sequence[Context] | None = None) -> Iterator[Slice]:
        """Yield the slices to read, in order. It can be called once.

        Args:
            contexts: the partitions or intervals to read alone, as `Cursor.contexts` lists them; None for
                all that the state does not cover.

        Raises:
            ConfigError: a context is not one of the stream's.
            EltError: a parent stream cannot be read.
        """

    def options(self, stream_slice: Slice) -> list[Option]:
        """Return the values that a slice puts into its requests. A later one replaces an earlier one with the
        same place."""
        del stream_slice
        return []

    def take(self, stream_slice: Slice, page: Page) -> Page:
        """Return the records of a page that are to be sent, and take notice of their cursor values."""
        del stream_slice
        return page

    def is_past(self, stream_slice: Slice, page: Page) -> bool:
        """Return whether a page shows that all later pages of its slice are older than what is read."""
        del stream_slice, page
        return False

    @abstractmethod
    def close(self, stream_slice: Slice) -> None:
        """Take notice that all records of a slice were sent."""

    def finish(self) -> None:
        """Take notice that all slices were closed."""
        return

    def is_due(self) -> bool:
        """Return whether to send a state after the slice that was closed last."""
        return True

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return the state of the stream, which covers all slices that were closed."""

    def encode(self) -> Raw:
        """Return the state as JSON."""
        return Raw(encode(self.state()))


class Cursor(ABC):
    """The slices and the state of a stream, as its manifest describes them."""

    @abstractmethod
    def begin(self, state: State) -> Progress:
        """Return the progress of a read that continues from a state; an empty one for a read from the start.

        Raises:
            ConfigError: the state, or a value of the config, cannot be used.
        """

    def contexts(self) -> Iterator[Context] | None:
        """Return the partitions or intervals that can be read alone; None if the stream has none.

        Raises:
            EltError: a parent stream cannot be read.
        """
        return None

    def lacks_overlap(self) -> bool:
        """Return whether a record that the API shows later than its cursor value says may be missed.

        Raises:
            ConfigError: a value of the config cannot be used.
        """
        return False


Bounds = TypeVar("Bounds")
"""Type of what is the same for all partitions of one read."""


class ValueCursor(Cursor, Generic[Bounds]):
    """A cursor whose state is one value. Partitions can have one each.

    Args:
        component: the component.
        config: the config of the source.
        cursor_field: the cursor field of the configured stream, where the component lets users choose it.

    Attributes:
        field: the field of records that has the cursor's values.
        names: the names of the start and the end of an interval.
        place: the place of the cursor in the manifest.
        places: the places in requests of these values, by name.

    Raises:
        ConfigError: there is no cursor field.
    """

    names: tuple[str, ...]
    places: Mapping[str, Place | None]

    def __init__(self, component: Any, config: Mapping[str, Any], cursor_field: str | None):
        self._settings = Settings(component, config)
        self._component = component
        self.place: str = component.place
        chosen_field = cursor_field if component.allow_catalog_defined_cursor_field else None
        self.field = chosen_field or self._settings.require("cursor_field")

    @abstractmethod
    def bounds(self) -> Bounds:
        """Return what is the same for all partitions of one read: its limits, evaluated now.

        Raises:
            ConfigError: a value of the config cannot be used.
        """

    @abstractmethod
    def begin_within(self, bounds: Bounds, state: State) -> ValueProgress:
        """Return the progress of a read within some bounds.

        Args:
            bounds: the bounds.
            state: the state of the stream or of the partition.

        Raises:
            ConfigError: the state cannot be used.
        """

    @abstractmethod
    def write(self, value: Any) -> Any:
        """Return a value as it is in a state."""

    @abstractmethod
    def value_in(self, state: State) -> Any:
        """Return the value of a state; None if it has none.

        Raises:
            ConfigError: the state cannot be used.
        """

    def state_of(self, value: Any) -> dict[str, Any]:
        """Return the state with a value of `ValueProgress.value`."""
        return {self.field: self.write(value)}

    def subtract(self, value: Any, seconds: int) -> Any:
        """Return the value that is some seconds before another one; the same one if it is no time."""
        del seconds
        return value

    def begin(self, state: State) -> ValueProgress:
        return self.begin_within(self.bounds(), state)


class ValueProgress(Progress):
    """A read of a stream, or of one of its partitions, whose state is one value.

    Args:
        cursor: the cursor.
        state: the state with which the read begins.

    Attributes:
        missing: the number of records so far that have no value of the cursor field.
    """

    def __init__(self, cursor: ValueCursor[Any], state: State):
        super().__init__()
        self.missing = 0
        self._cursor = cursor
        self._saved = stream_state(state)
        self._highest: Any = None
        self._lock = threading.Lock()

    @property
    @abstractmethod
    def value(self) -> Any:
        """The value of the state, comparable with that of another partition; None if there is none."""

    @property
    @abstractmethod
    def is_advanced(self) -> bool:
        """Whether the value is another one than that of the state with which the read began."""

    def options(self, stream_slice: Slice) -> list[Option]:
        return list(options_of(self._cursor.places, stream_slice.interval))

    def finish(self) -> None:
        self.warnings.extend(warn_of_missing_values(self._cursor.field, self.missing))

    def state(self) -> dict[str, Any]:
        if not self.is_advanced:
            return dict(self._saved)
        others = {name: value for name, value in self._saved.items() if name not in _OF_INTERVALS}
        return {**others, **self._cursor.state_of(self.value)}

    def see(self, highest: Any, missing: int) -> None:
        """Take notice of the highest value of some records, None if they have none, and of the number of
        records without one."""
        with self._lock:
            self.missing += missing
            if highest is not None and (self._highest is None or highest > self._highest):
                self._highest = highest


class WholeStream(Cursor):
    """A stream without a cursor and without partitions: one slice, and no state to resume from."""

    def begin(self, state: State) -> Progress:
        del state
        return _Whole()


class ProgressWithoutCursor(Progress):
    """A read without a cursor. A read that was cut leaves no state, and is done again."""

    _is_complete = False

    def close(self, stream_slice: Slice) -> None:
        del stream_slice

    def finish(self) -> None:
        self._is_complete = True

    def is_due(self) -> bool:
        return False

    def state(self) -> dict[str, Any]:
        return {NO_CURSOR: True} if self._is_complete else {}


class _Whole(ProgressWithoutCursor):
    def slices(self, contexts: Sequence[Context] | None = None) -> Iterator[Slice]:
        if contexts is not None:
            raise ConfigError(
                "single partitions cannot be read: the stream has none",
                guidance="read the stream as a whole: leave out `partitions`",
            )
        yield Slice()


def read_slice(
    progress: Progress, stream_slice: Slice, pages: Iterable[Page]
) -> Generator[Page, None, None]:
    """Yield the records of a slice that are to be sent, page by page. The pages after the last one that is
    needed are not read."""
    with closing(_closable(pages)) as open_pages:
        for page in open_pages:
            records = progress.take(stream_slice, page)
            if records:
                yield records
            if progress.is_past(stream_slice, page):
                return


def _closable(pages: Iterable[Page]) -> Any:
    """Return an iterator with a method `close`, which ends the requests of pages that are not needed."""
    return (page for page in pages) if not hasattr(pages, "close") else pages


def stream_state(state: State) -> dict[str, Any]:
    """Return what a state has for a cursor without partitions."""
    is_partitioned = STATES in state or USE_GLOBAL in state
    names = RESERVED if is_partitioned else {NO_CURSOR}
    return {name: value for name, value in state.items() if name not in names}


def warn_of_unused_state(field: str, state: State) -> Iterator[str]:
    """Yield a warning if a state has values, and none of them is the cursor's."""
    names = [name for name in state if name not in RESERVED and name != field]
    if names:
        yield (
            f"the state has no value of the cursor field {field!r}, but {', '.join(map(repr, names))}: the "
            "stream is read from its start"
        )


def warn_of_missing_values(field: str, number: int) -> Iterator[str]:
    """Yield a warning if there were records without a value of the cursor field."""
    if number:
        yield (
            f"records without a usable value in the cursor field {field!r}: {number}; they were read, and "
            "did not move the state"
        )
