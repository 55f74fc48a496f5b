"""`image:`, a connector in a container, run by docker or a client like it."""

from __future__ import annotations

import re

from elt_assets.runner.config.environment import Declared, Environment
from elt_assets.runner.kinds.source_kind import Command, Installed, SourceKind, Value
from elt_assets.runner.process.container import ContainerOptions, Image

_CLIENT = re.compile("(DOCKER|CONTAINERD?|CONTAINERS|BUILDKIT|NERDCTL|PODMAN|XDG)_.*")
"""What a client of containers may need; its containers get none of it."""


class ImageKind(SourceKind):
    """The entry point of an image."""

    key = "image"
    value_type = str
    examples = (
        ("image: airbyte/source-faker:6.2.0", "a container, by docker or a client like it"),
    )
    label = "docker"
    is_destination = True

    def command(self, value: Value, packages: Installed) -> tuple[Command, str]:
        Image(value)
        return lambda: [value], value

    def environment(self, value: Value, declared: Declared | None) -> Environment:
        return Environment(declared, closed=True, needs=_CLIENT)

    def image(self, value: Value, options: ContainerOptions | None) -> Image | None:
        return Image(value, options or ContainerOptions())
