"""A source whose stream has slices: `python -m tests.programs.sliced_source VERB …`.

`slices`, `rows`: the number of slices, and of the rows of each; `estimate`: what it says of them. `fails_at`:
a slice that cannot be read while there is no file `failed`, which is made then; with `dies` its process is
killed: 1 is that of the worker, 3 that of the executor, two parents above. `odd`: whether some rows have
values that no column holds. `files`: the rows of each slice are in a file, which tasks read. `raises`: the
error of each slice, whose texts have the `password`.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors.sdk import Checkpoint, Slice, SlicedStream, Wait, run
from connectors.sdk.arrow_records import report_changes
from connectors.sdk.slice_files import find_slice_folder, put_changes_last
from connectors.sdk.slices import Part
from elt_assets.errors import ConfigError, TransientError
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream
from tests.programs.simple_source import SimpleSource

UTC = pa.timestamp("us", "UTC")
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "id": (pa.int32(), {"type": ["integer", "null"]}),
    "text": (pa.string(), {"type": ["string", "null"]}),
    "number": (pa.float64(), {"type": ["number", "null"]}),
    "amount": (pa.decimal128(12, 2), {"type": ["number", "null"], "airbyte_type": "big_number"}),
    "day": (pa.date32(), {"type": ["string", "null"], "format": "date"}),
    "at": (pa.timestamp("ms", "UTC"), {"type": ["string", "null"], "format": "date-time"}),
    "flag": (pa.bool_(), {"type": ["boolean", "null"]}),
    "body": (pa.string(), {}),
    "data": (pa.binary(), {"type": ["string", "null"], "contentEncoding": "base64"}),
    "_elt_changes": (pa.string(), {"type": ["string", "null"]}),
}


class Numbers(SlicedStream):
    name = "numbers"
    primary_key = ("id",)
    json_schema = {  # noqa: RUF012 - as the SDK has it
        "type": "object",
        "properties": {name: declared for name, (_, declared) in TYPES.items()},
    }
    supported_sync_modes = (FULL_REFRESH, INCREMENTAL)
    source_defined_cursor = True
    is_resumable = True

    def __init__(self, config: Mapping[str, Any]):
        self._config = config

    def slices(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Part]:
        del configured
        done = 0 if state is None else int(state["done"])
        for number in range(done, self._config["slices"]):
            data = {"number": number}
            estimate, file = self._config.get("estimate"), self._write(data)
            yield Slice(f"number {number}", data, estimate, file, file_has_changes=True)
            yield Checkpoint({"done": number + 1})
        yield Wait()

    def _write(self, data: Mapping[str, Any]) -> str | None:
        folder = find_slice_folder()
        if folder is None or not self._config.get("files"):
            return None
        path = str(folder / f"{data['number']}.arrow")
        batches = list(map(put_changes_last, self.read_slice(data)))
        with pa.ipc.new_stream(path, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return path

    def read_slice(self, data: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        number = data["number"]
        if "raises" in self._config:
            _fail(self._config["raises"], self._config["password"])
        if number == self._config.get("fails_at"):
            failed = Path(self._config["failed"])
            if not failed.exists():
                failed.touch()
                if self._config.get("dies"):
                    os.kill(_find_parent(self._config["dies"] - 1), signal.SIGKILL)
                raise TransientError("the source is away", guidance="wait")
        count = int(self._config["rows"])
        rows = [self._row(n) for n in range(number * count, (number + 1) * count)]
        types = [kind for kind, _ in TYPES.values()]
        arrays = [
            pa.array([row[name] for row in rows], kind)
            for name, kind in zip(TYPES, types, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(TYPES))
        yield self._make_odd(batch) if self._config.get("odd") and number % 2 else batch

    def _row(self, n: int) -> dict[str, Any]:
        if self._config.get("odd") and n % 7 == 3:
            return {**dict.fromkeys(TYPES), "text": f"without a key {n}"}
        return {
            "id": n,
            "text": f"text {n} é",
            "number": n / 8,
            "amount": Decimal(n) / 4 if n % 4 else None,
            "day": dt.date(1, 1, 1) + dt.timedelta(days=n),
            "at": dt.datetime(2024, 2, 29, 23, 59, 59, n % 1000 * 1000, dt.timezone.utc),
            "flag": bool(n % 2),
            "body": f'{{"a": 1.10, "n": {n}}}' if n % 3 else f"[{n}]",
            "data": b"\0\xff" * (n % 3),
            "_elt_changes": f"a column that is called so {n}",
        }

    def _make_odd(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with values that no column holds, a field that is not declared, and a change."""
        numbers = pa.array([float("nan")] * len(batch), pa.float64())
        batch = batch.set_column(2, "number", numbers)
        batch = batch.append_column("more", pa.array(["undeclared"] * len(batch)))
        change = {"field": "amount", "change": "NULLED", "reason": "SOURCE_SERIALIZATION_ERROR"}
        lists = [[change] if row == 1 else [] for row in range(len(batch))]
        kind = pa.list_(pa.struct([(name, pa.string()) for name in change]))
        return report_changes(batch, pa.array(lists, kind))


class UnknownError(Exception):
    """An error of a library."""


def _fail(kind: str, password: str) -> None:
    if kind == "known":
        raise ConfigError(f"no login with {password}", guidance=password, detail=f"a\n{password}")
    if kind == "exit":
        sys.exit(f"no login with {password}")
    try:
        dict[str, str]()[password]
    except KeyError as cause:
        raise UnknownError(f"no login with {password}") from cause


def _find_parent(distance: int) -> int:
    """Return the id of a process above this one."""
    process = os.getpid()
    for _ in range(distance):
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process


class Sliced(SimpleSource):
    name = "numbers"

    def streams(self, config: Mapping[str, Any]) -> list[Any]:
        return [Numbers(config)]


if __name__ == "__main__":
    sys.exit(run(Sliced(), sys.argv[1:]))
