"""What `compare` asks of a stream and what a stream answers; keys and columns that a `read` is narrowed to.

`connectors.sdk.airbyte.commands` reads the request of a configured stream and sends the answer of
`Stream.compare`. The ranges are in the order of the key, without a gap, and of one snapshot with `position`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.protocol.messages import COLUMNS, COMPARE, KEYS, Key


class KeyBounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A range of keys: those that are greater than `after`, up to `until` with it."""

    after: Key | None = None
    until: Key | None = None


class ComparisonRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked of a stream.

    Attributes:
        columns: the columns that are hashed besides the key; None for all that can be.
        rows: the number of rows in a range.
        ranges: those of which the keys are asked for; None for sums of all ranges.
        settled: rows whose cursor, a time, is younger than so many seconds are left out.
    """

    columns: list[str] | None = None
    rows: int = 1000
    ranges: list[KeyBounds] | None = None
    settled: float = 0


@dataclass(frozen=True)
class Limit:
    """Which rows are counted, by the cursor: those up to a value, with it unless `is_open`."""

    cursor: str
    until: Any
    is_open: bool = False


@dataclass(frozen=True)
class ComparedTable:
    """What is said of a stream first. The fields are those of `Comparison` in `elt_assets.protocol.messages`.

    `key`, `columns`: the types by name, in the order of the hash.
    """

    key: Mapping[str, str]
    columns: Mapping[str, str]
    left_out: Mapping[str, str]
    position: Any = None
    cursor: str | None = None
    limit: Limit | None = None


@dataclass(frozen=True)
class ComparedRange:
    """The rows of a range: how many, and the sum of their hashes. `keys`: as in `KeyRange`."""

    bounds: KeyBounds
    rows: int
    hash: int
    keys: Sequence[tuple[Key, str, Any]] | None = None


Answer = Iterator[ComparedTable | ComparedRange]
T = TypeVar("T")


def find_request(configured: ConfiguredStream) -> ComparisonRequest:
    """Return what `compare` is asked of a stream.

    Raises:
        ConfigError: that is not of the form.
    """
    request = _decode(configured, COMPARE, ComparisonRequest) or ComparisonRequest()
    if request.rows < 1:
        raise ConfigError(
            f"`{COMPARE}` of stream {str(configured.id)!r} asks for ranges of {request.rows} rows",
            guidance="write a number of at least 1 as `rows`",
        )
    return request


def find_keys(configured: ConfiguredStream) -> list[Key] | None:
    """Return the keys of the only rows that a read is asked for; None for all rows.

    Raises:
        ConfigError: they are not of the form, or have other columns than the stream's key.
    """
    keys = _decode(configured, KEYS, list[Key])
    count = len(configured.key)
    if keys and count and any(len(key) != count for key in keys):
        raise ConfigError(
            f"`{KEYS}` of stream {str(configured.id)!r} has keys that are not of its {count} columns",
            guidance="write each key as a list of the values of the key's columns, in their order",
        )
    return keys


def find_columns(configured: ConfiguredStream) -> list[str] | None:
    """Return the columns that a read is asked for besides the key; None for all.

    Raises:
        ConfigError: they are not of the form.
    """
    return _decode(configured, COLUMNS, list[str])


def is_narrowed(configured: ConfiguredStream) -> bool:
    """Return whether a read is asked for some keys or columns alone. It has no state."""
    return find_keys(configured) is not None or find_columns(configured) is not None


def _decode(configured: ConfiguredStream, name: str, form: type[T]) -> T | None:
    try:
        return msgspec.json.decode(configured.extra.get(name) or b"null", type=form | None)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"`{name}` of stream {str(configured.id)!r} is not of its form: {error}",
            guidance="docs/trust.md has the form of requests",
        ) from error
