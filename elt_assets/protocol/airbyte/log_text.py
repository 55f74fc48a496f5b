"""Log levels and texts of a connector's messages.

A message of a connector cannot forge a line of a log: control characters, line breaks too, are escaped in the
first line; the lines of a stack trace and of an error's details follow it, each indented.
"""

from __future__ import annotations

from elt_assets.protocol.airbyte.messages import Message


def log_line(message: Message) -> tuple[str, str] | None:
    """Return the level and text of a LOG message, or of an error or analytics TRACE; None for others."""
    if message.log is not None:
        return message.log.level, _join_lines(message.log.message, message.log.stack_trace)
    error, trace = message.reported_error, message.trace
    if error is not None:
        details = dict.fromkeys([error.internal_message, error.stack_trace])
        return "ERROR", _join_lines(error.text, *(text for text in details if text != error.text))
    if trace is not None and trace.analytics is not None:
        value = f" = {trace.analytics.value}" if trace.analytics.value else ""
        return "DEBUG", _join_lines(f"analytics of the connector: {trace.analytics.type}{value}")
    return None


def _join_lines(text: str, *details: str | None) -> str:
    """Return a text in one line, and the lines of its details below it."""
    lines = (line for detail in details if detail for line in detail.split("\n"))
    return "\n".join([printable(text, keep="\t"), *(f"    {printable(line)}" for line in lines)])


def printable(text: str, *, keep: str = "\n\t") -> str:
    """Return a text in which characters that control a terminal (its cursor, its colours) are escaped.

    Args:
        keep: control characters that are not escaped.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)
