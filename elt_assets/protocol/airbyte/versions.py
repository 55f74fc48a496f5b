"""Which versions of the Airbyte Protocol a connector speaks, by its specification.

spec: Actor Specification, `protocol_version`.
"""

from __future__ import annotations

import re

from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.messages import Specification

SUPPORTED = (0, 1)
"""Major versions. Version 1 differs in the names of data types alone, and those are known."""
GENERATIONS = (0, 9)
"""The version that brought `generation_id` and `minimum_generation_id`."""

_VERSION = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.|\Z)")


def protocol_version(specification: Specification) -> tuple[int, int] | None:
    """Major and minor version; None where the connector states none that can be read."""
    found = _VERSION.match(specification.protocol_version or "")
    return None if found is None else (int(found[1]), int(found[2] or 0))


def check_version(specification: Specification, connector: str) -> None:
    """
    Raises:
        ConfigError: the connector speaks a major version that this project does not.
    """
    version = protocol_version(specification)
    if version is not None and version[0] not in SUPPORTED:
        raise ConfigError(
            f"connector {connector} speaks version {specification.protocol_version} of the Airbyte Protocol, "
            f"which is not supported; supported are the major versions {' and '.join(map(str, SUPPORTED))}",
            guidance="use a release of the connector for one of these",
        )
