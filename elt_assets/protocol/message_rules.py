"""Rules for what connectors send and get, beyond a message's form, and references to documents.

`runner`, `sync` and `connectors` check by them; `pipeline` and `orchestration.states` ask for the kind of a
state, and `connection`, `lake` and `destination.tables` for the names and references of documents.

- Versions: a connector of a version that is not supported is refused.
- States: the kind of a state, and the stream that it belongs to.
- Slices and barriers are the answer to a request: only of a stream whose slices were requested (`SLICES` in
  the configured catalog), and until the stream ends. Any other one is an error, because tasks run the code of
  the source for it, outside of the connector's process. What a slice says is data: it names no code, no path
  and no host.
- Files: a source puts a document into the staging folder, which the environment variable `STAGING` names, and
  refers to it in the RECORD. The destination moves it to its place before it commits the record.
- Catalogs: a destination or a source gets the modes that it supports.

Spec: Actor Specification, `protocol_version` and `supported_destination_sync_modes`; State & Checkpointing,
V2; Destination Sync Modes; AirbyteRecordMessageFileReference; AirbyteStream, `is_file_based`;
ConfiguredAirbyteStream, `include_files`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.catalog import ConfiguredCatalog, StreamId, find_modes
from elt_assets.protocol.messages import Message, Slice, Specification, State
from elt_assets.protocol.wire import read

SUPPORTED = (0, 1)
"""Supported major versions. Version 1 differs only in the names of data types, which are supported too."""
GENERATIONS = (0, 9)
"""The version that introduced `generation_id` and `minimum_generation_id`."""

_VERSION = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.|\Z)")


def protocol_version(specification: Specification) -> tuple[int, int] | None:
    """Return the major and minor version; None if none is declared, or if it cannot be parsed."""
    match = _VERSION.match(specification.protocol_version or "")
    return None if match is None else (int(match[1]), int(match[2] or 0))


def check_version(specification: Specification, connector: str) -> None:
    """Raise ConfigError if a connector declares a major version that is not supported."""
    version = protocol_version(specification)
    if version is not None and version[0] not in SUPPORTED:
        raise ConfigError(
            f"connector {connector} uses version {specification.protocol_version} of the Airbyte Protocol, "
            f"which is not supported; supported major versions: {' and '.join(map(str, SUPPORTED))}",
            guidance="use a release of the connector that uses a supported version",
        )


STREAM = "STREAM"
GLOBAL = "GLOBAL"
LEGACY = "LEGACY"
_MAX_TYPE = 100
"""Maximum number of characters of an unknown type that are shown."""


def kind_of(state: State) -> str:
    """Return STREAM if the state has a `stream`, GLOBAL if it has a `global` or that type, else LEGACY."""
    if state.stream is not None:
        return STREAM
    return GLOBAL if state.global_ is not None or state.type == GLOBAL else LEGACY


def stream_of(
    state: State, streams: Collection[StreamId], *, is_only_stream: bool = False
) -> StreamId | None:
    """Return the stream that a state belongs to; None if that stream is not among `streams`.

    A LEGACY or GLOBAL state belongs to the whole source. If this process reads a single stream, a LEGACY
    state belongs to that stream.

    Args:
        streams: the streams that this process reads.
        is_only_stream: whether the connection has no other stream, which another process would read. A GLOBAL
            state then belongs to the single stream too.

    Raises:
        ConfigError: the state belongs to several streams, which are read by separate processes.
    """
    if state.stream is not None:
        stream = state.stream.stream_descriptor.id
        return stream if stream in streams else None
    if (kind_of(state) == GLOBAL and not is_only_stream) or len(streams) != 1:
        raise ConfigError(
            "the source keeps one state for all of its streams "
            f"({kind_of(state)}), but its streams are read one by one",
            guidance="set `read_together: true` on the connection",
        )
    return next(iter(streams))


def check_contents(state: State) -> None:
    """Raise SystemFailure if a state has no contents of its type, or if its type is unknown.

    A LEGACY state, which may have no type, has `data`; null resets the state.
    """
    kind = kind_of(state) if state.type is None else state.type
    data = state.extra.get("data") if state.data is None else state.data  # a null that was sent
    contents = {STREAM: state.stream, GLOBAL: state.global_, LEGACY: data}
    if contents.get(kind) is None:
        unknown = "" if kind in contents else ", which is unknown,"
        raise SystemFailure(
            f"the connector sent a state of type {kind[:_MAX_TYPE]}{unknown} without its contents",
            guidance="this is a defect of the connector; the sync stops so that no data is lost",
        )


MAX_KEY = 1_000
"""Maximum number of characters of the key of a slice."""
MAX_DATA = 4 << 20
"""Maximum bytes of the data of a slice."""
_DEFECT = (
    "this is a defect of the connector, or an attack by it: report it to its maintainer; if you do not trust "
    "the connector, remove its connection, and replace the secrets that it got"
)


def refuse_slice(part: Slice, reason: str, sender: str = "the connector") -> SystemFailure:
    """Return the error for a SLICE message that is no answer to a request."""
    stream = str(part.stream_descriptor.id)[:MAX_KEY]
    return SystemFailure(
        f"{sender} sent a slice of stream {stream!r}, {reason}; nothing was read for it",
        guidance=_DEFECT,
    )


def refuse_barrier(sender: str = "the connector") -> SystemFailure:
    """Return the error for a BARRIER message that is no answer to a request."""
    return SystemFailure(
        f"{sender} waits for slices to be read, but was not asked for slices", guidance=_DEFECT
    )


def refuse_unasked(message: Message, sender: str, *, may_wait: bool) -> None:
    """Refuse a message about slices of a process that was not asked for slices.

    Args:
        may_wait: whether it was asked to wait for its reader, as a source that follows a log is.

    Raises:
        SystemFailure: the message is one.
    """
    if message.slice is not None:
        raise refuse_slice(message.slice, "which was not asked for slices", sender)
    if message.barrier is not None and not may_wait:
        raise refuse_barrier(sender)


def check_limits(part: Slice) -> None:
    """Check the sizes of a slice.

    Raises:
        SystemFailure: one is beyond its limit.
    """
    if len(part.key) > MAX_KEY:
        raise refuse_slice(part, f"whose key has more than {MAX_KEY:,} characters")
    if len(part.data) > MAX_DATA:
        raise refuse_slice(part, f"whose data has more than {MAX_DATA:,} bytes")
    if not bytes(part.data).startswith(b"{"):
        raise refuse_slice(part, "whose data is no object")
    if part.row_estimate is not None and not 0 <= part.row_estimate < float("inf"):
        raise refuse_slice(part, "whose estimate is no number of rows")


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


def catalog_for_destination(
    catalog: ConfiguredCatalog, specification: Specification, connector: str
) -> ConfiguredCatalog:
    """Return the catalog with modes that a destination supports.

    Most destinations do not support `overwrite_dedup`. It equals an `append_dedup` that replaces the older
    generations, so a destination that supports generations gets that mode instead. A destination that
    lists no modes is assumed to support those of the protocol.

    Raises:
        ConfigError: the destination does not support a stream's mode, and the error names the supported
            modes; or a stream is refreshed and the destination does not support generations.
    """
    modes = specification.supported_destination_sync_modes or []
    version = protocol_version(specification)
    has_generations = version is not None and version >= GENERATIONS
    streams, unsupported, unrefreshed = [], [], []
    for configured in catalog.streams:
        stream, mode = configured, configured.mode.generation_mode
        replaces_older = (
            bool(stream.generation_id) and stream.generation_id == stream.minimum_generation_id
        )
        is_supported = mode is None or stream.destination_sync_mode in modes
        if replaces_older and has_generations and not is_supported and _supports(modes, str(mode)):
            stream = copy.copy(stream)
            stream.destination_sync_mode = str(mode)
        streams.append(stream)
        if not _supports(modes, stream.destination_sync_mode):
            unsupported.append(f"{str(stream.id)!r} ({stream.destination_sync_mode})")
        # A destination without generations ignores them. In a mode that overwrites it removes old rows all
        # the same; in any other it would keep them beside the new ones.
        if replaces_older and not has_generations and not stream.mode.overwrites:
            unrefreshed.append(repr(str(stream.id)))
    if unsupported:
        supported = ", ".join(modes) or "those of the protocol (the destination lists none)"
        raise ConfigError(
            f"destination {connector} does not support the destination_sync_mode of "
            f"{', '.join(unsupported)}; supported modes: {supported}",
            guidance="set the stream's `destination_sync_mode` in defs.yaml to a supported mode",
        )
    if unrefreshed:
        raise ConfigError(
            f"destination {connector} cannot refresh {', '.join(unrefreshed)}: it does not declare a "
            f"`protocol_version` of {'.'.join(map(str, GENERATIONS))} or later, so it would ignore the new "
            "generation and keep the old rows beside the new ones",
            guidance="remove the rows in the destination and read the stream from the beginning with "
            "`elt state reset`; or use `refresh: retain`, which keeps the old rows; or set "
            "`destination_sync_mode: overwrite`",
        )
    return ConfiguredCatalog(streams=streams, extra=catalog.extra)


def catalog_for_source(catalog: ConfiguredCatalog) -> ConfiguredCatalog:
    """Return a catalog that sources of any age can read. Most sources refuse modes that were added later, and
    no source depends on how its records are stored."""
    streams = [copy.copy(stream) for stream in catalog.streams]
    for stream in streams:
        mode = stream.mode.source_mode
        if mode is not None:
            stream.destination_sync_mode = mode
    return ConfiguredCatalog(streams=streams, extra=catalog.extra)


def _supports(modes: list[str], mode: str) -> bool:
    """Return whether a destination that lists `modes` supports `mode`; an empty list means the protocol's."""
    all_modes = find_modes()
    return mode in modes if modes else mode not in all_modes or all_modes[mode].is_standard
