"""A source of files: CSV, JSON lines, Parquet and Excel, in a local folder or in S3, GCS or Azure.

`python -m connectors.files spec|check|discover|read …`. A stream is the files whose paths match its globs. An
incremental read yields the rows of files that are new or have changed: see `connectors.sdk.files.read_files`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from connectors.files.config import FilesConfig
from connectors.sdk.files import FilesSource

_STORES = "connectors.files.stores"
"""The module of the file systems. It is imported when it is used: pyarrow is slow to import."""


class Files(FilesSource):
    """The files of one location."""

    name = "files"
    config_type = FilesConfig

    def file_system(self, config: FilesConfig) -> Any:
        return import_module(_STORES).open_file_system(config)

    def root(self, config: FilesConfig) -> str:
        root: str = import_module(_STORES).split_location(config.location)[1]
        return root

    def location(self, config: FilesConfig) -> str:
        return config.location
