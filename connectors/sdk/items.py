"""The items that the read of a stream yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from msgspec import Raw

Record = dict[str, Any]
Context = dict[str, Any]
"""The values that identify a partition of a stream, by name: texts, numbers or booleans."""
Records = Callable[[Context | None, Any], Iterable[Record]]
"""Function that returns the records of a partition from a value of the replication key on."""


@dataclass(frozen=True)
class Page:
    """Several records. Each one costs less than a record that is yielded alone."""

    records: list[Record]


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


Item = Record | Page | Checkpoint | Estimate | Warn
