"""The base class of sources of files, wherever they are: in a store, on a server, behind an API.

`FilesSource` needs one method, `file_system`, which returns a file system of `pyarrow.fs` or of fsspec.
"""

from connectors.sdk.files.formats.file_format import RecordFormat
from connectors.sdk.files.options import FilesSourceConfig, FileStreamConfig
from connectors.sdk.files.source import FilesSource

__all__ = ["FileStreamConfig", "FilesSource", "FilesSourceConfig", "RecordFormat"]
