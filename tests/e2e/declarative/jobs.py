"""The loop of a worker process that reads sources: one job a line on standard input, one result a line on
standard output. A worker takes many jobs, because the import of an engine takes longer than most of them.

Only the standard library is imported here: the oracle's environment has nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

Json = dict[str, Any]

LEAST_WAIT = 0.15
"""Waits that are shorter, in seconds, are not recorded: an engine waits for its own threads."""
MAX_CAUSE = 1_000
"""The number of characters of a cause that the test shows."""
_sleep = time.sleep


class Waits:
    """Takes the place of `time.sleep`: waits take no time, and are recorded.

    Attributes:
        seconds: the waits of the present job.
        is_real: whether waits take their time.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.is_real = False

    def __call__(self, seconds: float) -> None:
        if seconds >= LEAST_WAIT:
            self.seconds.append(seconds)
        _sleep(seconds if self.is_real else min(seconds, 0.002))


Engine = Callable[[Json], Iterable[Json]]
"""Does a job, and gives the messages of the source."""


def serve(import_engine: Callable[[], Engine]) -> None:
    """Do the jobs until standard input ends.

    Args:
        import_engine: imports and returns an engine, after `time.sleep` was replaced.
    """
    waits = Waits()
    time.sleep = waits  # type: ignore[assignment]
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints is no result
    engine = import_engine()
    for line in sys.stdin:
        job = json.loads(line)
        waits.seconds, waits.is_real = [], bool(job.get("real_time"))
        messages: list[Json] = []
        result: Json = {"messages": messages, "crash": None}
        try:
            messages.extend(engine(job))
        except Exception as error:  # noqa: BLE001 - the test shows it
            cause = f", because of {error.__cause__}"[:MAX_CAUSE] if error.__cause__ else ""
            result["crash"] = f"{type(error).__name__}: {error}{cause}"
        result["waits"] = waits.seconds
        output.write(json.dumps(result, default=str) + "\n")
        output.flush()
