"""The rows of rejected records in the dead letter: the record as received, and the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw

from elt_assets.lake.spark.parsing.envelopes import envelope_of
from elt_assets.lake.spark.parsing.job import Job, Part
from elt_assets.lake.spark.types.decoders import DECODING_ERRORS

_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_CONTROLS = bytes.maketrans(bytes(range(32)), b" " * 32)


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
        """Return a decoded line and its data as received; None if the decoder refuses the line.

        What the decoder refuses in texts is covered first, by as many characters, so that the data has the
        same place.
        """
        try:
            whole = self._decode(line)
            return whole, bytes(self._envelope.data(whole))
        except DECODING_ERRORS:
            covered = _ESCAPES.sub(lambda found: b"x" * 6 if found[1] else found[0], line)
            covered = covered.translate(_CONTROLS)
        try:
            whole = self._decode(covered)
            data = bytes(self._envelope.data(whole))
            start = covered.find(data)
            return whole, line[start : start + len(data)]
        except DECODING_ERRORS:
            return None, b""
