"""What a format of files must do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa

from connectors.sdk.files.read_files import FileVersion
from connectors.sdk.files.rows import FileRows
from connectors.sdk.files.schema import ColumnShape, Shapes
from connectors.sdk.files.storage import Storage
from connectors.sdk.output import encode_record

PART_BYTES = 64 << 20
"""About the bytes of a file that are read as one part, where a file can be divided."""
SAMPLE_BYTES = 1 << 20
"""Bytes of a file that are sampled."""
SAMPLE_ROWS = 10_000
"""Maximum number of rows of a file that are sampled."""
_BATCH_ROWS = 10_000
_ROW_BYTES = 200


@dataclass(frozen=True)
class FilePart:
    """A part of a file that is read by itself.

    `first`, `end`: which part, as its format has it; None for the whole file. `rows`: about how many it has.
    """

    rows: int
    first: int | None = None
    end: int | None = None

    @property
    def bounds(self) -> tuple[int, int] | None:
        return None if self.first is None or self.end is None else (self.first, self.end)


class FileFormat(Protocol):
    """A format."""

    @property
    def mixed(self) -> str:
        """The type of a column whose values have several."""

    def sample(self, storage: Storage, file: FileVersion) -> Shapes:
        """Return the columns of the beginning of a file."""

    def split(self, storage: Storage, file: FileVersion) -> Sequence[FilePart]:
        """Return the parts of a file."""

    def read(
        self, storage: Storage, rows: FileRows, part: FilePart, kinds: Mapping[str, str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, with the columns of the file.

        Args:
            kinds: the types of the columns, by their names.
        """


def estimate_rows(file: FileVersion, row_bytes: int, compressed: Any) -> int:
    """Return about how many rows a file has. `compressed`: whether it is."""
    return max(1, file.size * (5 if compressed else 1) // row_bytes)


class RecordFormat(ABC):
    """A format whose files are read as a whole.

    Attributes:
        compression: as in a config: `auto` for that of the name, `none`, or its name.
    """

    compression = "auto"
    mixed = "json"

    @abstractmethod
    def records(self, content: Any) -> Iterable[Mapping[str, Any]]:
        """Yield the records of a file.

        Args:
            content: the decompressed bytes, as an open file that is read forward.

        Raises:
            EltError: the file cannot be read; its class names who must act.
        """

    def sample(self, storage: Storage, file: FileVersion) -> Shapes:
        root = ColumnShape()
        with storage.open_stream(file, self.compression) as content:
            for record in islice(self.records(content), SAMPLE_ROWS):
                root.add(dict(record))
        return root.fields

    def split(self, storage: Storage, file: FileVersion) -> Sequence[FilePart]:
        del storage
        return [FilePart(estimate_rows(file, _ROW_BYTES, compressed=False))]

    def read(
        self, storage: Storage, rows: FileRows, part: FilePart, kinds: Mapping[str, str]
    ) -> Iterator[pa.RecordBatch]:
        del part, kinds
        with storage.open_stream(rows.file, self.compression) as content:
            records = iter(self.records(content))
            while some := list(islice(records, _BATCH_ROWS)):
                yield rows.make_records([encode_record(dict(record)) for record in some])
