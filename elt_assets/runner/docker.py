"""Connectors in images: `docker run`, or any client with its command line.

The container sees the run's private files, at the same path and read-only, and nothing else of this
machine. It is named, so that it can be removed when its client had no chance to.
"""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CLIENT = "ELT_DOCKER"
"""The client's command, its first arguments too, as a shell splits them; default `docker`."""


@dataclass(frozen=True)
class Container:
    """One run of an image: `command` starts it, `removal` ends it, whatever became of the first."""

    command: Sequence[str]
    removal: Sequence[str]


def container(image: str, folder: Path | None, variables: Sequence[str] = ()) -> Container:
    """A container that reads its standard input, and is removed when it ends.

    Args:
        folder: of the run's private files; they are this user's alone, so the container runs as this user.
        variables: names of those that it gets from its client's environment.
    """
    client, name = shlex.split(os.environ.get(CLIENT) or "docker"), f"elt-{uuid.uuid4().hex[:16]}"
    user = ["--user", f"{os.getuid()}:{os.getgid()}", "--env", "HOME=/tmp"]
    mount = [] if folder is None else ["--volume", f"{folder}:{folder}:ro"]
    passed = [word for variable in variables for word in ("--env", variable)]
    options = ["--rm", "--interactive", "--init", "--name", name, *user, *mount, *passed]
    return Container([*client, "run", *options, image], [*client, "rm", "--force", name])
