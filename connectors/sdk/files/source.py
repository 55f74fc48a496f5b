"""The base class of sources of files: an author writes where they are."""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from connectors.sdk.files.options import FilesSourceConfig, FileStreamConfig
from connectors.sdk.source import Source
from connectors.sdk.stream import Stream
from elt_assets.errors import EltError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from connectors.sdk.files.formats.file_format import FileFormat
    from connectors.sdk.files.storage import Storage

if "pyarrow" not in sys.modules:
    # Its default pool reserves a gigabyte, which the limit of a file's memory would not count (`memory`).
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
_STREAM, _STORAGE = "connectors.sdk.files.stream", "connectors.sdk.files.storage"
_DOCUMENTS = "connectors.sdk.files.documents"
"""Modules that are imported when they are used: pyarrow is slow to import."""
DOCUMENTS = "documents"


class FilesSource(Source):
    """Files that are listed by globs, and read by slices: rows of CSV, JSON lines, Parquet and Excel, and
    documents. An incremental read yields those that are new or have changed.

    Attributes:
        config_type: the model of the config; with `FilesSourceConfig` as its base, it has the streams.
        look_back_seconds: how late a file may become visible after its time of modification.
        file_columns: whether rows have `_file_path` and `_file_modified_at`.
    """

    config_type: type[BaseModel] | None = FilesSourceConfig
    look_back_seconds = 3600
    file_columns = True

    @abstractmethod
    def file_system(self, config: Any) -> Any:
        """Return the file system of the files: one of `pyarrow.fs`, or of fsspec.

        It is opened in each task that reads files, and used by several threads.
        """

    def root(self, config: Any) -> str:
        """Return the folder of all files, as a path of the file system."""
        del config
        return ""

    def location(self, config: Any) -> str:
        """Return what messages and states call the place of the files. It has no secret; if it changes, a
        state of many files cannot be used any more."""
        return f"{self.name}:{self.root(config)}"

    def file_streams(self, config: Any) -> Sequence[FileStreamConfig]:
        """Return the streams: which files each has, and how they are read. Default: those of the config."""
        streams: Sequence[FileStreamConfig] = config.streams
        return streams

    def make_format(self, stream: FileStreamConfig) -> FileFormat:
        """Return the format of the files of a stream; a source may have formats of its own."""
        made: FileFormat = import_module(_STREAM).make_format(stream)
        return made

    def translate(self, error: Exception, what: str) -> EltError | None:
        """Return an error of the file system by who must act; None for one that is a defect.

        Args:
            what: what was opened, listed or read.
        """
        described: EltError | None = import_module(_STORAGE).describe_failure(error, what)
        return described

    def open_storage(self, config: Any) -> Storage:
        """Return the files of a config, which are not looked at yet."""
        storage: Storage = import_module(_STORAGE).Storage(
            self.location(config),
            self.root(config),
            partial(self.file_system, config),
            self.translate,
        )
        storage.megabytes = getattr(config, "max_memory_megabytes", storage.megabytes)
        storage.follows_links = getattr(config, "follow_links", storage.follows_links)
        return storage

    def check(self, config: Any) -> None:
        """Read the beginning of a file of each stream.

        Raises:
            EltError: the location cannot be listed, a stream has no files, or a file cannot be read.
        """
        for stream in self._open(config):
            stream.check()

    def streams(self, config: Any) -> Sequence[Stream]:
        streams: list[Stream] = self._open(config)
        return streams

    def _open(self, config: Any) -> Any:
        storage = self.open_storage(config)
        look_back = getattr(config, "look_back_seconds", self.look_back_seconds)
        file_columns = getattr(config, "file_columns", self.file_columns)

        def open_stream(stream: FileStreamConfig) -> Any:
            if stream.format == DOCUMENTS:
                document_type = import_module(_DOCUMENTS).DocumentStream
                return document_type(stream, storage, look_back=look_back)
            return import_module(_STREAM).FileStream(
                stream,
                storage,
                self.make_format(stream),
                look_back=look_back,
                file_columns=file_columns,
            )

        return list(map(open_stream, self.file_streams(config)))
