"""Filter a connector's texts before people see them: mask secrets, cut long texts, limit the number of lines.

`connector`, `singer_tap` and `failures` use it; `pipeline` and `orchestration` pass a `LogFunction` that gets
the lines (by `source_kind`).

Every text of a connector passes through here: LOG and TRACE messages, the answer of a check, lines of stderr,
and lines of stdout that are not messages.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator

from elt_assets.errors import SystemFailure
from elt_assets.protocol.masking import Masker
from elt_assets.protocol.message_rules import GLOBAL, LEGACY, STREAM
from elt_assets.protocol.messages import (
    COMPLETE,
    INCOMPLETE,
    RUNNING,
    STARTED,
    Log,
    Message,
    Trace,
    log_line,
    printable,
)

LogFunction = Callable[[str, str], None]
"""Receives a log line: its protocol log level and its text."""


def ignore(_level: str, _text: str) -> None:
    """Discard the log line."""


MAX_TEXT = 2_000
"""Maximum number of characters of a message."""
MAX_WORD = 100
"""Maximum number of characters of a type or status that the protocol does not have."""
MAX_STACK_TRACE = 20_000
"""Maximum number of characters of a stack trace."""
_SEARCHED = 4
"""How many times more characters of a text are searched for secrets than are shown. The rest is dropped: the
work of masking grows with the text."""
MAX_LINES = 200
"""Maximum number of lines in the first minute: 200 warnings and errors, and 200 other lines.

In each later minute: `MAX_LINES_LATER` warnings and errors, and 200 other lines.
"""
MAX_LINES_LATER = 20
"""Maximum number of warnings and errors in each minute after the first.

It is low because Dagster stores each of these lines as an event.
"""
MAX_ERRORS = 1_000
"""Maximum number of ERROR traces of one process."""
_MINUTE = 60.0
_TRACES = ("ERROR", "ESTIMATE", "STREAM_STATUS", "ANALYTICS")
_STATUSES = (STARTED, RUNNING, COMPLETE, INCOMPLETE)
_SEVERE = ("WARN", "ERROR", "FATAL")
_LEVELS = (*_SEVERE, "INFO", "DEBUG", "TRACE")
_OTHER_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_MAX_BEFORE_LEVEL = 200
"""Number of characters of a line in which its level is searched for."""
_NAMES = "|".join((*_LEVELS, *_OTHER_NAMES))
_BEFORE_LEVEL = r"""
    [\[(]? (?: \d [\d\-:.,/+TZ\ ]* [\])]? )? [\s|:-]*                                 # a time
    (?: \[ [^\]]* \] \s+ | [\w.@/-]+ (?: \s*[|:]\s* | \s+-\s+ ) ){0,3}                # names, a thread
"""
_LEVEL_PATTERNS = [
    re.compile(pattern, re.VERBOSE)
    for pattern in (
        rf"{_BEFORE_LEVEL} [\[(<]? (?P<level>{_NAMES}) [\])>]? (?= [\s|:-] | $ )",
        rf"{_BEFORE_LEVEL} \[ \s* (?i:(?P<level>{_NAMES})) \s* \]",
        rf"""\w+= .*? (?:\b|_) level= ["']? (?i:(?P<level>{_NAMES})) \b""",
        rf"""\{{ .*? "(?:level|levelname|severity)" \s*:\s* "(?i:(?P<level>{_NAMES}))" """,
    )
]


class ConnectorLog:
    """Filters the output of one process of a connector."""

    def __init__(self, mask: Masker, title: str):
        self._mask = mask
        self._title = title
        self._limits = {
            True: _Limit(MAX_LINES, MAX_LINES_LATER),
            False: _Limit(MAX_LINES, MAX_LINES),
        }
        self._errors = 0

    def text(self, text: str, limit: int = MAX_TEXT) -> str:
        """Return a text with secrets masked and control characters escaped, cut to `limit` characters."""
        masked = printable(self._mask(text[: _SEARCHED * limit]))
        return masked if len(masked) <= limit else f"{masked[:limit]}… (cut)"

    def lines(self, text: str) -> str:
        """Return a text of several lines, each masked and cut separately."""
        return self._mask("\n".join(map(self.text, text.splitlines())))

    def failure(self, failure: SystemFailure) -> SystemFailure:
        """Return a copy of a failure with its message and detail, which may quote the connector, filtered."""
        return SystemFailure(
            self.text(failure.message),
            guidance=failure.guidance,
            detail=self._optional(failure.detail),
        )

    def filter_message(self, message: Message) -> Iterator[Message]:
        """Yield the message masked and cut, after a summary of the lines that were dropped before it.

        A log line that exceeds the limit of its minute is dropped: nothing is yielded. A trace with an
        `error` is never dropped. A stream status that exceeds the limit is yielded without its reasons.

        Raises:
            SystemFailure: the process has sent more than `MAX_ERRORS` ERROR traces.
        """
        self._clean(message)
        trace = message.trace
        if trace is not None and trace.error is not None:
            self._errors += 1
            if self._errors > MAX_ERRORS:
                raise SystemFailure(
                    f"{self._title} sent more than {MAX_ERRORS:,} ERROR traces",
                    guidance="the log contains the first of them",
                )
        elif trace is not None and trace.stream_status is not None:
            if trace.stream_status.reasons and not self._limits[True].take():
                trace.stream_status.reasons = None
        elif (line := _format_line(message)) is not None:
            severe = line[0] in _SEVERE
            if not self._limits[severe].take():
                return
            yield from self._summary(severe=severe)
        yield message

    def stderr(self, lines: Iterable[str], lost: int) -> Iterator[Message]:
        """Yield lines of stderr as LOG messages, each with the level that it begins with; without one: DEBUG.

        Args:
            lines: the lines that the process object has kept since the last call.
            lost: number of lines that it discarded since then, because there were too many; the next summary
                counts them as dropped.
        """
        self._limits[False].dropped += lost
        for line in lines:
            log = Log(level=level_of(line) or "DEBUG", message=line)
            yield from self.filter_message(Message(type="LOG", log=log))

    def end(self) -> Iterator[Message]:
        """Yield summaries of the lines that were dropped since the last summary."""
        for severe in (True, False):
            yield from self._summary(severe=severe)

    def _summary(self, *, severe: bool) -> Iterator[Message]:
        limit = self._limits[severe]
        dropped, limit.dropped = limit.dropped, 0
        if dropped:
            kind = "warnings and errors" if severe else "log lines"
            text = f"{dropped:,} {kind} of {self._title} were dropped: too many in a minute"
            log = Log(level="WARN" if severe else "INFO", message=text)
            yield Message(type="LOG", log=log)

    def _clean(self, message: Message) -> None:
        if message.log is not None:
            message.log.level = _level(message.log.level)
            message.log.message = self.text(message.log.message)
            message.log.stack_trace = self._optional(message.log.stack_trace, MAX_STACK_TRACE)
        if message.trace is not None:
            self._clean_trace(message.trace)
        status = message.connectionStatus
        if status is not None:
            status.message = self._optional(status.message)
        state = message.state
        if state is not None and state.type is not None:
            state.type = self._word(state.type, (STREAM, GLOBAL, LEGACY))

    def _clean_trace(self, trace: Trace) -> None:
        trace.type = self._word(trace.type, _TRACES)
        if trace.stream_status is not None:
            trace.stream_status.status = self._word(trace.stream_status.status, _STATUSES)
        if trace.error is not None:
            error = trace.error
            error.message = self._optional(error.message)
            error.internal_message = self._optional(error.internal_message)
            error.stack_trace = self._optional(error.stack_trace, MAX_STACK_TRACE)
        if trace.analytics is not None:
            trace.analytics.type = self.text(trace.analytics.type)
            trace.analytics.value = self._optional(trace.analytics.value)

    def _word(self, word: str, words: Collection[str]) -> str:
        """Return a word of the protocol as it is, and any other text, which may be shown, filtered."""
        return word if word in words else self.text(word, MAX_WORD)

    def _optional(self, text: str | None, limit: int = MAX_TEXT) -> str | None:
        return None if text is None else self.text(text, limit)


class _Limit:
    """A limit on the number of lines in a minute.

    Args:
        first: maximum number in the first minute.
        later: maximum number in each later minute.
    """

    def __init__(self, first: int, later: int):
        self._left = first
        self._later = later
        self._since = time.monotonic()
        self.dropped = 0
        """Number of lines above the limit since the last summary."""

    def take(self) -> bool:
        time_now = time.monotonic()
        if time_now - self._since >= _MINUTE:
            self._since, self._left = time_now, self._later
        if not self._left:
            self.dropped += 1
            return False
        self._left -= 1
        return True


def level_of(line: str) -> str | None:
    """Return the level that a line of a log names; None if it names none.

    The level stands at the beginning, after no more than a time and names: `INFO text`, `WARNING:name:text`,
    `2026-01-02 03:04:05,678 | ERROR | name | text`, `time=… name=… level=INFO message=…`, or it is a property
    of a JSON object. A word that is a level, further on in the text, is not one.
    """
    matches = (pattern.match(line[:_MAX_BEFORE_LEVEL]) for pattern in _LEVEL_PATTERNS)
    return next((_level(match["level"]) for match in matches if match is not None), None)


def _level(name: str) -> str:
    """Return a log level as the protocol names it; INFO for an unknown level."""
    level = _OTHER_NAMES.get(name.upper(), name.upper())
    return level if level in _LEVELS else "INFO"


def _format_line(message: Message) -> tuple[str, str] | None:
    """Return the level and text of a message that counts towards the limit; None if it does not count.

    These are the messages that `log_line` returns a line for; estimates, each as an INFO line without text;
    and traces of an unknown type, each as a warning without text.
    """
    trace = message.trace
    if trace is None or trace.reported_error is not None or trace.analytics is not None:
        return log_line(message)
    return ("WARN" if trace.estimate is None else "INFO"), ""
