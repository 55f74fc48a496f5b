"""A source whose stream has slices, with one of the defects that its config names, or with none.

What its slices need is there while the file `open` is in the `folder` of the config.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors.sdk import Checkpoint, Slice, SlicedStream, Wait, run
from connectors.sdk.items import Item
from connectors.sdk.slices import Part
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream
from tests.programs.simple_source import SimpleSource

SLICES, ROWS = 2, 2
ELSEWHERE, AGAIN = "slices-are-read-elsewhere", "slices-are-read-again-alike"
SAME, STATES = "slices-have-the-same-records", "slices-and-records-share-states"
WAITS = "waits-end-when-slices-are-read"
DEFECTS: Mapping[str, set[str]] = {
    "none": set(),
    "memory": {ELSEWHERE, SAME, STATES},
    "early_close": {ELSEWHERE, SAME, STATES},
    "leftovers": {AGAIN},
    "lost_row": {SAME, STATES},
    "refusal": {SAME},
    "late_state": {STATES},
    "other_state": {STATES},
    "haste": {WAITS},
}
"""The rules about slices that each defect violates."""


class Numbers(SlicedStream):
    name = "numbers"
    primary_key = ("id",)
    json_schema = {"type": "object", "properties": {"id": {"type": "integer"}}}  # noqa: RUF012 - as the SDK has it
    supported_sync_modes = (FULL_REFRESH, INCREMENTAL)
    source_defined_cursor = True

    def __init__(self, config: Mapping[str, Any]):
        self._defect = config["defect"]
        self._open = Path(config["folder"], "open")
        self._is_ready = False
        self._last = -1

    def slices(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Part]:
        if self._defect == "refusal":
            raise ValueError("slices are refused")
        if self._defect == "haste":  # the next lines on stdin are there at once
            sys.stdin = io.TextIOWrapper(io.BytesIO(b"\n\n"))
        yield from self._parts(state)

    def _parts(self, state: dict[str, Any] | None) -> Iterator[Part]:
        self._is_ready = True
        self._open.touch()
        for number in range(0 if state is None else state["done"], SLICES):
            yield Slice(f"number {number}", {"number": number})
            late = self._defect == "late_state" and number == 0
            yield Checkpoint({"done": number + 1 + late})
        if self._defect != "early_close":
            yield Wait()
        if self._defect != "haste":
            self._open.unlink()

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        if self._defect == "other_state" and state is not None:
            state = {"done": max(state["done"] - 1, 0)}
        for part in self._parts(state):
            if isinstance(part, Slice):
                for n in self._numbers(part.data["number"]):
                    yield {"id": n}
            elif isinstance(part, Checkpoint):
                yield part

    def read_slice(self, data: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        number = data["number"]
        if not (self._is_ready or self._defect != "memory") or not self._open.exists():
            raise RuntimeError("it is not open")
        rows = self._numbers(number)
        if self._defect == "lost_row" and number == 1:
            rows = rows[1:]
        if self._defect == "leftovers" and number < self._last:
            rows = []
        self._last = number
        yield pa.RecordBatch.from_pydict({"id": rows})

    def _numbers(self, number: int) -> list[int]:
        return [*range(number * ROWS, (number + 1) * ROWS)]


class Sliced(SimpleSource):
    name = "numbers"

    def streams(self, config: Mapping[str, Any]) -> list[Any]:
        return [Numbers(config)]


if __name__ == "__main__":
    sys.exit(run(Sliced(), sys.argv[1:]))
