"""Log levels and texts of a connector's messages."""

from __future__ import annotations

from elt_assets.protocol.airbyte.messages import AnalyticsTrace, ErrorTrace, Log, Message


def log_line(message: Message) -> tuple[str, str] | None:
    """Return the level and text of a LOG message, or of an error or analytics TRACE; None for others."""
    if message.log is not None:
        return message.log.level, _log_text(message.log)
    error, trace = message.reported_error, message.trace
    if error is not None:
        return "ERROR", _error_text(error)
    if trace is not None and trace.analytics is not None:
        return "DEBUG", _analytics_text(trace.analytics)
    return None


def _analytics_text(analytics: AnalyticsTrace) -> str:
    value = f" = {analytics.value}" if analytics.value else ""
    return f"analytics of the connector: {analytics.type}{value}"


def _error_text(error: ErrorTrace) -> str:
    parts = dict.fromkeys([error.text, error.internal_message, error.stack_trace])
    return "\n".join(part for part in parts if part)


def _log_text(log: Log) -> str:
    return f"{log.message}\n{log.stack_trace}" if log.stack_trace else log.message


def printable(text: str, *, keep: str = "\n\t") -> str:
    """Return a text in which characters that control a terminal (its cursor, its colours) are escaped.

    Args:
        keep: control characters that are not escaped.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)
