"""The base class of sources, and the validation of their configs.

Spec: Actor Specification.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from connectors.sdk.stream import Stream
from elt_assets.errors import ConfigError
from elt_assets.protocol.specification import violations


class Source(ABC):
    """The base class of sources. Every `config` argument is valid for `connection_specification`."""

    name: str
    connection_specification: dict[str, Any]

    @abstractmethod
    def check(self, config: dict[str, Any]) -> None:
        """Check that the source can be reached and read with this config.

        Raises:
            EltError: the source cannot be read. The message, which states why, is shown to the user.
        """

    @abstractmethod
    def streams(self, config: dict[str, Any]) -> Sequence[Stream]:
        """Return the streams to which this config gives access.

        Raises:
            EltError: the streams cannot be listed.
        """


def validate(config: dict[str, Any], specification: dict[str, Any]) -> None:
    """Check a config against a connection specification.

    Raises:
        ConfigError: the config is not valid. The message names every violation, and quotes no value.
    """
    found = violations(config, specification)
    if found:
        raise ConfigError(
            "the config violates the specification: " + "; ".join(found),
            guidance="correct the config; the `spec` command prints the specification",
        )
