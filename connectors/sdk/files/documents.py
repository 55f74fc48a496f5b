"""A stream of documents: each file is a record, and is transferred as it is."""

from __future__ import annotations

import mimetypes
import posixpath
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from connectors.sdk import Checkpoint, Document, Stream
from connectors.sdk.columns.types import INT64, STRING, TIMESTAMP_UTC
from connectors.sdk.files.listing import FileListing
from connectors.sdk.files.options import DocumentOptions, FileStreamConfig
from connectors.sdk.files.read_files import FileVersion
from connectors.sdk.files.rows import describe_time
from connectors.sdk.files.storage import Storage
from connectors.sdk.items import Estimate, Item, Page
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream

_CHUNK = 8 << 20
_SMALL = 4 << 20
"""Bytes up to which files are read ahead, several at a time: a store answers each request late."""
_THREADS = 8
_FILES_PER_STATE, _BYTES_PER_STATE = 100, 256 << 20
"""The files, and their bytes, between two states."""
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "path": STRING.describe("path below the location"),
        "name": STRING.describe("name of the file"),
        "bytes": INT64.describe("size of the file"),
        "modified_at": TIMESTAMP_UTC.describe("time of modification"),
        "content_type": STRING.describe("MIME type by the ending of the name"),
    },
}


class DocumentStream(Stream):
    """The files that match the globs of a stream, as they are."""

    supported_sync_modes = (FULL_REFRESH, INCREMENTAL)
    source_defined_cursor = True
    is_resumable = True
    is_file_based = True
    json_schema = _SCHEMA

    def __init__(self, stream: FileStreamConfig, storage: Storage, *, look_back: int):
        self.name = stream.name
        self.primary_key = tuple(stream.primary_key) or ("path",)
        self._options = stream.documents or DocumentOptions.model_validate({})
        self._storage = storage
        self._listing = FileListing(stream, storage, look_back)

    def check(self) -> None:
        """Read the beginning of the newest file.

        Raises:
            EltError: it cannot be read, or there is none.
        """
        files = self._listing.list_newest()
        if not files:
            raise self._listing.no_file("correct `glob`")
        next(self._read_pieces(files[0]), None)

    def has_new_data(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> bool:
        return bool(self._listing.begin(configured, state).pending)

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        """Yield a document for each file that is new since a state, and states between them.

        Raises:
            EltError: a file cannot be read, or is too large.
        """
        progress = self._listing.begin(configured, state)
        files, includes = progress.pending, configured.has_documents
        yield Estimate(len(files))
        unsaved = size = 0
        for number, item in enumerate(self._list_items(files, includes=includes), 1):
            yield item
            unsaved, size = unsaved + 1, size + files[number - 1].size
            is_last = number == len(files)
            if is_last or unsaved >= _FILES_PER_STATE or size >= _BYTES_PER_STATE:
                yield Checkpoint(progress.after(number).to_json())
                unsaved = size = 0
        if not files:
            yield Checkpoint(progress.after(0).to_json())
        if progress.deferred:
            yield self._listing.warn_of_deferred(progress)

    def _list_items(self, files: Sequence[FileVersion], *, includes: bool) -> Iterator[Item]:
        """Yield the item of each file. `includes`: whether the files themselves are asked for."""
        if not includes:
            yield from map(_describe, files)
            return
        ahead: deque[tuple[FileVersion, Future[bytes] | None]] = deque()
        with ThreadPoolExecutor(_THREADS) as pool:
            try:
                for file in files:
                    is_small = file.size <= min(_SMALL, self._options.max_bytes)
                    ahead.append((file, pool.submit(self._read, file) if is_small else None))
                    if len(ahead) > _THREADS:
                        yield self._make_item(*ahead.popleft())
                while ahead:
                    yield self._make_item(*ahead.popleft())
            finally:
                pool.shutdown(cancel_futures=True)

    def _make_item(self, file: FileVersion, content: Future[bytes] | None) -> Item:
        if file.size > self._options.max_bytes:
            return self._reject(file)
        pieces = self._read_pieces(file) if content is None else content.result()
        return Document(_describe(file), file.path, pieces)

    def _read(self, file: FileVersion) -> bytes:
        return b"".join(self._read_pieces(file))

    def _read_pieces(self, file: FileVersion) -> Iterator[bytes]:
        """Yield the bytes of a file.

        Raises:
            EltError: it cannot be read; or it was replaced, extended or removed.
        """
        with (
            self._storage.guard_read(file),
            self._storage.open_stream(file, "none") as source,
        ):
            while piece := source.read(_CHUNK):
                yield piece

    def _reject(self, file: FileVersion) -> Item:
        """Return the rejected record of a file that is too large.

        Raises:
            ConfigError: such files are errors.
        """
        limit = self._options.max_bytes
        reason = f"it has {file.size:,} bytes, more than `max_bytes` ({limit:,})"
        if self._options.too_large == "error":
            raise ConfigError(
                f"the file {file.path} is not transferred: {reason}",
                guidance="raise `documents.max_bytes`, exclude it from the glob, or set `too_large: reject`",
            )
        # The lake rejects what is no object.
        rejected: Any = [{"file": file.path, "bytes": file.size, "error": reason}]
        return Page([rejected])


def _describe(file: FileVersion) -> dict[str, Any]:
    return {
        "path": file.path,
        "name": posixpath.basename(file.path),
        "bytes": file.size,
        "modified_at": describe_time(file),
        "content_type": mimetypes.guess_type(file.path, strict=False)[0],
    }
