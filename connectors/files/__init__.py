"""A source of files: CSV, JSON lines, Parquet and Excel, in a local folder or in S3, GCS or Azure.

`python -m connectors.files spec|check|discover|read …`. A stream is the files whose paths match its globs. An
incremental read yields the rows of files that are new or have changed: see `connectors.sdk.files.read_files`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from connectors.files.config import FilesConfig
from connectors.sdk.files import FilesSource

if TYPE_CHECKING:
    from connectors.sdk.files.storage import Storage

_STORES = "connectors.files.stores"
"""The module of the file systems. It is imported when it is used: pyarrow is slow to import."""


class Files(FilesSource):
    """The files of one location."""

    name = "files"
    config_type = FilesConfig

    def file_system(self, config: FilesConfig) -> Any:
        return import_module(_STORES).open_file_system(config)

    def open_storage(self, config: FilesConfig) -> Storage:
        storage = super().open_storage(config)
        storage.open_objects = import_module(_STORES).find_object_reader(config)
        return storage

    def root(self, config: FilesConfig) -> str:
        root: str = import_module(_STORES).split_location(config.location)[1]
        return root

    def location(self, config: FilesConfig) -> str:
        return config.location
