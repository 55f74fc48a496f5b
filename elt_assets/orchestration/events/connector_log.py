"""Forward the log lines of a connector to the run or to stderr."""

from __future__ import annotations

import logging
import sys

import dagster as dg

from elt_assets.runner.connector_log import LogFunction

_EVENTS = {"FATAL": logging.CRITICAL, "ERROR": logging.ERROR, "WARN": logging.WARNING}


def log_function(log: dg.DagsterLogManager) -> LogFunction:
    """Return a function that logs a line of a connector.

    Warnings and errors become events of the run. All other lines go to stderr, which Dagster stores as the
    compute log of the step; this keeps the event log small.
    """

    def write(level: str, text: str) -> None:
        if level in _EVENTS:
            log.log(_EVENTS[level], text)
        else:
            sys.stderr.write(f"{level} {text}\n")

    return write
