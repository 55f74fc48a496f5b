"""Readers for the files that a connector gets as arguments: its config and the configured catalog.

Spec: Airbyte Specification, the commands' arguments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import ConfiguredCatalog
from elt_assets.protocol.airbyte.json_schema import shallow
from elt_assets.protocol.airbyte.recovery.texts import read

T = TypeVar("T")


class _RequiredStream(msgspec.Struct):
    """The properties, besides `stream`, that the protocol requires of a configured stream."""

    sync_mode: Literal["full_refresh", "incremental"]
    destination_sync_mode: Literal[
        "append", "overwrite", "append_dedup", "overwrite_dedup", "update", "soft_delete"
    ]


class _RequiredCatalog(msgspec.Struct):
    streams: list[_RequiredStream]


_decode_required = msgspec.json.Decoder(_RequiredCatalog).decode


def load_config(path: str) -> dict[str, Any]:
    """Return the config of a file.

    Raises:
        ConfigError: the file is not readable, or is not a JSON object.
    """
    return decode_json(read_file(path, "config"), dict[str, Any], "config")


def load_catalog(path: str) -> ConfiguredCatalog:
    """Return the configured catalog of a file.

    Raises:
        ConfigError: the file is not readable, or is not a configured catalog.
    """
    data = shallow(read_file(path, "catalog"))
    try:
        catalog = ConfiguredCatalog.from_json(data)
        read(_decode_required, data)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise ConfigError(
            f"the catalog file is not a configured catalog: {error}",
            guidance="each stream needs `stream`, `sync_mode` and `destination_sync_mode`; "
            "docs/destination.md has an example",
        ) from error
    return catalog


def read_file(path: str, what: str) -> bytes:
    """Return the content of a file. `what`: its purpose, for the message.

    Raises:
        ConfigError: the file is not readable.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the {what} file {path}: {error.strerror}",
            guidance=f"correct the path after --{what}, or make the file readable",
        ) from error


def decode_json(data: bytes | Raw, kind: type[T], what: str) -> T:
    """Return JSON data decoded as `kind`. `what`: its purpose, for the message.

    Raises:
        ConfigError: the data is not JSON of that type.
    """
    try:
        return read(msgspec.json.Decoder(kind).decode, data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the {what} is not JSON of the expected form: {error}",
            guidance="write a config as a JSON object, and a state as a JSON list of STATE messages",
        ) from error
