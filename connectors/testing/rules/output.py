"""Rules about the output of all processes: exit codes, lines that are not messages, secrets."""

from __future__ import annotations

from collections.abc import Iterator

from connectors.testing.connector import ANY, FAILURE, MIN_SECRET, Run
from connectors.testing.findings import Finding, NotApplicable, Note
from connectors.testing.observations import (
    CHECK,
    DISCOVER,
    NO_FILE,
    READ,
    SPEC,
    STOP,
    Observations,
)
from connectors.testing.process import GRACE_SECONDS
from connectors.testing.rules.rule import Results, first_flaws, rule
from elt_assets.protocol.messages import INCOMPLETE

_BASIC = (SPEC, CHECK, DISCOVER, READ)


@rule(*_BASIC, NO_FILE)
def exit_codes(seen: Observations) -> Results:
    """The exit code is 0 after success, and another one after an error."""
    for run in seen.runs():
        flaw = _exit_flaw(run)
        if flaw is not None:
            expected = "another exit code than 0" if run.expected_end == FAILURE else "exit code 0"
            yield Finding(
                expected,
                flaw,
                "end with exit code 0 only after success: the exit code decides whether data is committed",
                run=run.purpose,
            )


def _exit_flaw(run: Run) -> str | None:
    if run.expected_end == ANY:
        return None
    if run.expected_end == FAILURE:
        return "it ended with exit code 0" if run.succeeded else None
    errors = run.transcript.errors
    error = f"; its first error: {errors[0].text}" if errors else ""
    if not run.succeeded:
        return f"it {run.ended.text}{error}"
    if errors:
        return f"exit code 0 with an ERROR trace{error}"
    if any(trace.status == INCOMPLETE for trace, _ in run.transcript.statuses):
        return "exit code 0 with a stream that is INCOMPLETE"
    return None


@rule(*_BASIC)
def only_messages_on_stdout(seen: Observations) -> Results:
    """Each line of stdout is one message of the protocol, in valid JSON."""
    for run in seen.runs():
        yield from first_flaws(
            run,
            run.transcript.stray,
            "only messages on stdout, one in each line",
            "send log lines as LOG messages, or to stderr; encode NaN and infinite numbers as null",
        )


@rule(*_BASIC)
def messages_have_required_fields(seen: Observations) -> Results:
    """Each message has the fields that the protocol requires, such as `emitted_at`."""
    for run in seen.runs():
        yield from first_flaws(
            run,
            run.transcript.incomplete,
            "a message with all required fields",
            "add the field to each message of this type",
        )


@rule(*_BASIC)
def times_are_in_milliseconds(seen: Observations) -> Results:
    """`emitted_at` is in milliseconds since 1970, not in seconds or microseconds."""
    for run in seen.runs():
        yield from first_flaws(
            run,
            run.transcript.odd_times,
            "`emitted_at` in milliseconds since 1970",
            "multiply a time in seconds by 1000",
        )


@rule(READ, STOP)
def sigterm_ends_a_read(seen: Observations) -> Results:
    """A read that gets SIGTERM ends within seconds, and does not go on to its end."""
    if not seen.connector.can_be_stopped:
        raise NotApplicable(
            "a container's output is buffered: a read ends before it can be stopped"
        )
    stopped = seen.stopped
    if stopped is None:
        raise NotApplicable("the read ended before it could be stopped: it wrote nothing")
    transcript = seen.first_read.transcript
    total = len(transcript.messages) + sum(span.count for span in transcript.spans.values())
    is_complete = stopped.ended.code == 0 and stopped.lines >= total
    if is_complete or stopped.ended.code is None:
        yield Finding(
            f"a process that ends within {2 * GRACE_SECONDS:.0f} seconds after SIGTERM",
            "it went on to its end" if is_complete else "it had to be killed",
            "leave SIGTERM to the system, or end in its handler with another exit code than 0: a sync "
            "that is cancelled must not go on",
            run="a `read` that gets SIGTERM",
        )


@rule(*_BASIC)
def no_secret_in_output(seen: Observations) -> Results:
    """No output contains a secret of the config, in plain text or encoded."""
    runs = seen.runs()
    secrets = seen.connector.secrets
    if not secrets:
        raise NotApplicable("the config has no value that the specification marks as a secret")
    short = [place for place, secret in secrets.items() if len(secret) < MIN_SECRET]
    if len(short) == len(secrets):
        raise NotApplicable(f"each secret has fewer than {MIN_SECRET} characters")
    if short:
        reason = f"it has fewer than {MIN_SECRET} characters"
        yield from (Note(f"{place} was not searched for: {reason}") for place in short)
    for run in runs:
        yield from _leaks(run)


def _leaks(run: Run) -> Iterator[Finding]:
    for leak in run.leaks:
        yield Finding(
            "no secret in stdout or stderr",
            f"the value of {leak.secret}, in line {leak.line} of {leak.output}",
            "mask secrets in each text that the connector prints, in errors of libraries too",
            run=run.purpose,
        )
