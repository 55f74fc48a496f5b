"""A source of files: CSV, JSON lines, Parquet and Excel, in a local folder or in S3, GCS or Azure.

`python -m connectors.files spec|check|discover|read …`. A stream is the files whose paths match its globs. An
incremental read yields the rows of files that are new or have changed: see `connectors.files.read_files`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from connectors.files.config import FilesConfig
from connectors.sdk import Source, Stream

_STREAMS = "connectors.files.stream"
"""The module of the streams. It is imported when it is used: pyarrow is slow to import."""


class Files(Source):
    """The files of one location."""

    name = "files"
    config_type = FilesConfig

    def check(self, config: FilesConfig) -> None:
        """Read the beginning of a file of each stream.

        Raises:
            EltError: the location cannot be listed, a stream has no files, or a file cannot be read.
        """
        for stream in self._open(config):
            stream.check()

    def streams(self, config: FilesConfig) -> Sequence[Stream]:
        streams: list[Stream] = self._open(config)
        return streams

    @staticmethod
    def _open(config: FilesConfig) -> Any:
        return import_module(_STREAMS).open_streams(config)
