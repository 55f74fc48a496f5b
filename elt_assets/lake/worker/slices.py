"""A task that reads a slice of a stream from its source, and writes its rows as the tasks of segments do.

`write.parsing` runs it; `pipeline.connection_read` names the reader (`SliceSource`), which `write.writer`
passes on.

The readers of slices are those of the source: a worker needs its package. Which program that is comes from
the connection, and never from a message of the connector.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from elt_assets.lake.worker.job import ParseJob, ParseResult
from elt_assets.lake.worker.lines import Plain, as_plain, open_writers, write_rows
from elt_assets.lake.worker.parquet import discard_on_error
from elt_assets.lake.worker.slice_batches import BatchConverter
from elt_assets.storage.staging import StagedFiles

POSITIONS = 1 << 28
"""The number of positions in its stream that a slice has."""
MAX_SLICES = 1 << 20
"""Maximum number of slices of a stream in a sync: the id of a row has 48 bits for its position."""
_MAX_ROWS = 1 << 16
"""Maximum rows of a batch that are converted at a time."""
Failure = tuple[str, str, "str | None", "str | None"]
"""An error of the source: its class, its message, its guidance and its detail."""


class Reader(Protocol):
    """Reads the slices of one stream."""

    def read(self, data: bytes) -> Iterator[pa.RecordBatch]:
        """Return the rows of a slice."""

    def read_file(self, file: Any, *, has_changes: bool) -> Iterator[pa.RecordBatch]:
        """Return the rows of the file of a slice. `has_changes`: its last column has the changes."""

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch | None, pa.Array | None]:
        """Return the fields of a batch, None if its rows are in JSON; and its changes, if it has some."""

    def write_lines(self, batch: pa.RecordBatch, emitted_at: int) -> bytes:
        """Return the rows of a batch as lines of JSON, in the form ROWS."""


_SDK = "connectors.sdk.slices"
"""The module with `SliceReader`. It is imported by name: it belongs to the source, and not to the lake."""
_INSTALL = (
    "install this project, with what the source needs, on the executors, which do not search the working "
    "directory; or write `slices: false`"
)
_SAFE_PROCESS = "ELT_SAFE_PROCESS"
"""A variable with the id of the process that has left its working directory. A worker runs many tasks, and
PYTHONPATH may name that directory too, so only the first task leaves it; children leave theirs."""
_MAX_TEXT, _MAX_STACK = 4_000, 40_000
"""Maximum characters of a text of an error, and of a stack trace. The driver masks what is cut, too."""


@dataclass(frozen=True)
class SliceSource:
    """What tasks need to read slices of a stream."""

    module: str  # the module of the program that is the source
    config: bytes = field(repr=False)  # its config, as JSON; it has secrets
    configured: bytes  # the configured stream, as JSON
    folder: Path  # where the source puts files of slices, on the machine of the driver

    def open(self) -> Reader:
        """Return the reader of the stream."""
        leave_working_directory()
        made: Reader = import_module(_SDK).SliceReader(self.module, self.config, self.configured)
        return made


def leave_working_directory() -> None:
    """Remove the working directory from the places in which this worker searches for modules.

    `python -m`, with which Spark starts workers, puts it first. A file that a connector, or anyone else,
    writes there would be imported in place of a module with its name. The sessions of this project set
    PYTHONSAFEPATH for it, which Python knows from version 3.11 on; sessions of others need not.
    """
    process = str(os.getpid())
    if getattr(sys.flags, "safe_path", False) or os.environ.get(_SAFE_PROCESS) == process:
        return
    os.environ[_SAFE_PROCESS] = process
    if sys.path and sys.path[0] in ("", str(Path.cwd())):
        del sys.path[0]


class SliceFile(Protocol):
    """An Arrow stream with the rows of a slice."""

    def open(self) -> AbstractContextManager[Any]:
        """Open it, for `pyarrow.ipc.open_stream`."""


@dataclass(frozen=True)
class LocalFile:
    """A file below a folder. It is checked again when it is opened: the connector may change the folder."""

    folder: Path
    path: str

    def open(self) -> AbstractContextManager[Any]:
        if not self.folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.folder))
        staged = StagedFiles(self.folder, "a slice", follows_link=False)
        return staged.open(f"{self.folder}/{self.path}")


@dataclass(frozen=True)
class SharedFile:
    """A copy in the place that tasks share."""

    system: Any  # the file system of pyarrow
    path: str

    def open(self) -> AbstractContextManager[Any]:
        opened: AbstractContextManager[Any] = self.system.open_input_file(self.path)
        return opened


@dataclass(frozen=True)
class SliceTask:
    """A slice."""

    key: str
    data: bytes  # as its source has made it
    first: int  # the position of its first row in the stream
    file: SliceFile | None = None  # has its rows; None if the source reads them
    file_has_changes: bool = False  # see `Slice`

    def read(self, reader: Reader) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        if self.file is None:
            yield from reader.read(self.data)
            return
        with self.file.open() as source:
            yield from reader.read_file(source, has_changes=self.file_has_changes)


@dataclass
class SliceResult(ParseResult):
    """The result of a slice."""

    read: int = 0  # the number of rows that the source has given
    failure: Failure | None = None


def make_slice_read(
    job: ParseJob, source: SliceSource, tasks: Sequence[SliceTask]
) -> Callable[[int], Plain]:
    """Return the function that reads the slice of a number; it returns the attributes of a `SliceResult`.

    An error of the source is a result: Spark would try again, and hide its text in a stack trace.
    """
    reader: Reader | None = None

    def read(number: int) -> Plain:
        nonlocal reader
        try:
            reader = reader or source.open()
            result = read_slice(job, reader, tasks[number])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the driver raises it
            result = SliceResult(failure=describe_failure(error, tasks[number]))
        return as_plain(result)

    return read


def describe_failure(error: BaseException, task: SliceTask) -> Failure:
    """Return an error as a result of a task, in texts of limited sizes."""
    kind, message, guidance, detail = _describe(error, task)
    return (
        kind,
        message[:_MAX_TEXT],
        guidance and guidance[:_MAX_TEXT],
        detail and detail[:_MAX_STACK],
    )


def _describe(error: BaseException, task: SliceTask) -> Failure:
    key = task.key
    if isinstance(error, FileNotFoundError) and task.file is not None:
        return (
            "config_error",
            f"the Spark workers cannot read the slice {key}: they do not share its file with this machine",
            "let `staging` of elt_lake, or ELT_STAGING, name an object store",
            None,
        )
    if isinstance(error, ModuleNotFoundError):
        return (
            "config_error",
            f"the Spark workers cannot read slices of the source: they have no module {error.name!r}",
            _INSTALL,
            None,
        )
    kind = getattr(error, "failure_type", None)
    if kind is None:
        stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return "system_error", f"the slice {key} cannot be read: {error!r}", None, stack
    texts: Any = error
    return (
        str(kind),
        f"slice {key}: {texts.message}",
        _as_text(texts.guidance),
        _as_text(texts.detail),
    )


def _as_text(value: object) -> str | None:
    return None if value is None else str(value)


def read_slice(job: ParseJob, reader: Reader, task: SliceTask) -> SliceResult:
    """Write the rows of a slice."""
    result = SliceResult()
    converter = BatchConverter(job, reader.write_lines, task.first, reader.split)
    writer, dead_writer = open_writers(job)
    with discard_on_error(writer, dead_writer):
        for batch in task.read(reader):
            for start in range(0, len(batch), _MAX_ROWS):
                part = batch.slice(start, _MAX_ROWS)
                for rows in converter.convert(part, result.read):
                    write_rows(job, rows, result, writer, dead_writer)
                result.read += len(part)
                if result.read > POSITIONS:
                    raise ValueError(f"it has more than {POSITIONS:,} rows: make smaller slices")
        writer.close()
        dead_writer.close()
    result.files, result.dead_files = writer.files, dead_writer.files
    return result
