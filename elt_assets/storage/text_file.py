"""Text files of a project that commands write, as `defs.yaml` and `catalog.json`."""

from __future__ import annotations

import secrets
from pathlib import Path

from elt_assets.errors import ConfigError


def replace_text(path: Path, text: str) -> None:
    """Write a file atomically, in a folder that exists. A file that is replaced keeps its mode.

    Raises:
        ConfigError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        try:
            draft.write_text(text, encoding="utf-8", newline="")
            if path.exists():
                draft.chmod(path.stat().st_mode & 0o777)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}",
            guidance=f"make {path.parent} a folder that you can write, and make room on the disk",
        ) from error
