"""The items that the read of a stream yields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw

Record = dict[str, Any]
Context = dict[str, Any]
"""The values that identify a partition of a stream, by name: texts, numbers or booleans."""


class Window:
    """From where to where `Stream.records` reads, and of which partition.

    What `records` asks of it is what the source filters by. If it never asks for `start`, the SDK leaves out
    the records before it. A stream with a `step` must ask for `end`, or it would fetch the same records for
    each interval.

    Attributes:
        partition: the values that identify the partition; empty for a stream without partitions.
        parent: the values of the parent's record that the stream needs: those of its key, those in
            `Parent.fields`, and those that a path or a parameter names.
    """

    def __init__(
        self,
        start: Any = None,
        end: Any = None,
        partition: Context | None = None,
        parent: Record | None = None,
    ):
        self._start, self._end = start, end
        self.partition: Context = partition or {}
        self.parent: Record = parent or {}
        self.filters_start = self.filters_end = False

    @property
    def start(self) -> Any:
        """The value of the replication key from which to read, this value included: the text or number of the
        bookmark, or the start date. None to read from the beginning."""
        self.filters_start = True
        return self._start

    @property
    def end(self) -> Any:
        """The value before which to read; None to read to the end. The SDK leaves out records that are not
        before it, so an API may count the end in."""
        self.filters_end = True
        return self._end


Change = dict[str, str]
"""A value that the source has changed: the texts `field`, `change` and `reason`.

Spec: AirbyteRecordMessageMetaChange."""


class Document(dict[str, Any]):
    """A record with the file that it describes, which is transferred as it is.

    The file is written only if the reader asks for the files of the stream (`Stream.is_file_based`).

    Args:
        record: the record.
        path: the path of the file in the source, relative to its root, such as `2026/report.pdf`.
        content: the bytes of the file, in pieces; or all of them. It is consumed at most once, when the
            record is sent: so a generator opens the file only if it is needed.
    """

    def __init__(self, record: Record, path: str, content: Iterable[bytes] | bytes):
        super().__init__(record)
        self.path = path
        self.content = content


def complete_record(record: Record, before: Record, after: Record) -> Record:
    """Return a record with values that it lacks (`before`), and values in place of its own (`after`)."""
    merged = {**before, **record, **after}
    if isinstance(record, Document):
        return Document(merged, record.path, record.content)
    return merged


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
    `file`: the path of an Arrow stream that has its rows already, which tasks read in place of the source.
    `file_has_changes`: its last column is no field, but has the changes of the rows
    (`slice_files.put_changes_last`).
    """

    key: str
    data: Mapping[str, Any]
    rows: int | None = None
    file: str | None = None
    file_has_changes: bool = False


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


@dataclass(frozen=True)
class Measure:
    """A number that the source has measured, such as the size of a queue: it is shown beside the figures of
    the sync. `name`: as a metric is named."""

    name: str
    value: float


Item = Record | Page | Checkpoint | Estimate | Warn | Measure | Slice | Wait
