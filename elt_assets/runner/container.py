"""Run connectors in containers, with `docker run` or a client with the same command line.

`kinds` and `source_kind` run `image:` with it, and `connection.connector` has the options;
`elt test-connector` runs images.

The container sees the private files of its process, at the same path and read-only, and the staging folder
of documents, if the sync has some. It sees nothing else of this machine but the volumes in the connection's
YAML. By default it has no capabilities, and it has limits of memory and processes. It has a name, so that it
can be removed if its client could not remove it.
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
"""The variable with the client's command and first arguments, split as in a shell; default: `docker`."""

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
    """The options for running an image: `source.container` in a connection's YAML."""

    network: str | None = field(
        default=None,
        metadata={
            "description": "Network of the container, `none` or `host`; default: that of the client."
        },
    )
    volumes: list[str] = field(
        default_factory=list,
        metadata={
            "description": "Directories of this machine to mount: `host:container`, `host:container:ro`."
        },
    )
    memory: str | None = field(
        default="4g", metadata={"description": "Limit of memory, as `512m`; `null` for none."}
    )
    cpus: float | None = field(
        default=None, metadata={"description": "Maximum number of processors; default: all."}
    )
    pids: int | None = field(
        default=1024,
        metadata={"description": "Maximum number of processes and threads; `null` for no limit."},
    )
    pull: Literal["always", "missing", "never"] | None = field(
        default=None,
        metadata={
            "description": "When the image is pulled; default: that of the client, which is `missing`."
        },
    )
    platform: str | None = field(
        default=None, metadata={"description": "Platform of the image, as `linux/amd64`."}
    )
    capabilities: list[str] = field(
        default_factory=list,
        metadata={"description": "Linux capabilities that the container keeps."},
    )
    new_privileges: bool = field(
        default=False,
        metadata={
            "description": "Whether programs in the container may gain privileges, for example by setuid."
        },
    )

    def __post_init__(self) -> None:
        for volume in self.volumes:
            if ":" not in volume:
                raise ValueError(f"volumes: {volume!r} is not of the form `host:container`")
        if self.memory is not None and not re.fullmatch("[0-9]+[bkmgBKMG]?", self.memory):
            raise ValueError(
                f"memory: {self.memory!r} is not a size; write 512m or 4g, for example"
            )

    def arguments(self) -> list[str]:
        """Return the options of `docker run`."""
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
    """The commands for one container: `command` starts it, and `removal` removes it in any state."""

    command: Sequence[str]
    removal: Sequence[str]


@dataclass(frozen=True)
class Image:
    """An image that is run as a connector.

    Raises:
        ConfigError: `reference` is not an image reference, but for example an option of the client.
    """

    reference: str
    options: ContainerOptions = field(default_factory=ContainerOptions)

    def __post_init__(self) -> None:
        if _REFERENCE.fullmatch(self.reference) is None:
            raise ConfigError(
                f"{self.reference!r} is not an image reference",
                guidance="write `name:tag` or `registry/name@sha256:…`; the name in lower case",
            )

    @property
    def is_mutable(self) -> bool:
        """Return whether the reference may name different images at different times."""
        match = _REFERENCE.fullmatch(self.reference)
        assert match is not None
        return match["digest"] is None and match["tag"] in (None, "latest")

    def container(
        self,
        folder: Path | None,
        variables: Sequence[str] = (),
        name: str | None = None,
        folders: Sequence[Path] = (),
    ) -> Container:
        """Return the commands for a container that reads stdin and is removed when it ends.

        The container runs as this user, because only this user can read the private files.

        Args:
            folder: the directory of the private files.
            variables: the names of variables that the container gets from its client's environment.
            name: the name of the container; by default a new one.
            folders: directories into which the connector puts files, or from which it takes them.
        """
        client = shlex.split(os.environ.get(CLIENT) or "docker")
        name = name or f"elt-{uuid.uuid4().hex[:16]}"
        user = ["--user", f"{os.getuid()}:{os.getgid()}", "--env", "HOME=/tmp"]
        mount = [] if folder is None else ["--volume", f"{folder}:{folder}:ro"]
        mount += [word for path in folders for word in ("--volume", f"{path}:{path}")]
        passed = [word for variable in variables for word in ("--env", variable)]
        fixed = ["--rm", "--interactive", "--init", "--name", name, *user, *mount, *passed]
        options = [*fixed, *self.options.arguments()]
        return Container(
            [*client, "run", *options, self.reference], [*client, "rm", "--force", name]
        )
