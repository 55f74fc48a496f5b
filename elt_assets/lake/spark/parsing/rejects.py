"""The rows of rejected records in the dead letter: the record as received, and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw

from elt_assets.lake.spark.parsing.envelopes import envelope_of
from elt_assets.lake.spark.parsing.job import Job, Part
from elt_assets.lake.spark.types.fields import DECODING_ERRORS
from elt_assets.protocol.airbyte.recovery.texts import read


class RejectedRecords:
    """Makes the rows of rejected records from lines of one part."""

    def __init__(self, job: Job, part: Part):
        self._job, self._part = job, part
        self._envelope = envelope_of(part)
        self._decode = msgspec.json.Decoder(self._envelope.type_of(Raw)).decode

    def batch(
        self, block: bytes, numbers: np.ndarray, reasons: Mapping[int, str]
    ) -> pa.RecordBatch:
        """Return the rows of the lines of a block that have a reason, by their position."""
        lines, dead = block.split(b"\n"), self._job.dead_letter
        rows = [
            {"reason": reasons[n], **self._row(lines[n], numbers[n : n + 1]), **dead.values}
            for n in sorted(reasons)
        ]
        return pa.RecordBatch.from_pylist(rows, dead.schema)

    def _row(self, line: bytes, number: np.ndarray) -> dict[str, Any]:
        whole, data = self._received(line)
        if whole is None:
            place = int(self._part.first + number[0] - self._part.line)
            return {"record": line.decode("utf-8", "replace"), "place": place}
        head = self._envelope.head([whole], number, self._part)
        place, (meta,) = int(head.sequence[0]), head.metas
        is_object = data[:1] == b"{"
        return {
            "record": data.decode("utf-8", "replace"),
            "place": place,
            "row_id": f"{self._job.stamp[0]}{place:012x}"
            if head.row_ids is None
            else head.row_ids[0] or None,
            "extracted_at": int(head.at[0]) * 1000 if is_object else None,
            "meta": bytes(meta).decode("utf-8", "replace") if meta and is_object else None,
        }

    def _received(self, line: bytes) -> tuple[Any, bytes]:
        """Return a decoded line and its data as received; None if the line is not JSON besides its texts."""
        try:
            whole = read(self._decode, line)
        except DECODING_ERRORS:
            return None, b""
        return whole, bytes(self._envelope.data(whole))
