"""The kind `image:`, a connector in a container, run by docker or a compatible client."""

from __future__ import annotations

import re

from elt_assets.runner.config.environment import Declared, Environment
from elt_assets.runner.process.container import ContainerOptions, Image
from elt_assets.runner.source_kind import ConnectorSpec, SourceKind, Value

_CLIENT = re.compile("(DOCKER|CONTAINERD?|CONTAINERS|BUILDKIT|NERDCTL|PODMAN|XDG)_.*")
"""Matches the variables that a container client may need. Containers do not get them."""


class ImageKind(SourceKind):
    """Runs the entry point of an image."""

    key = "image"
    value_type = str
    examples = (
        ("image: airbyte/source-faker:6.2.0", "a container, run by docker or a compatible client"),
    )
    label = "docker"
    is_destination = True

    def command(self, spec: ConnectorSpec) -> list[str]:
        return [spec.value]

    def check(self, value: Value) -> None:
        Image(value)

    def environment(self, value: Value, declared: Declared | None) -> Environment:
        return Environment(declared, needs=_CLIENT, of_container=True)

    def image(self, value: Value, options: ContainerOptions | None) -> Image | None:
        return Image(value, options or ContainerOptions())
