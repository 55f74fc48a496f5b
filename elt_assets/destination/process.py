"""The process of a command: its exit codes, its stdout, its signals and its Spark session."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import BinaryIO, NoReturn

from elt_assets.destination.settings import Settings
from elt_assets.lake.session import SparkProvider, settings, start

OK, FAILED = 0, 1
"""Exit codes."""


class Termination(BaseException):
    """The end of the command by a signal: nothing more is committed.

    It is not an `EltError`: after an error of the source, records before its last state are still committed.
    """

    def __init__(self, number: int):
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.code = 128 + number


@contextlib.contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Yield the process's stdout, for messages only. Other output to stdout, as of Java, goes to stderr."""
    sys.stdout.flush()
    own = os.dup(1)  # child processes do not inherit it
    os.dup2(2, 1)
    try:
        with os.fdopen(own, "wb", closefd=False) as stream:
            yield stream
    finally:
        os.dup2(own, 1)
        os.close(own)


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """Raise `Termination` on SIGTERM and SIGINT during the block. A second one ends the process at once."""

    def end(number: int, _: object) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        raise Termination(number)

    former = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def output_stream(stdout: BinaryIO | None) -> Iterator[BinaryIO]:
    """Yield the stream for a command's output: `stdout`, or else the process's stdout with `signals`."""
    if stdout is not None:
        yield stdout
        return
    with standard_output() as own, signals():
        yield own


def provider(config: Settings) -> SparkProvider:
    """Return the process's own Spark session, which starts when it is first used.

    Raises:
        ConfigError: the Spark settings are not valid.
    """
    spark_settings = settings({}, config.spark)
    return SparkProvider(lambda: start(spark_settings))
