"""A file that only this user can read, complete on the disk before it gets its name."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def write_draft(folder: Path, content: bytes) -> Iterator[Path]:
    """Write a file with a new name in a folder, and remove that name at the end.

    In between, the caller gives it its final name: `Path.replace` takes the place of a former file, `os.link`
    fails if there is one.

    Raises:
        OSError: it cannot be written.
    """
    draft = folder / f"draft-{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
