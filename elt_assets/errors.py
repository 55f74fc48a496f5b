"""The error classes of all packages and connectors: the `failure_type` of each states who must act.

`NEEDS_AIRBYTE` is the exit code by which a manifest's process asks `runner.manifests` for Airbyte's engine.

Spec: Airbyte Protocol, AirbyteErrorTraceMessage, `failure_type`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, TypeVar

T = TypeVar("T")

NEEDS_AIRBYTE = 75
"""The exit code of a manifest's process, if it needs Airbyte's engine and was started without it."""


class EltError(Exception):
    """The base class of all errors that are shown to a user.

    Args:
        message: the failure, in one sentence that needs no context.
        guidance: the action that resolves it.
        detail: information for a maintainer (stack trace, tail of stderr); may be long.

    Attributes:
        is_machine_fault: whether the machine failed, for example because its disk is full. Then everything
            else that the run would do fails in the same way.
        exit_code: the exit code of the process whose failure it is, if there is one.
    """

    failure_type: ClassVar[str] = "system_error"
    is_machine_fault = False
    exit_code: int | None = None

    def __init__(self, message: str, *, guidance: str | None = None, detail: str | None = None):
        super().__init__(message)
        self.message = message
        self.guidance = guidance
        self.detail = detail

    def __str__(self) -> str:
        parts = [self.message, self.guidance, self.detail]
        return "\n".join(part for part in parts if part)


class ConfigError(EltError):
    """An error that the user must fix: in YAML, a catalog or a connector config. A retry does not help."""

    failure_type = "config_error"


class Problems:
    """The configuration errors of independent checks, which are raised as one error.

    Args:
        title: what is not valid; without it, a single error is raised as it is.
        guidance: what resolves all of them.
        locate: returns where a problem is, to be written after its text.
    """

    def __init__(
        self,
        title: str | None = None,
        guidance: str = "correct each of these",
        locate: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._title, self._guidance, self._locate = title, guidance, locate
        self._errors: list[ConfigError] = []

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, texts: Iterable[str]) -> None:
        """Keep problems, each of which begins with its place: `stream 'users': fields.hash: …`."""
        self._errors += map(ConfigError, texts)

    def of(self, check: Callable[[], T]) -> T | None:
        """Return the result of a check; None if it raises a ConfigError, which is kept."""
        try:
            return check()
        except ConfigError as error:
            self._errors.append(error)
            return None

    def raise_all(self) -> None:
        """Raise the errors that were kept, if there are any.

        Raises:
            ConfigError: lists all of them with their guidance; or the only error, if there is no title.
        """
        if len(self._errors) == 1 and self._title is None:
            raise self._errors[0]
        if self._errors:
            texts = ["; ".join(filter(None, (e.message, e.guidance))) for e in self._errors]
            lines = [f"  - {text}{self._locate(text)}" for text in texts]
            title = [] if self._title is None else [f"{self._title}:"]
            raise ConfigError("\n".join([*title, *lines]), guidance=self._guidance)


class TransientError(EltError):
    """A failure that needs no action: the same run is expected to succeed later."""

    failure_type = "transient_error"


class SystemFailure(EltError):
    """A failure of a connector, the lake or this project: its maintainer must act."""

    failure_type = "system_error"


class ConcurrentSync(TransientError):
    """A conflict: another run committed to the same stream first. This run changes nothing from then on."""


def error_class(failure_type: str | None) -> type[EltError]:
    """Return the class for a connector's `failure_type`; SystemFailure if it is unknown or missing."""
    classes: dict[str, type[EltError]] = {
        kind.failure_type: kind for kind in (ConfigError, TransientError)
    }
    return classes.get(failure_type or "", SystemFailure)
