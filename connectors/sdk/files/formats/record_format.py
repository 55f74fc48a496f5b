"""The base class of formats of an author's own: a file becomes records, one after another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from connectors.sdk.files.formats.file_format import SAMPLE_ROWS, FilePart, estimate_rows
from connectors.sdk.files.read_files import FileVersion
from connectors.sdk.files.rows import FileRows
from connectors.sdk.files.schema import ColumnShape, Shapes
from connectors.sdk.files.storage import Storage
from connectors.sdk.output import encode_record

_BATCH_ROWS = 10_000
_ROW_BYTES = 200


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
