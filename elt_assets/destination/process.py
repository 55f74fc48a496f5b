"""The process of a command of `elt-destination` or `target-elt`: streams, signals, exit codes and Spark.

First `read_messages`, from stdin, in the protocol of Airbyte or Singer; then `log_losses`, for the log at the
end; then stdout, for messages only, and the signals that end the command.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import BinaryIO, NoReturn, cast

from elt_assets.destination.settings import Settings
from elt_assets.lake.session import SparkProvider, settings, start
from elt_assets.pipeline.progress import describe_losses
from elt_assets.pipeline.read import Read
from elt_assets.protocol.lines import MAX_LINE, ReadInto, blocks
from elt_assets.protocol.messages import Message, Received

_GATHER_MS = 10
"""Time in milliseconds for which lines that were received wait for more input."""
IDLE_MS = 500
"""Milliseconds without new bytes after which `IDLE` is yielded."""
IDLE = Message(type="NOTHING")
"""A message that has no content: no input is available now, so finished work can be reported."""


def read_messages(
    stdin: BinaryIO, read: Callable[[bytes], Iterable[Received]]
) -> Iterator[Received]:
    """Yield the messages to the end of the input, and `IDLE` while no input is available.

    Args:
        read: returns the messages of a block of lines.

    Raises:
        SystemFailure: a line is longer than `MAX_LINE`; or as `read`.
    """
    for block in blocks(_reader(stdin), MAX_LINE, "the source"):
        if block:
            yield from read(block)
        else:
            yield IDLE


def _reader(stdin: BinaryIO) -> ReadInto:
    """Return a function that reads the input, and waits for `IDLE_MS` if there is none."""
    try:
        descriptor = stdin.fileno()
    except io.UnsupportedOperation:
        return lambda buffer, _: cast("io.BytesIO", stdin).readinto(buffer)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)

    def read(buffer: memoryview, has_lines: bool) -> int | None:
        ready = poll.poll(_GATHER_MS if has_lines else IDLE_MS)
        return os.readv(descriptor, [buffer]) if ready else None

    return read


@contextlib.contextmanager
def log_losses(read: Read, log: Callable[[str, str], object]) -> Iterator[None]:
    """Log one warning for each loss when the block ends, also with an error: what is committed stays."""
    try:
        yield
    finally:
        for stream, figures in read.committed.items():
            stored = replace(figures, read=figures.committed + figures.rejected)
            for loss in describe_losses(stored):
                log("WARN", f"stream {str(stream)!r}: {loss}")


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
