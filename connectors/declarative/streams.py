"""Streams of a manifest: those that it lists, those whose condition holds, and those that the config or an
API defines."""

from __future__ import annotations

from collections.abc import Iterator

from connectors.declarative.dynamic import dynamic_streams
from connectors.declarative.manifest import components
from connectors.declarative.manifest.loader import Manifest
from connectors.declarative.readers import AnyStream
from connectors.declarative.requests import Environment
from elt_assets.errors import ConfigError


def listed_streams(manifest: Manifest, environment: Environment) -> list[AnyStream]:
    """Return the components of all streams that a config gives access to.

    Raises:
        ConfigError: two streams have the same name, or a stream that the config defines is not valid.
        EltError: the API that defines streams fails.
    """
    found = [*_static(manifest, environment), *dynamic_streams(manifest, environment)]
    names = set()
    for stream in found:
        if stream.name in names:
            raise ConfigError(
                f"{stream.place}: there are two streams with the name {stream.name!r}",
                guidance="rename one of them in the manifest",
            )
        names.add(stream.name)
    return found


def _static(manifest: Manifest, environment: Environment) -> Iterator[AnyStream]:
    for stream in manifest.source.streams:
        if not isinstance(stream, components.ConditionalStreams):
            yield stream
        elif stream.condition.is_true({"config": environment.config}):
            yield from stream.streams
