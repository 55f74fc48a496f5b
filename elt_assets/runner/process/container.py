"""Connectors in images: `docker run`, or any client with its command line.

The container sees the run's private files, at the same path and read-only, and nothing else of this
machine but what the connection's YAML mounts. It has no capabilities, and limits. It is named, so that it can
be removed when its client had no chance to.
"""

from __future__ import annotations

import os
import re
import shlex
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from elt_assets.errors import ConfigError

CLIENT = "ELT_DOCKER"
"""The client's command, its first arguments too, as a shell splits them; default `docker`."""

_HOST = r"[A-Za-z0-9]+(?:[.-][A-Za-z0-9-]*[A-Za-z0-9])*|\[[A-Fa-f0-9:]+\]"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:(?:{_HOST})(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?P<digest>@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?"
)
"""The grammar of image references: https://pkg.go.dev/github.com/distribution/reference."""


@dataclass(frozen=True)
class ContainerOptions:
    """How an image is run: `source.container` in a connection's YAML.

    Args:
        network: what the container joins (`none`, `host`, a network's name); None: the client's default.
        volumes: what it sees of this machine beside its private files: `host:container`, `host:container:ro`.
        memory: its limit, as `512m`; None: no limit.
        cpus: how many it may use; None: all.
        pids: how many processes and threads it may have; None: no limit.
        pull: when the image is pulled; None: the client's default, which is `missing`.
        platform: of the image, as `linux/amd64`.
        capabilities: those of Linux that it keeps.
        new_privileges: whether its programs may gain privileges, by setuid for example.
    """

    network: str | None = None
    volumes: list[str] = field(default_factory=list)
    memory: str | None = "4g"
    cpus: float | None = None
    pids: int | None = 1024
    pull: Literal["always", "missing", "never"] | None = None
    platform: str | None = None
    capabilities: list[str] = field(default_factory=list)
    new_privileges: bool = False

    def __post_init__(self) -> None:
        for volume in self.volumes:
            if ":" not in volume:
                raise ValueError(f"volumes: {volume!r} is not of the form `host:container`")
        if self.memory is not None and not re.fullmatch("[0-9]+[bkmgBKMG]?", self.memory):
            raise ValueError(f"memory: {self.memory!r} is no size; write 512m, or 4g")

    def arguments(self) -> list[str]:
        """The options of `docker run`."""
        single = {
            "network": self.network,
            "memory": self.memory,
            "cpus": self.cpus,
            "pids-limit": self.pids,
            "pull": self.pull,
            "platform": self.platform,
            "security-opt": None if self.new_privileges else "no-new-privileges",
        }
        return [
            "--cap-drop=ALL",
            *(f"--cap-add={name}" for name in self.capabilities),
            *(f"--{name}={value}" for name, value in single.items() if value is not None),
            *(word for volume in self.volumes for word in ("--volume", volume)),
        ]


@dataclass(frozen=True)
class Container:
    """One run of an image: `command` starts it, `removal` ends it, whatever became of the first."""

    command: Sequence[str]
    removal: Sequence[str]


@dataclass(frozen=True)
class Image:
    """An image that is run as a connector.

    Raises:
        ConfigError: `reference` is no image reference; an option of the client, say.
    """

    reference: str
    options: ContainerOptions = field(default_factory=ContainerOptions)

    def __post_init__(self) -> None:
        if _REFERENCE.fullmatch(self.reference) is None:
            raise ConfigError(
                f"{self.reference!r} is no reference of an image",
                guidance="write `name:tag` or `registry/name@sha256:…`; the name in lower case",
            )

    @property
    def moves(self) -> bool:
        """Whether the same reference may be another image tomorrow."""
        found = _REFERENCE.fullmatch(self.reference)
        assert found is not None
        return found["digest"] is None and found["tag"] in (None, "latest")

    def container(self, folder: Path | None, variables: Sequence[str] = ()) -> Container:
        """A container that reads its standard input, and is removed when it ends.

        Args:
            folder: of the run's private files; they are this user's alone, so the container runs as this
                user.
            variables: names of those that it gets from its client's environment.
        """
        client = shlex.split(os.environ.get(CLIENT) or "docker")
        name = f"elt-{uuid.uuid4().hex[:16]}"
        user = ["--user", f"{os.getuid()}:{os.getgid()}", "--env", "HOME=/tmp"]
        mount = [] if folder is None else ["--volume", f"{folder}:{folder}:ro"]
        passed = [word for variable in variables for word in ("--env", variable)]
        fixed = ["--rm", "--interactive", "--init", "--name", name, *user, *mount, *passed]
        options = [*fixed, *self.options.arguments()]
        return Container(
            [*client, "run", *options, self.reference], [*client, "rm", "--force", name]
        )
