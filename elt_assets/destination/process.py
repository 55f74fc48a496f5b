"""What a command of the lake needs as a process: its stdout, its signals, its Spark."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import BinaryIO, NoReturn

from elt_assets.destination.settings import Settings
from elt_assets.lake.spark.session import SparkProvider, settings, start

OK, FAILED = 0, 1
"""Exit codes."""


class Terminated(BaseException):
    """A signal has asked for the end: no error of a source's, after which what it sent would be committed."""

    def __init__(self, number: int):
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.code = 128 + number


@contextlib.contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """The process's stdout, for messages alone: what else is written there, by Java say, goes to stderr."""
    sys.stdout.flush()
    own = os.dup(1)  # no child inherits it
    os.dup2(2, 1)
    try:
        with os.fdopen(own, "wb", closefd=False) as stream:
            yield stream
    finally:
        os.dup2(own, 1)
        os.close(own)


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """SIGTERM and SIGINT as `Terminated`; a second one ends the process at once."""

    def end(number: int, _: object) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated(number)

    former = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def answering(stdout: BinaryIO | None) -> Iterator[BinaryIO]:
    """Where a command's answers go: there, or to the process's stdout, and then signals end it in order."""
    if stdout is not None:
        yield stdout
        return
    with standard_output() as own, signals():
        yield own


def provider(config: Settings) -> SparkProvider:
    """The process's own session, which starts when it is asked for.

    Raises:
        ConfigError: the settings are wrong.
    """
    wanted = settings({}, config.spark)
    return SparkProvider(lambda: start(wanted))
