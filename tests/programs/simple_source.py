"""The base class of sources that take any config and can always be reached."""

from __future__ import annotations

from typing import Any

from connectors.sdk import Source


class SimpleSource(Source):
    """A source that takes any config and can always be reached."""

    connection_specification = {"type": "object"}  # noqa: RUF012 - as the SDK has it

    def check(self, config: dict[str, Any]) -> None:
        """Succeed with any config."""
