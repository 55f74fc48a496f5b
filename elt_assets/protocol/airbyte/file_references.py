"""References of records to files: the documents that a source transfers as they are, beside its records.

A source puts a document into the staging folder, which the environment variable `STAGING` names, and refers
to it in the RECORD. The destination moves it to its place before it commits the record.

Spec: AirbyteRecordMessageFileReference; AirbyteStream, `is_file_based`; ConfiguredAirbyteStream,
`include_files`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.airbyte.recovery.texts import read

STAGING = "AIRBYTE_STAGING_DIRECTORY"
"""The environment variable with the staging folder, for sources and for destinations."""
DEFAULT_STAGING = "/staging/files"
"""The staging folder if the variable is not set."""
FIELD = "file_reference"
"""The field of a stored record with the place of its document."""
FIELD_SCHEMA: dict[str, Any] = {
    "type": ["null", "object"],
    "description": "the document of the record: its path below the table, its path in the source, its size",
    "properties": {
        "path": {"type": ["null", "string"]},
        "source_file_relative_path": {"type": ["null", "string"]},
        "file_size_bytes": {"type": ["null", "integer"]},
    },
}
_NULL = b"null"


class FileReference(msgspec.Struct):
    """The reference of a RECORD to its document."""

    staging_file_url: str  # the absolute path of the document in the staging folder
    source_file_relative_path: str | None = None  # its path in the source
    file_size_bytes: int | float | None = None  # its size, if the source knows it


class _StoredReference(msgspec.Struct):
    path: str
    source_file_relative_path: str | None
    file_size_bytes: int


_decode = msgspec.json.Decoder(FileReference).decode


def parse_reference(raw: Raw | None, stream: str) -> FileReference | None:
    """Return the reference of a record; None if it has none.

    Raises:
        SystemFailure: it cannot be read.
    """
    if raw is None or bytes(raw) == _NULL:
        return None
    try:
        return read(_decode, raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SystemFailure(
            f"the `{FIELD}` of a record of stream {stream!r} cannot be read: {error}",
            guidance="this is a defect of the connector; report it to its maintainer",
        ) from None


def add_stored_reference(data: Raw, reference: FileReference, path: str, size: int) -> Raw:
    """Return the data of a record with the field `FIELD`. It takes the place of one of this name.

    Args:
        data: a JSON object.
        path: the path of the document, below the table.
        size: the bytes of the document.
    """
    stored = _StoredReference(path, reference.source_file_relative_path, size)
    body = bytes(data)[:-1].rstrip()
    comma = b"" if body == b"{" else b","
    return Raw(b'%b%b"%b":%b}' % (body, comma, FIELD.encode(), msgspec.json.encode(stored)))


def describe_unexpected_document(stream: str) -> ConfigError:
    """Return the error of a record that refers to a document, of a stream that declares none."""
    return ConfigError(
        f"a record of stream {stream!r} refers to a file (`{FIELD}`), but its catalog does not declare the "
        "stream as one of files (`is_file_based`)",
        guidance="run `elt discover`, so that the catalog is that of the source",
    )
