"""Transfer of documents: from the staging folder of a sync to the folders of the streams' tables.

`pipeline.connection_read` and `destination.tables` open a transfer; `sync.documents` gives it the documents.

A document of a record gets the path `_files/<id>/<number>-<name>` below the stream's table. Readers of Delta,
and their vacuum, leave alone what begins with an underscore. The id is new in each sync, so no two syncs
write to one path, and none can overwrite a document that a row names. `<name>` is the end of the path in the
source, reduced to characters that are safe in any store, URL and shell.

A kill at DOCUMENT_STORED leaves a document that no row names. The next run reads its record again, and copies
the document to another path; maintenance removes the first one.
`tests/lake/test_documents.py::test_a_transfer_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import os
import re
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import BinaryIO

from elt_assets.errors import EltError, SystemFailure, TransientError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.storage import DOCUMENTS, DataFile, TableStorage
from elt_assets.machine_faults import first_line, translate
from elt_assets.protocol.message_rules import FileReference
from elt_assets.storage.location import Location
from elt_assets.storage.staging import StagedFiles

_THREADS = 8
"""Documents that are copied at the same time: a store answers each request late."""
_MAX_WAITING = 4 * _THREADS
"""Maximum number of documents that are open; beyond it reading pauses."""
_PER_FOLDER = 10_000
_CHUNK = 8 << 20
_MAX_NAME = 100
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def clean_name(path: str) -> str:
    """Return the end of a document's path in its source, as it can be part of any path.

    Other characters than ASCII letters, digits, points and hyphens become an underscore. A long name keeps
    its ending.
    """
    name = _UNSAFE.sub("_", re.split(r"[/\\]", path.rstrip("/\\"))[-1]).lstrip(".")
    stem, point, ending = name.rpartition(".")
    if len(name) > _MAX_NAME:
        ending = f"{point}{ending}"[-20:] if stem else ""
        name = (stem or name)[: _MAX_NAME - len(ending)] + ending
    return name or "file"


class DocumentTransfer:
    """The transfer of the documents of one sync; a context manager.

    Args:
        staged: the folder into which the source puts them.
    """

    def __init__(self, staged: StagedFiles):
        self._staged = staged
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="documents")

    def __enter__(self) -> DocumentTransfer:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def folder(self, table: Location) -> DocumentFolder:
        """Return the place of the documents of a stream."""
        return DocumentFolder(TableStorage(table), self._staged, self._pool)

    def no_folder(self) -> UnstoredDocuments:
        """Return the place of the documents of a stream that are not stored."""
        return UnstoredDocuments(self._staged)


@dataclass(frozen=True)
class UnstoredDocuments:
    """The documents of a stream whose rows are stored without them."""

    staged: StagedFiles

    def add(self, reference: FileReference) -> None:
        self.skip(reference)

    def skip(self, reference: FileReference) -> None:
        self.staged.remove(reference.staging_file_url)

    def finish(self, paths: Sequence[str]) -> None:
        """Do nothing: none is copied."""

    def remove(self, paths: Sequence[str]) -> None:
        """Do nothing: none is copied."""


@dataclass
class DocumentFolder:
    """The documents of one stream, below its table."""

    table: TableStorage
    staged: StagedFiles
    pool: ThreadPoolExecutor
    _copies: dict[str, Future[None]] = field(default_factory=dict, init=False)
    _waiting: deque[Future[None]] = field(default_factory=deque, init=False)
    _paths: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self._paths = _number_paths()

    def add(self, reference: FileReference) -> tuple[str, int]:
        """Begin to copy a document, as `Documents.add`."""
        while len(self._waiting) >= _MAX_WAITING:
            self._waiting.popleft().result()
        url = reference.staging_file_url
        source = self.staged.open(url, reference.file_size_bytes)
        size = os.fstat(source.fileno()).st_size
        path = next(self._paths) + clean_name(reference.source_file_relative_path or url)
        copy = self.pool.submit(self._copy, source, url, path, size)
        self._copies[path] = copy
        self._waiting.append(copy)
        return path, size

    def skip(self, reference: FileReference) -> None:
        self.staged.remove(reference.staging_file_url)

    def finish(self, paths: Sequence[str]) -> None:
        for path in paths:
            if path in self._copies:
                self._copies[path].result()
        for path in paths:
            self._copies.pop(path, None)

    def remove(self, paths: Sequence[str]) -> None:
        wait([self._copies.pop(path) for path in paths if path in self._copies])
        self.table.discard(DataFile(path, 0, 0) for path in paths)

    def _copy(self, source: BinaryIO, url: str, path: str, size: int) -> None:
        try:
            with source:
                copied = self._write(source, path, size)
        except EltError:
            raise
        except Exception as error:  # whatever the store says
            place = f"while the document {self.table.uri}/{path} was written"
            raise translate(error, place) or TransientError(
                f"the document {self.table.uri}/{path} could not be written: {first_line(error)}",
                guidance="run the sync again",
            ) from error
        if copied != size:
            raise SystemFailure(
                f"the file {url!r} was changed while it was copied: it had {size:,} bytes, and "
                f"{copied:,} were read",
                guidance="this is a defect of the connector: a file must be whole when its record is sent",
            )
        reach(Failpoint.DOCUMENT_STORED)
        self.staged.remove(url)

    def _write(self, source: BinaryIO, path: str, size: int) -> int:
        """Write a document, and return its bytes; a file that grows is not read to its end."""
        target = f"{self.table.root}/{path}"
        if not self.table.location.is_object_store:
            self.table.system.create_dir(target.rpartition("/")[0])
        copied = 0
        with self.table.system.open_output_stream(target, compression=None) as sink:
            while copied <= size and (chunk := source.read(_CHUNK)):
                sink.write(chunk)
                sink.flush()  # a store gets parts in the background: without a limit they fill the memory
                copied += len(chunk)
        return copied


def _number_paths() -> Iterator[str]:
    """Yield the beginnings of paths that no other sync uses."""
    while True:
        folder = uuid.uuid4().hex
        for number in range(_PER_FOLDER):
            yield f"{DOCUMENTS}/{folder}/{number:04d}-"
