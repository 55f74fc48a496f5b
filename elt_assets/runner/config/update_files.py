"""Where the changes are stored that a connector makes to its config: in memory, a file, or the vault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.runner.config.vault import VaultEntry
from elt_assets.runner.process.locks import exclusive
from elt_assets.storage.directories import make_private
from elt_assets.storage.private_file import sync_folder, write_draft

Compute = Callable[[bytes | None], bytes]
"""Returns the new content, given the stored one; None if nothing is stored."""


class UpdateFile(Protocol):
    """A place for the changes of one connector; its text names the place."""

    def read(self) -> bytes | None:
        """Return the content; None if there is none."""

    def change(self, compute: Compute) -> object:
        """Replace the content; it is durable on return. Several processes may do it at the same time."""


class MemoryFile:
    """A content that lives as long as this object."""

    def __init__(self) -> None:
        self._content: bytes | None = None

    def read(self) -> bytes | None:
        return self._content

    def change(self, compute: Compute) -> None:
        self._content = compute(self._content)


class LocalFile:
    """A file that only this user can read."""

    def __init__(self, path: Path):
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(self, str(error)) from None

    def change(self, compute: Compute) -> None:
        try:
            make_private(self._path.parent)
            self._path.parent.chmod(0o700)
            with exclusive(self._path.with_suffix(".lock")):
                self._write(compute(self.read()))
        except OSError as error:
            raise SystemFailure(
                f"a connector changed its config, but the change cannot be stored in {self._path}: "
                f"{error.strerror}",
                guidance="make the file writable; if the change was a single-use credential, renew the one "
                "in the connection's YAML",
            ) from error

    def _write(self, content: bytes) -> None:
        """Write the file atomically and durably: a rotated credential is stored nowhere else."""
        with write_draft(self._path.parent, content) as draft:
            draft.replace(self._path)
            sync_folder(self._path.parent)


class VaultFile:
    """An entry of the vault. Until it exists, its content is that of the file without a vault."""

    def __init__(self, entry: VaultEntry, former: Path):
        self._entry = entry
        self._former = LocalFile(former)

    def __str__(self) -> str:
        return str(self._entry)

    def read(self) -> bytes | None:
        content = self._entry.read()
        return self._former.read() if content is None else content

    def change(self, compute: Compute) -> None:
        self._entry.change(
            lambda content: compute(self._former.read() if content is None else content)
        )


def unreadable(file: UpdateFile, reason: str) -> ConfigError:
    """Return the error for stored changes that cannot be read."""
    return ConfigError(
        f"the stored config changes of a connector, {file}, cannot be read: {reason}",
        guidance="restore the file from a backup; or remove it, and renew every single-use "
        "credential in the connection's YAML",
    )
