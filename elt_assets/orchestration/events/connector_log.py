"""Forward the log lines of a connector to the run.

A quiet sync says little: only warnings and errors of a connector are lines of the run. All others are shown
and stored only if the instance asks for DEBUG. They matter when something fails: then the last of them become
one line of the run, which is stored and shown.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar

import dagster as dg

from elt_assets.runner.connector_log import LogFunction

LAST_LINES = 30
"""Number of lines that are shown if the connector fails."""
MAX_LINE = 500
"""Maximum number of characters of each of them."""
SHOWS_DETAILS: ContextVar[bool] = ContextVar("shows_details", default=False)
"""Whether all lines of connectors go to stderr, which Dagster stores as the compute log: `--verbose`."""
_EVENTS = {"FATAL": logging.CRITICAL, "ERROR": logging.ERROR, "WARN": logging.WARNING}


@contextlib.contextmanager
def connector_lines(log: dg.DagsterLogManager) -> Iterator[LogFunction]:
    """Yield a function that logs a line of a connector; log the last lines if the block fails."""
    last: deque[str] = deque(maxlen=LAST_LINES)
    # An instance without a level shows and stores every line: it has not asked for those of connectors.
    asks_for_debug = logging.NOTSET < log.level <= logging.DEBUG

    def write(level: str, text: str) -> None:
        line = f"{level} {text}"
        if level in _EVENTS:
            log.log(_EVENTS[level], text)
        elif SHOWS_DETAILS.get():
            sys.stderr.write(f"{line}\n")
        elif asks_for_debug:
            log.debug(line)
        else:
            last.append(line[:MAX_LINE])

    try:
        yield write
    except Exception:  # also a fault of the machine, which becomes an error of this project later
        if last:
            log.warning("\n".join(["the last lines of the connector's log:", *last]))
        raise
