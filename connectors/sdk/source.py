"""A source, and the contract between it and its configuration.

spec: Actor Specification.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from connectors.sdk.stream import Stream
from elt_assets.errors import ConfigError
from elt_assets.protocol.specification import violations


class Source(ABC):
    """Where streams come from. Every `config` that it is handed fits `connection_specification`."""

    name: str
    connection_specification: dict[str, Any]

    @abstractmethod
    def check(self, config: dict[str, Any]) -> None:
        """Return if the source can be reached and read with this config.

        Raises:
            EltError: why it cannot; the message is shown to the user.
        """

    @abstractmethod
    def streams(self, config: dict[str, Any]) -> Sequence[Stream]:
        """The streams that this config gives access to.

        Raises:
            EltError: they cannot be listed.
        """


def validate(config: dict[str, Any], specification: dict[str, Any]) -> None:
    """Hold a config against a connection specification.

    Raises:
        ConfigError: names every violation, and quotes no value of the config.
    """
    found = violations(config, specification)
    if found:
        raise ConfigError(
            "the config does not fit the specification: " + "; ".join(found),
            guidance="the `spec` command shows what is expected",
        )
