"""The error tree: each branch says who must act, in the protocol's own words (`failure_type`).

spec: Airbyte Protocol, AirbyteErrorTraceMessage.
"""

from __future__ import annotations

from typing import ClassVar


class EltError(Exception):
    """An error made to be read by a person.

    Args:
        message: what went wrong, in one sentence that needs no context.
        guidance: what to do about it.
        detail: what a maintainer wants to see (stack trace, tail of stderr); may be long.
    """

    failure_type: ClassVar[str] = "system_error"

    def __init__(self, message: str, *, guidance: str | None = None, detail: str | None = None):
        super().__init__(message)
        self.message = message
        self.guidance = guidance
        self.detail = detail

    def __str__(self) -> str:
        parts = [self.message, self.guidance, self.detail]
        return "\n".join(part for part in parts if part)


class ConfigError(EltError):
    """The user must change something: YAML, catalog, connector config. A retry cannot help."""

    failure_type = "config_error"


class TransientError(EltError):
    """Nobody need act: the same run is expected to pass later."""

    failure_type = "transient_error"


class SystemFailure(EltError):
    """A connector, the lake or this project broke: its maintainer must act."""

    failure_type = "system_error"


class ConcurrentSync(TransientError):
    """Another run committed to the same stream first; this one changed nothing from then on."""


def error_class(failure_type: str | None) -> type[EltError]:
    """The branch for a connector's `failure_type`; an unknown or missing one is a system failure."""
    known: dict[str, type[EltError]] = {
        kind.failure_type: kind for kind in (ConfigError, TransientError)
    }
    return known.get(failure_type or "", SystemFailure)
