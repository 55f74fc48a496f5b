"""Run a connector as another user of this machine, who cannot read the private files of this process."""

from __future__ import annotations

import os
import pwd
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elt_assets.errors import ConfigError


@dataclass(frozen=True)
class Account:
    """A user of this machine that can run programs."""

    name: str
    uid: int
    gid: int
    home: str

    @classmethod
    def find(cls, name: str) -> Account:
        """Return the account of a user.

        Raises:
            ConfigError: there is no such user, or this process may not run programs as another user.
        """
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise ConfigError(
                f"there is no user {name!r} on this machine",
                guidance="create the user, or correct `user` in the connection's YAML",
            ) from None
        if os.geteuid() not in (0, entry.pw_uid):
            raise ConfigError(
                f"a connector cannot be run as the user {name!r}: this process does not run as root",
                guidance="run Dagster as root, or run the connector in a container: `image:`",
            )
        return cls(name, entry.pw_uid, entry.pw_gid, entry.pw_dir)

    @property
    def popen_options(self) -> dict[str, Any]:
        """The options of `subprocess.Popen` that start a program as this user."""
        groups = os.getgrouplist(self.name, self.gid) if os.geteuid() == 0 else None
        ids = {"user": self.uid, "group": self.gid, "extra_groups": groups}
        return ids if groups is not None else {}

    def take_ownership(self, folder: Path) -> None:
        """Make this user the owner of a directory and of its entries, but not of files in subdirectories."""
        for path in (*folder.iterdir(), folder):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def make_shared_workdir() -> Path:
    """Return a directory that any user can enter; others cannot enter the directories of this project."""
    return Path(tempfile.gettempdir())
