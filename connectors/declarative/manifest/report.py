"""The problems and warnings that are found in a manifest, with their places."""

from __future__ import annotations

from elt_assets.errors import ConfigError

_PLACES = 3
"""The number of places that are listed for one problem, which a definition can cause in every stream."""


class Report:
    """Collects problems and warnings. What is the same at several places is reported once."""

    def __init__(self) -> None:
        self._problems: dict[str, list[str]] = {}
        self._warnings: dict[str, list[str]] = {}

    def problem(self, place: str, what: str) -> None:
        """Add a problem. A manifest with problems cannot be used.

        Args:
            place: its place in the manifest; empty for the manifest itself.
            what: the problem, without the place.
        """
        self._problems.setdefault(what, []).append(place)

    def warning(self, place: str, what: str) -> None:
        """Add a warning; the arguments are those of `problem`."""
        self._warnings.setdefault(what, []).append(place)

    @property
    def warnings(self) -> list[str]:
        """The warnings in the order in which they were found, each with its places."""
        return _lines(self._warnings)

    def raise_problems(self, name: str) -> None:
        """Raise an error that lists all problems, if there are any.

        Args:
            name: the name of the manifest, such as its path.

        Raises:
            ConfigError: there is a problem.
        """
        lines = _lines(self._problems)
        if not lines:
            return
        number = "a problem" if len(lines) == 1 else f"{len(lines)} problems"
        listed = "\n".join(f"  - {line}" for line in lines)
        raise ConfigError(
            f"{name} has {number}:\n{listed}",
            guidance="correct the manifest; the places are paths in it with its references resolved",
        )


def _lines(found: dict[str, list[str]]) -> list[str]:
    lines = []
    for what, (first, *others) in found.items():
        shown = others[: _PLACES - 1]
        more = len(others) - len(shown)
        also = [*shown, *([f"{more} other places"] if more else [])]
        tail = f" (also at {', '.join(also)})" if also else ""
        lines.append(f"{first or 'the manifest'}: {what}{tail}")
    return lines
