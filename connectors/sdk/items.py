"""The items that the read of a stream yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw

Record = dict[str, Any]
Context = dict[str, Any]
"""The values that identify a partition of a stream, by name: texts, numbers or booleans."""
Records = Callable[[Context | None, Any], Iterable[Record]]
"""Function that returns the records of a partition from a value of the replication key on."""


Change = dict[str, str]
"""A value that the source has changed: the texts `field`, `change` and `reason`.

Spec: AirbyteRecordMessageMetaChange."""


@dataclass(frozen=True)
class Page:
    """Several records. Each one costs less than a record that is yielded alone.

    `changes`: the values that the source has changed, by the number of the record in the page.
    """

    records: list[Record]
    changes: Mapping[int, Sequence[Change]] = field(default_factory=dict)


@dataclass(frozen=True)
class Slice:
    """A part of a stream that is read by itself: see `connectors.sdk.slices`.

    `key`: names it in logs. `data`: what its read needs, as JSON has it. `rows`: about how many it has.
    """

    key: str
    data: Mapping[str, Any]
    rows: int | None = None


class Wait:
    """A point at which the slices before it are read, and committed if a state covers them."""


@dataclass(frozen=True)
class Checkpoint:
    """A state that covers all records yielded so far: a later read from it yields only the rest. The state is
    an object, or the JSON text of one."""

    state: dict[str, Any] | Raw


@dataclass(frozen=True)
class Estimate:
    """The number of records that this read yields, as estimated by the source."""

    rows: int


@dataclass(frozen=True)
class Warn:
    """A line for the log, at level WARN."""

    text: str


Item = Record | Page | Checkpoint | Estimate | Warn | Slice | Wait
