"""The version of the Airbyte Protocol that a connector declares in its specification.

Spec: Actor Specification, `protocol_version`.
"""

from __future__ import annotations

import re

from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.messages import Specification

SUPPORTED = (0, 1)
"""Supported major versions. Version 1 differs only in the names of data types, which are supported too."""
GENERATIONS = (0, 9)
"""The version that introduced `generation_id` and `minimum_generation_id`."""

_VERSION = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.|\Z)")


def protocol_version(specification: Specification) -> tuple[int, int] | None:
    """Return the major and minor version; None if none is declared, or if it cannot be parsed."""
    match = _VERSION.match(specification.protocol_version or "")
    return None if match is None else (int(match[1]), int(match[2] or 0))


def check_version(specification: Specification, connector: str) -> None:
    """Raise ConfigError if a connector declares a major version that is not supported."""
    version = protocol_version(specification)
    if version is not None and version[0] not in SUPPORTED:
        raise ConfigError(
            f"connector {connector} uses version {specification.protocol_version} of the Airbyte Protocol, "
            f"which is not supported; supported major versions: {' and '.join(map(str, SUPPORTED))}",
            guidance="use a release of the connector that uses a supported version",
        )
