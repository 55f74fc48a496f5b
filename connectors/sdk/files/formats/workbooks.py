"""Reading of a sheet of a workbook, in a process whose memory is limited: see `workbook_program`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import msgspec

from connectors.sdk.files.read_files import FileVersion
from connectors.sdk.files.rows import make_file_error
from connectors.sdk.files.storage import Storage
from elt_assets.errors import ConfigError

_PROGRAM = Path(__file__).with_name("workbook_program.py")
_LENGTH_BYTES = 4
_CHUNK = 4 << 20


def read_sheet(
    storage: Storage, file: FileVersion, sheet: str | int, skip_rows: int
) -> Iterator[Sequence[Any]]:
    """Yield the rows of a sheet. A time, or an error, is a list of its type and its text.

    Raises:
        ConfigError: it is no workbook, has no such sheet, or takes too much memory.
    """
    if find_spec("python_calamine") is None:
        raise ConfigError(
            "workbooks cannot be read: python-calamine is not installed",
            guidance='run `pip install "elt-assets[excel]"`, also on the machines of a cluster',
        )
    if file.size > storage.megabytes << 20:
        raise MemoryError
    options = {"sheet": sheet, "skip_rows": skip_rows, "megabytes": storage.megabytes}
    with _start() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(options).encode() + b"\n")
            with storage.open_file(file) as source:
                while chunk := source.read(_CHUNK):
                    process.stdin.write(chunk)
            process.stdin.close()
        with closing(_read_answers(process.stdout, storage.megabytes << 20)) as answers:
            for answer in answers:
                yield from _read_rows(file, sheet, answer)


def _read_rows(file: FileVersion, sheet: str | int, answer: Any) -> Sequence[Sequence[Any]]:
    if "problem" in answer:
        raise make_file_error(file, answer["problem"], "replace it, or exclude it")
    if "sheets" in answer:
        names = ", ".join(answer["sheets"])
        raise make_file_error(
            file, f"it has no sheet {sheet!r}, only {names}", "correct `excel.sheet`"
        )
    rows: Sequence[Sequence[Any]] = answer["rows"]
    return rows


@contextmanager
def _start() -> Iterator[subprocess.Popen[bytes]]:
    """Start the program; it ends with the context."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, str(_PROGRAM)], **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def _read_answers(output: IO[bytes], most: int) -> Generator[Any, None, None]:
    """Yield the answers of the program.

    Raises:
        MemoryError: the program ended before it had read the sheet, which it does if it gets no memory.
    """
    while True:
        length = int.from_bytes(head := output.read(_LENGTH_BYTES), "big")
        if len(head) < _LENGTH_BYTES or length > most:
            raise MemoryError
        if not length:
            return
        data = output.read(length)
        if len(data) < length:
            raise MemoryError
        yield msgspec.msgpack.decode(data)
