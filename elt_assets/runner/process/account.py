"""Running a connector as another user of this machine, who reads nothing of what is this process's own."""

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
    """A user of this machine, and what it takes to run a program as that user."""

    name: str
    uid: int
    gid: int
    home: str

    @classmethod
    def named(cls, name: str) -> Account:
        """Raises:
        ConfigError: there is no such user, or this process may not run a program as another one.
        """
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            raise ConfigError(
                f"there is no user {name!r} on this machine",
                guidance="make one, or correct `user` in the connection's YAML",
            ) from None
        if os.geteuid() not in (0, found.pw_uid):
            raise ConfigError(
                f"a connector cannot be run as the user {name!r}: this process is not root's",
                guidance="run Dagster as root, or run the connector in a container: `image:`",
            )
        return cls(name, found.pw_uid, found.pw_gid, found.pw_dir)

    @property
    def how(self) -> dict[str, Any]:
        """How `subprocess` starts a program as this user."""
        groups = os.getgrouplist(self.name, self.gid) if os.geteuid() == 0 else None
        ids = {"user": self.uid, "group": self.gid, "extra_groups": groups}
        return ids if groups is not None else {}

    def take(self, folder: Path) -> None:
        """Make this user the owner of a directory and the files in it."""
        for path in (*folder.iterdir(), folder):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def open_workdir() -> Path:
    """A directory in which any user can reach files of their own: those of this project cannot be entered."""
    return Path(tempfile.gettempdir())
