"""The one way from what a connector says to what people read: masked, then cut, then limited in number.

Every text of a connector goes through here: LOG and TRACE messages, a check's answer, lines of stderr and
lines of stdout that are no messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from elt_assets.errors import SystemFailure
from elt_assets.protocol.airbyte.log_text import log_line, printable
from elt_assets.protocol.airbyte.messages import ErrorTrace, Log, Message, Trace
from elt_assets.protocol.masking import Masker

Hear = Callable[[str, str], None]
"""Takes a line for the log: its level, as in the protocol, and its text."""


def ignore(_level: str, _text: str) -> None:
    """Hear nothing."""


TEXT = 2_000
"""Characters of a message that are shown."""
TRACE = 20_000
"""Characters of a stack trace."""
_LOOKED_AT = 4 * TRACE
"""Characters of a text that are searched for secrets; none after these is shown."""
MOST = 200
"""Lines of each kind (warnings and errors; all else) that are shown in a minute."""
MOST_LATER = 20
"""Warnings and errors that are shown in each minute after the first: they are kept as events."""
MOST_ERRORS = 1_000
"""ERROR traces that one process may send."""
_MINUTE = 60.0
_SEVERE = ("WARN", "ERROR", "FATAL")
_LEVELS = (*_SEVERE, "INFO", "DEBUG", "TRACE")
_OTHER_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}


class ConnectorLog:
    """What one process of a connector says, as it may be shown."""

    def __init__(self, mask: Masker, name: str):
        self._mask = mask
        self._name = name
        self._limits = {True: _Limit(MOST, MOST_LATER), False: _Limit(MOST, MOST)}
        self._errors = 0

    def text(self, text: str, most: int = TEXT) -> str:
        """A text without secrets and control characters, of limited length."""
        masked = printable(self._mask(text[:_LOOKED_AT]))
        return masked if len(masked) <= most else f"{masked[:most]}… (cut)"

    def lines(self, text: str) -> str:
        """A text of many lines, each cut by itself."""
        return self._mask("\n".join(map(self.text, text.splitlines())))

    def failure(self, failure: SystemFailure) -> SystemFailure:
        """A failure that quotes what the connector sent, as it may be shown."""
        return SystemFailure(
            self.text(failure.message),
            guidance=failure.guidance,
            detail=self._optional(failure.detail),
        )

    def shown(self, message: Message) -> Iterator[Message]:
        """The message as it may be shown, after a summary of those that were dropped before it; nothing, if
        it is one too many.

        Raises:
            SystemFailure: the connector has sent more errors than anybody could read.
        """
        self._clean(message)
        trace = message.trace
        if trace is not None and trace.error is not None:
            self._count_error()
        elif trace is not None and trace.stream_status is not None:
            if trace.stream_status.reasons and not self._limits[True].take():
                trace.stream_status.reasons = None
        elif (line := _for_log(message)) is not None:
            severe = line[0] in _SEVERE
            if not self._limits[severe].take():
                return
            yield from self._summary(severe=severe)
        yield message

    def stderr(self, lines: Iterable[str], lost: int) -> Iterator[Message]:
        """Lines of stderr, as messages; `lost`: how many more there were."""
        self._limits[False].dropped += lost
        for line in lines:
            yield from self.shown(Message(type="LOG", log=Log(level="DEBUG", message=line)))

    def end(self) -> Iterator[Message]:
        """What there is to say of what was dropped since it was last said."""
        for severe in (True, False):
            yield from self._summary(severe=severe)

    def _summary(self, *, severe: bool) -> Iterator[Message]:
        limit = self._limits[severe]
        dropped, limit.dropped = limit.dropped, 0
        if dropped:
            kind = "warnings and errors" if severe else "log lines"
            text = (
                f"{dropped:,} {kind} of connector {self._name} were dropped: too many in a minute"
            )
            log = Log(level="WARN" if severe else "INFO", message=text)
            yield Message(type="LOG", log=log)

    def _count_error(self) -> None:
        self._errors += 1
        if self._errors > MOST_ERRORS:
            raise SystemFailure(
                f"connector {self._name} sent more than {MOST_ERRORS:,} ERROR traces",
                guidance="the first of them are in the log",
            )

    def _clean(self, message: Message) -> None:
        if message.log is not None:
            message.log.level = _level(message.log.level)
            message.log.message = self.text(message.log.message)
            message.log.stack_trace = self._optional(message.log.stack_trace, TRACE)
        if message.trace is not None:
            self._clean_trace(message.trace)
        status = message.connectionStatus
        if status is not None:
            status.message = self._optional(status.message)

    def _clean_trace(self, trace: Trace) -> None:
        if trace.error is not None:
            self._clean_error(trace.error)
        if trace.analytics is not None:
            trace.analytics.type = self.text(trace.analytics.type)
            trace.analytics.value = self._optional(trace.analytics.value)

    def _clean_error(self, error: ErrorTrace) -> None:
        error.message = self._optional(error.message)
        error.internal_message = self._optional(error.internal_message)
        error.stack_trace = self._optional(error.stack_trace, TRACE)

    def _optional(self, text: str | None, most: int = TEXT) -> str | None:
        return None if text is None else self.text(text, most)


class _Limit:
    """So many in the first minute, and so many in each one after it.

    `dropped`: how many were too many, since somebody asked.
    """

    def __init__(self, first: int, later: int):
        self._left = first
        self._later = later
        self._since = time.monotonic()
        self.dropped = 0

    def take(self) -> bool:
        now = time.monotonic()
        if now - self._since >= _MINUTE:
            self._since, self._left = now, self._later
        if not self._left:
            self.dropped += 1
            return False
        self._left -= 1
        return True


def _level(name: str) -> str:
    """A level of the protocol; one that it does not have counts as INFO."""
    level = _OTHER_NAMES.get(name.upper(), name.upper())
    return level if level in _LEVELS else "INFO"


def _for_log(message: Message) -> tuple[str, str] | None:
    """As `log_line`; an estimate is a line, too."""
    estimated = message.trace is not None and message.trace.estimate is not None
    return ("INFO", "") if estimated else log_line(message)
