"""The problems and warnings that are found in a manifest, with their places."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from elt_assets.errors import ConfigError

GUIDANCE = (
    "correct the manifest; the places are paths in it with its references resolved. What only Airbyte's "
    "engine knows is read with `engine: airbyte` of the source"
)
_MAX_PROBLEMS = 10_000
_MAX_PLACES = 3
"""The number of places that are listed for one problem, which a definition can cause in every stream."""
_STREAM = re.compile(r"(streams|dynamic_streams)\[\d+\]")
"""The place of a stream, at the beginning of the places of its parts."""


class Report:
    """Collects problems and warnings, and assigns each problem to its stream.

    What is the same at several places is listed once.
    """

    def __init__(self) -> None:
        self._problems: dict[str, list[tuple[str, str]]] = {}
        self._refusals: list[tuple[str, str]] = []
        self._beyond_ours: list[tuple[str, str]] = []
        self._warnings: list[tuple[str, str]] = []
        self.number_of_problems = 0

    def add_problem(self, place: str, problem: str) -> None:
        """Add a problem. What has a problem cannot be used: a stream, or the whole manifest.

        Args:
            place: its place in the manifest; empty for the manifest itself.
            problem: the problem, without the place.

        Raises:
            ConfigError: the problems are too many.
        """
        stream = _STREAM.match(place)
        self._add_problem(stream[0] if stream else "", place, problem)

    def add_refusal(self, place: str, problem: str) -> None:
        """Add a problem that refuses the whole manifest, wherever it is, whatever engine runs it.

        The arguments are those of `problem`.
        """
        self._refusals.append((place, problem))
        self._add_problem("", place, problem)

    def add_reason_for_airbyte(self, place: str, problem: str) -> None:
        """Add a problem that is none for Airbyte's engine; the arguments are those of `problem`."""
        self._beyond_ours.append((place, problem))
        self.add_problem(place, problem)

    def _add_problem(self, refused: str, place: str, problem: str) -> None:
        self._problems.setdefault(refused, []).append((place, problem))
        self.number_of_problems += 1
        if self.number_of_problems > _MAX_PROBLEMS:
            self.raise_problems("the manifest")

    def add_warning(self, place: str, warning: str) -> None:
        """Add a warning; the arguments are those of `problem`."""
        self._warnings.append((place, warning))

    @property
    def warnings(self) -> list[str]:
        """The warnings in the order in which they were found, each with its places."""
        return _lines(self._warnings)

    @property
    def reasons_for_airbyte(self) -> list[str]:
        """What only Airbyte's engine can run, each with its places; nothing if that may not run it either."""
        return [] if self._refusals else _lines(self._beyond_ours)

    @property
    def refused(self) -> Mapping[str, list[str]]:
        """The lines about each stream that has problems, by its place; those at the empty place are about the
        whole manifest."""
        return {place: _lines(problems) for place, problems in self._problems.items()}

    def refuses(self, place: str) -> bool:
        """Return whether the stream at a place has problems."""
        return place in self._problems

    def raise_problems(self, name: str) -> None:
        """Raise an error that lists all problems, if there are any.

        Args:
            name: the name of the manifest, such as its path.

        Raises:
            ManifestError: there is a problem.
        """
        lines = _lines(itertools.chain.from_iterable(self._problems.values()))
        if lines:
            raise ManifestError(name, lines, self.reasons_for_airbyte)

    def raise_refusals(self, name: str) -> None:
        """Raise an error that lists the problems with which no engine runs the manifest, if there are any.

        Raises:
            ManifestError: there is one.
        """
        if self._refusals:
            raise ManifestError(name, _lines(self._refusals))


class ManifestError(ConfigError):
    """The error that lists the problems of a manifest.

    Args:
        name: the name of the manifest.
        lines: the problems, each with its places.
        reasons_for_airbyte: why Airbyte's engine could run it; nothing if it could not.
    """

    def __init__(self, name: str, lines: Sequence[str], reasons_for_airbyte: Sequence[str] = ()):
        number = "a problem" if len(lines) == 1 else f"{len(lines)} problems"
        listed = "\n".join(f"  - {line}" for line in lines)
        super().__init__(f"{name} has {number}:\n{listed}", guidance=GUIDANCE)
        self.lines = lines
        self.reasons_for_airbyte = reasons_for_airbyte


def _lines(problems: Iterable[tuple[str, str]]) -> list[str]:
    places: dict[str, list[str]] = {}
    for place, problem in problems:
        places.setdefault(problem, []).append(place)
    lines = []
    for problem, (first, *others) in places.items():
        listed = others[: _MAX_PLACES - 1]
        more = len(others) - len(listed)
        also = [*listed, *([f"{more} other places"] if more else [])]
        tail = f" (also at {', '.join(also)})" if also else ""
        lines.append(f"{first or 'the manifest'}: {problem}{tail}")
    return lines
