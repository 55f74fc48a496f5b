"""The results of rules: findings, notes and outcomes, and the report of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

PASSED, FAILED = "passed", "failed"
NOT_APPLICABLE, NOT_CHECKED = "not applicable", "not checked"
"""The results of a rule. NOT_CHECKED: the connector failed, which another rule reports."""

MAX_SHOWN = 5
"""Maximum number of findings of a rule that are shown to people."""


class NotApplicable(Exception):
    """A rule does not apply to the connector or to its config. The text is the reason."""


class Blocked(Exception):
    """The observations that a rule needs could not be made. The text is the reason, and names the rule that
    reports it."""


@dataclass(frozen=True)
class Finding:
    """A violation of a rule.

    Args:
        expected: what the rule requires; `seen`: what the connector did.
        advice: what to do.
        stream: the stream, if the finding is about one.
        run: the process that showed it, as "`read` of all streams"; `line`: the line of its stdout.
    """

    expected: str
    seen: str
    advice: str
    stream: str | None = None
    run: str | None = None
    line: int | None = None

    @property
    def place(self) -> str:
        """The stream, the process and the line, as far as they are known."""
        parts = [
            None if self.stream is None else f"stream {self.stream}",
            self.run,
            None if self.line is None else f"line {self.line} of stdout",
        ]
        return ", ".join(part for part in parts if part) or "the connector"


@dataclass(frozen=True)
class Note:
    """A remark about the extent of a check, such as a stream that a rule does not apply to."""

    text: str


@dataclass(frozen=True)
class Outcome:
    """The result of one rule.

    Args:
        rule: the name of the rule; `summary`: what it requires.
        status: PASSED, FAILED, NOT_APPLICABLE or NOT_CHECKED.
        reason: why it does not apply or was not checked; empty otherwise.
    """

    rule: str
    summary: str
    status: str
    reason: str = ""
    findings: Sequence[Finding] = ()
    notes: Sequence[str] = ()

    @property
    def is_good(self) -> bool:
        return self.status in (PASSED, NOT_APPLICABLE)

    def lines(self) -> Iterator[str]:
        """Yield the lines of a report for people, with the first findings."""
        reason = f": {self.reason}" if self.reason else ""
        yield f"{self.status:<15}{self.rule}{reason}"
        for finding in self.findings[:MAX_SHOWN]:
            yield f"    {finding.place}"
            yield f"      expected: {finding.expected}"
            yield f"      seen:     {finding.seen}"
            yield f"      to do:    {finding.advice}"
        if len(self.findings) > MAX_SHOWN:
            yield f"    and {len(self.findings) - MAX_SHOWN:,} more findings"
        for note in self.notes:
            yield f"    note: {note}"

    @property
    def text(self) -> str:
        """The outcome for people, with the rule's summary."""
        head, *rest = self.lines()
        return "\n".join([head, f"    rule: {self.summary}", *rest])


@dataclass(frozen=True)
class Report:
    """The outcomes of all rules.

    Args:
        protocol: the name of the connector's protocol.
        processes: the number of processes that were started; `seconds`: the time that they took.
    """

    protocol: str
    outcomes: Sequence[Outcome]
    processes: int
    seconds: float

    @property
    def passed(self) -> bool:
        return all(outcome.is_good for outcome in self.outcomes)

    @property
    def failed_rules(self) -> list[str]:
        """The names of the rules that the connector violates."""
        return [outcome.rule for outcome in self.outcomes if outcome.status == FAILED]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report for people."""
        for outcome in self.outcomes:
            yield from outcome.lines()
        counts = Counter(outcome.status for outcome in self.outcomes)
        parts = [
            f"{counts[status]} {status}"
            for status in (PASSED, FAILED, NOT_CHECKED, NOT_APPLICABLE)
            if counts[status]
        ]
        yield (
            f"{len(self.outcomes)} rules: {', '.join(parts) or 'none selected'} "
            f"({self.processes} processes in {self.seconds:.1f} seconds)"
        )

    def document(self) -> dict[str, Any]:
        """Return the report for machines."""
        notes = [f"{outcome.rule}: {note}" for outcome in self.outcomes for note in outcome.notes]
        return {
            "protocol": self.protocol,
            "passed": self.passed,
            "rules": [asdict(outcome) for outcome in self.outcomes],
            "processes": self.processes,
            "seconds": round(self.seconds, 3),
            "warnings": notes,
        }
