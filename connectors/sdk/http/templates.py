"""Placeholders in the path, the parameters, the headers and the body of a stream's requests.

| placeholder | value |
|---|---|
| `{start}`, `{end}` | those of the window |
| `{name}` | the value of the partition of this name |
| `{stores.id}` | the value of a field of the record of the parent `stores` |

A time has another form than that of the bookmark with `{start:%Y-%m-%d}`, in UTC, or as the number of
seconds, `{start:epoch}`, or milliseconds, `{start:epoch_ms}`. Where the form is coarser than the value, the
start is rounded down and the end up, so that no record is outside of what is requested.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from connectors.sdk.http.urls import text
from connectors.sdk.items import Window
from connectors.sdk.times import moment
from elt_assets.errors import SystemFailure

MISSING = object()
"""Value of a text with a placeholder whose value is None: it is left out."""
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.\-]*)(?::([^{}]*))?\}")
_UNUSABLE = ("", ".", "..")
"""Texts that change the meaning of a path, if they stand alone between two slashes."""
_TIMES = ("start", "end")
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - all times here are in UTC
_PICOSECONDS = 10**12
_UNITS = {"epoch": _PICOSECONDS, "epoch_ms": 10**9}


class Values:
    """The values of placeholders in the requests for a window.

    Args:
        window: the window. That a placeholder names its start or its end shows that the API filters by it.
        parent: the name of the parent; None for a stream without one.
    """

    def __init__(self, window: Window, parent: str | None):
        self._window = window
        self._parent = parent

    def has(self, name: str) -> bool:
        """Return whether there is such a value."""
        parent, _, _ = name.partition(".")
        return name in _TIMES or name in self._window.partition or parent == self._parent

    def find(self, name: str, form: str | None) -> Any:
        """Return a value. `form`: the format of a time, such as `%Y-%m-%d`; None to leave it as it is."""
        if name == "start":
            return _write_time(self._window.start, form, rounds_up=False)
        if name == "end":
            return _write_time(self._window.end, form, rounds_up=True)
        if name in self._window.partition:
            return self._window.partition[name]
        return self._window.parent.get(name.partition(".")[2])


def list_names(template: Any) -> Iterator[str]:
    """Yield the names of the placeholders in a value of JSON."""
    if isinstance(template, str):
        yield from (match[1] for match in _PLACEHOLDER.finditer(template))
    elif isinstance(template, Mapping):
        for inner in template.values():
            yield from list_names(inner)
    elif isinstance(template, list | tuple):
        for inner in template:
            yield from list_names(inner)


def fill(template: Any, values: Values, *, is_text: bool = False) -> Any:
    """Return a value of JSON with the values of its placeholders. A text with a placeholder whose value
    is None is left out of its object or list; alone, it is MISSING.

    Args:
        template: the value.
        values: the values.
        is_text: whether the texts are of another language than this one, such as GraphQL, where braces have a
            meaning: only a text that is nothing but a placeholder must then have a value.

    Raises:
        SystemFailure: there is no value of a name.
    """
    if isinstance(template, Mapping):
        filled = {name: fill(inner, values, is_text=is_text) for name, inner in template.items()}
        return {name: value for name, value in filled.items() if value is not MISSING}
    if isinstance(template, list | tuple):
        parts = [fill(inner, values, is_text=is_text) for inner in template]
        return [value for value in parts if value is not MISSING]
    if not isinstance(template, str):
        return template
    whole = _PLACEHOLDER.fullmatch(template)
    if whole is not None:
        value = _find(template, whole, values)
        return MISSING if value is None else value
    named = [
        m
        for m in _PLACEHOLDER.finditer(template)
        if not is_text or (values.has(m[1]) and _has_form(m))
    ]
    filled_values = {match[0]: _find(template, match, values) for match in named}
    if None in filled_values.values():
        return MISSING
    return _replace(
        template, lambda m: text(filled_values[m[0]]) if m[0] in filled_values else m[0]
    )


def fill_path(path: str, values: Values) -> str:
    """Return a path with the values of its placeholders.

    Raises:
        SystemFailure: there is no value of a name, or one that cannot stand in a path.
    """

    def segment(match: re.Match[str]) -> str:
        value = _find(path, match, values)
        part = "" if value is None else text(value)
        if part in _UNUSABLE:
            raise SystemFailure(
                f"the path {path!r} cannot be filled: the value of {match[1]!r} is {value!r}",
                guidance="a partition, or the record of the parent, must have a value of this name",
            )
        return quote(part, safe="")

    return _replace(path, segment)


def _replace(template: str, write: Callable[[re.Match[str]], str]) -> str:
    return _PLACEHOLDER.sub(write, template)


def _find(template: str, match: re.Match[str], values: Values) -> Any:
    name, form = match[1], match[2]
    if not values.has(name):
        raise SystemFailure(
            f"{template!r} cannot be filled: there is no value of the name {name!r}",
            guidance="write {start}, {end}, the name of a value of the partition, or the names of the parent "
            "and of its field, as in {stores.id}",
        )
    if not _has_form(match):
        raise SystemFailure(
            f"{template!r} cannot be filled: there is no form {form!r} of {name!r}",
            guidance="write a form of {start} or {end} as {start:%Y-%m-%d}, {start:epoch} for seconds, or "
            "{start:epoch_ms}; other values have none",
        )
    return values.find(name, form)


def _has_form(match: re.Match[str]) -> bool:
    """Return whether a placeholder has a form that there is, or none."""
    name, form = match[1], match[2]
    return form is None or (name in _TIMES and (form in _UNITS or "%" in form))


def _write_time(value: Any, form: str | None, *, rounds_up: bool) -> Any:
    if form is None or value is None:
        return value
    picoseconds = moment(value)
    if picoseconds is None:
        raise SystemFailure(
            f"the value {value!r} of the replication key is no time, and cannot be written as {form!r}",
            guidance="leave out the form of the placeholder",
        )
    if form in _UNITS:
        return -(-picoseconds // _UNITS[form]) if rounds_up else picoseconds // _UNITS[form]
    microseconds, rest = divmod(picoseconds, 10**6)
    time = _EPOCH + timedelta(microseconds=microseconds)
    if not rounds_up:
        return time.strftime(form)
    return _write_rounded(time + timedelta(microseconds=1) if rest else time, form)


def _write_rounded(time: datetime, form: str) -> str:
    """Return the first time at or after another one that a form can write."""
    for candidate in _round_up(time):
        rounded = candidate.strftime(form)
        try:
            if datetime.strptime(rounded, form) == candidate:  # noqa: DTZ007 - in UTC
                return rounded
        except ValueError:
            break
    return time.strftime(form)


def _round_up(time: datetime) -> Iterator[datetime]:
    """Yield a time, and the beginnings of the next second, minute, hour, day, month and year."""
    yield time
    for unit in (timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)):
        past = (time - _EPOCH) % unit
        time = time + unit - past if past else time
        yield time
    if time.day > 1:
        time = (time.replace(day=1) + timedelta(days=31)).replace(day=1)
    yield time
    yield time if time.month == 1 else time.replace(year=time.year + 1, month=1)
