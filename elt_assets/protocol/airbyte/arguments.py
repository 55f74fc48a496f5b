"""The files that a connector is called with: its config, and the configured catalog.

spec: Airbyte Specification, the commands' arguments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import ConfiguredCatalog

T = TypeVar("T")


class _RequiredStream(msgspec.Struct):
    """What the protocol requires of a configured stream beside the stream itself."""

    sync_mode: Literal["full_refresh", "incremental"]
    destination_sync_mode: Literal[
        "append", "overwrite", "append_dedup", "overwrite_dedup", "update", "soft_delete"
    ]


class _RequiredCatalog(msgspec.Struct):
    streams: list[_RequiredStream]


def load_config(path: str) -> dict[str, Any]:
    """The config as written.

    Raises:
        ConfigError: unreadable, or not a JSON object.
    """
    return decoded(content(path, "config"), dict[str, Any], "config")


def load_catalog(path: str) -> ConfiguredCatalog:
    """What is wanted.

    Raises:
        ConfigError: unreadable, not a configured catalog, or one that asks for files.
    """
    data = content(path, "catalog")
    try:
        catalog = ConfiguredCatalog.from_json(data)
        msgspec.json.decode(data, type=_RequiredCatalog)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise ConfigError(f"the catalog file is not a configured catalog: {error}") from error
    for stream in catalog.streams:
        if stream.include_files:
            raise ConfigError(
                f"stream {str(stream.id)!r}: `include_files` asks for files, which are not transferred",
                guidance="leave `include_files` out of the catalog",
            )
    return catalog


def content(path: str, what: str) -> bytes:
    """Of the file with what `what` names.

    Raises:
        ConfigError: unreadable.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the {what} file {path}: {error.strerror}") from error


def decoded(data: bytes | Raw, kind: type[T], what: str) -> T:
    """JSON of some shape.

    Raises:
        ConfigError: it is something else.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"the {what} is not the JSON expected: {error}") from error
