"""The program that reads slices as a task does: it knows the config, and the data of the slices.

`python -m connectors.testing.slice_reading FILE` prints one line for each slice that FILE names.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from connectors.sdk.slices import SliceReader

_LINES = msgspec.json.Decoder()


class SliceToRead(msgspec.Struct):
    """A slice, of a stream as it is configured."""

    configured: Raw
    data: Raw
    file: str | None = None
    file_has_changes: bool = False


class SlicesToRead(msgspec.Struct):
    """The contents of the file. `module`: that of the connector."""

    config: Raw
    slices: list[SliceToRead]
    module: str


class SliceRecords(msgspec.Struct):
    """A line of the output: the records of a slice, or why it cannot be read."""

    records: list[Any] = []
    error: str | None = None


def main(path: Path) -> None:
    """Read the slices that a file names."""
    task = msgspec.json.decode(path.read_bytes(), type=SlicesToRead)
    readers: dict[bytes, SliceReader] = {}
    for part in task.slices:
        key = bytes(part.configured)
        if key not in readers:
            readers[key] = SliceReader(task.module, bytes(task.config), key)
        print(msgspec.json.encode(_read(readers[key], part)).decode(), flush=True)


def _read(reader: SliceReader, part: SliceToRead) -> SliceRecords:
    records = []
    try:
        batches = (
            reader.read(bytes(part.data))
            if part.file is None
            else reader.read_file(part.file, has_changes=part.file_has_changes)
        )
        for batch in batches:
            lines = reader.write_lines(batch, 0)
            records += [line["data"] for line in _LINES.decode_lines(lines)]
    except Exception as error:  # noqa: BLE001 - the kit reports it
        return SliceRecords(error=f"{type(error).__name__}: {error}")
    return SliceRecords(records)


def list_arguments(path: Path) -> Sequence[str]:
    """Return the command of this program."""
    return [sys.executable, "-m", __name__, str(path)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
