"""Whether a folder can be written to: asked before a source is read."""

from __future__ import annotations

import tempfile
from pathlib import Path

from elt_assets.errors import ConfigError

_SIZE = 4096
"""Bytes: a full volume may still take an empty file."""
_LOCAL = "file://"


def check_writable(uri: str, what: str, setting: str) -> None:
    """Write to a folder of this machine, which is made if it is missing; nothing is left in it. A remote
    store is not asked.

    Args:
        uri: a path or a URI.
        what: the folder's purpose, for the message.
        setting: what names the folder.

    Raises:
        ConfigError: the folder cannot be made or written to; names the setting and the path.
    """
    path = uri.removeprefix(_LOCAL)
    if "://" in path:
        return
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path, buffering=0) as file:
            file.write(bytes(_SIZE))
    except OSError as error:
        raise ConfigError(
            f"{what} cannot be written to: {path}: {error.strerror}",
            guidance=f"{setting} says where it is: name another place, or mend its permissions or volume",
        ) from error
