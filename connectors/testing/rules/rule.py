"""Rules: a name, a summary, and a function that yields findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from connectors.testing.connector import Run
from connectors.testing.findings import Finding, NotApplicable, Note
from connectors.testing.observations import Observations
from connectors.testing.protocols.protocol import Flaw
from connectors.testing.scopes import Scope

Results = Iterator[Finding | Note]
Check = Callable[[Observations], Results]

MAX_SHOWN = 3
"""Maximum number of similar findings of one process that are shown."""


@dataclass(frozen=True)
class Rule:
    """A rule that connectors must follow.

    Args:
        name: the stable name, such as `spec-is-valid`.
        summary: what it requires, in one sentence.
        check: yields the violations. It raises NotApplicable if the rule does not apply, and Blocked if what
            it needs could not be observed.
        stages: the groups of processes that it needs; see `observations`.
    """

    name: str
    summary: str
    check: Check
    stages: Sequence[str]


def rule(*stages: str) -> Callable[[Check], Rule]:
    """Return a decorator that makes a rule of a function: its name is the function's, and its summary is the
    first line of the docstring."""

    def decorate(check: Check) -> Rule:
        name = check.__name__.replace("_", "-")
        summary = (check.__doc__ or "").strip().partition("\n")[0]
        return Rule(name, summary, check, stages)

    return decorate


def require_spec(seen: Observations) -> None:
    """Raise NotApplicable for connectors that print no specification."""
    if not seen.protocol.has_spec:
        raise NotApplicable(f"{seen.protocol.subject} have no `spec`")


def require_check(seen: Observations) -> None:
    """Raise NotApplicable for connectors that cannot check their config."""
    if not seen.protocol.has_check:
        raise NotApplicable(f"{seen.protocol.subject} have no `check`")


def incremental_scopes(seen: Observations) -> list[Scope]:
    """Return the streams that were read incrementally.

    Raises:
        NotApplicable: there is none.
    """
    if not seen.incremental_scopes:
        raise NotApplicable(
            "no stream can be read incrementally with a known cursor; `--cursor STREAM=FIELD` names one"
        )
    return seen.incremental_scopes


def first_flaws(run: Run, flaws: Sequence[Flaw], expected: str, advice: str) -> Iterator[Finding]:
    """Yield a finding for each of the first flaws of a process; the last one counts the others."""
    for number, flaw in enumerate(flaws[:MAX_SHOWN], 1):
        rest = len(flaws) - MAX_SHOWN
        more = f" (and {rest:,} more)" if number == MAX_SHOWN and rest > 0 else ""
        yield Finding(expected, f"{flaw.text}{more}", advice, run=run.purpose, line=flaw.line)
