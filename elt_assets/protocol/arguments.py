"""The files that a connector is called with: its config, and the configured catalog.

spec: Airbyte Specification, the commands' arguments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import ConfiguredCatalog

T = TypeVar("T")


def load_config(path: str) -> dict[str, Any]:
    """The config as written.

    Raises:
        ConfigError: unreadable, or not a JSON object.
    """
    return decoded(content(path, "config"), dict[str, Any], "config")


def load_catalog(path: str) -> ConfiguredCatalog:
    """What is wanted.

    Raises:
        ConfigError: unreadable, or not a configured catalog.
    """
    data = content(path, "catalog")
    try:
        return ConfiguredCatalog.from_json(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise ConfigError(f"the catalog file is not a configured catalog: {error}") from error


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
