"""Where the lines go that a connector writes for people while a run is in progress."""

from __future__ import annotations

import logging
import sys

import dagster as dg

from elt_assets.runner.connector_log import Hear

_EVENTS = {"FATAL": logging.CRITICAL, "ERROR": logging.ERROR, "WARN": logging.WARNING}


def hearing(log: dg.DagsterLogManager) -> Hear:
    """Makes warnings and errors events of the run; all other lines go to stderr, which Dagster keeps as the
    step's compute log: an event for each of them would make the event log grow without need."""

    def hear(level: str, text: str) -> None:
        if level in _EVENTS:
            log.log(_EVENTS[level], text)
        else:
            sys.stderr.write(f"{level} {text}\n")

    return hear
