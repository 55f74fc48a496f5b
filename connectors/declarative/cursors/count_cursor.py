"""IncrementingCountCursor: incremental reads by a number that only grows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from connectors.declarative.cursors.cursor import Page, State, ValueCursor, ValueProgress
from connectors.declarative.cursors.slices import Slice, place_if_any
from connectors.declarative.manifest import components
from connectors.sdk.items import Context
from elt_assets.errors import ConfigError


class CountCursor(ValueCursor[int]):
    """The cursor that an IncrementingCountCursor describes. The arguments are those of `ValueCursor`.

    Raises:
        ConfigError: the component, or a value of the config that it uses, is not valid.
    """

    names = ("start",)

    def __init__(
        self,
        component: components.IncrementingCountCursor,
        config: Mapping[str, Any],
        cursor_field: str | None = None,
    ):
        super().__init__(component, config, cursor_field)
        self.places = {"start": place_if_any(component.start_value_option, config)}

    def bounds(self) -> int:
        text = self._settings.text("start_value") or "0"
        start = count_of(text)
        if start is None:
            raise ConfigError(
                f"{self._settings.place('start_value')} gives {text!r}, which is not a whole number",
                guidance="correct the value",
            )
        return start

    def begin_within(self, bounds: int, state: State) -> CountProgress:
        return CountProgress(self, bounds, state)

    def write(self, value: int) -> int:
        return value

    def value_in(self, state: State) -> int | None:
        saved = self._find_saved_value(state)
        number = count_of(saved)
        if number is None and saved is not None:
            raise ConfigError(
                f"the state of the cursor {self.field!r} has {saved!r}, which is not a whole number "
                f"({self.place})",
                guidance="correct the state, or reset it to read the stream from the beginning",
            )
        return number

    def _find_saved_value(self, state: State) -> Any:
        """Return the value of a state as it is written there, in the form of either kind of cursor."""
        covered = state.get("slices") if "state_type" in state else None
        if covered and isinstance(covered[0], Mapping):
            return covered[0].get("most_recent_cursor_value") or covered[0].get("end")
        return state.get(self.field)


class CountProgress(ValueProgress):
    """One read of a stream or partition with a CountCursor."""

    is_advanced = False

    def __init__(self, cursor: CountCursor, start: int, state: State):
        super().__init__(cursor, state)
        self._before = cursor.value_in(self._saved)
        self._start = start if self._before is None else max(start, self._before)

    def slices(self, contexts: Sequence[Context] | None = None) -> Iterator[Slice]:
        if contexts is not None:
            raise ConfigError(
                "single intervals cannot be read: the stream has none",
                guidance="read the stream as a whole: leave out `partitions`",
            )
        yield Slice(interval={"start": self._start})

    def take(self, stream_slice: Slice, page: Page) -> Page:
        numbers = [count_of(record.get(self._cursor.field)) for record in page]
        counts = [count for count in numbers if count is not None]
        self.see(max(counts, default=None), len(numbers) - len(counts))
        return page

    def close(self, stream_slice: Slice) -> None:
        self.is_advanced = True

    @property
    def value(self) -> int | None:
        if not self.is_advanced:
            return self._before
        return self._start if self._highest is None else max(self._start, self._highest)


def count_of(value: Any) -> int | None:
    """Return a number, or a text that is one, as a whole number; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if isinstance(value, str) or number == value else None
