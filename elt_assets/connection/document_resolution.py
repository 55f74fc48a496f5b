"""Resolution of `include_files`: whether the documents of a stream's records are stored."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from elt_assets.connection.field_lookup import is_unknown
from elt_assets.connection.stream_model import Stream
from elt_assets.protocol.catalog import AirbyteStream
from elt_assets.protocol.message_rules import FIELD
from elt_assets.sync.selection.fields import properties
from elt_assets.sync.selection.renames import Renames


def drop_undeclared(stream: AirbyteStream) -> AirbyteStream:
    """Return a stream of files without the key and the cursor of its source that its schema does not declare.

    airbyte-cdk gives a stream of files the key and the cursor that it has if the contents of the files are
    read, and not the schema: no record has these fields.
    """
    if not stream.is_file_based:
        return stream
    stream = copy.copy(stream)
    if any(is_unknown(path, stream) for path in stream.source_defined_primary_key or []):
        stream.source_defined_primary_key = None
    cursor = stream.default_cursor_field
    if cursor and stream.source_defined_cursor and is_unknown(cursor, stream):
        stream.default_cursor_field = None
    return stream


def includes_documents(settings: Stream, stream: AirbyteStream) -> bool | None:
    """Return whether documents are requested; None for a stream that has none."""
    if not stream.is_file_based:
        return None
    return settings.include_files is not False


def find_document_problems(
    settings: Stream, stream: AirbyteStream, renames: Renames | None
) -> Iterator[str]:
    """Yield the problems of `include_files` with a stream. `renames`: the new names of its fields."""
    if settings.include_files and not stream.is_file_based:
        yield (
            "include_files: the catalog does not have the stream as one of files (`is_file_based`); "
            "configure the source to deliver files and run `elt discover`, or leave it out"
        )
    elif includes_documents(settings, stream):
        declared = properties(stream.json_schema)
        stored = [name if renames is None else renames[name] for name in declared]
        if FIELD in map(str.lower, stored):
            yield (
                f"include_files: the place of a record's document is stored in the field {FIELD!r}, and the "
                "stream has a field of that name; `rename` that one, or write `include_files: false`"
            )
