"""The Spark session: its settings, and its start beside other work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from pyspark.sql import DataFrame, SparkSession

__all__ = ["DataFrame", "SparkProvider", "SparkSession", "settings"]

DEFAULTS: Mapping[str, str] = {
    "spark.master": "local[*]",
    "spark.app.name": "elt-assets",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    # `_SUCCESS` and `.crc` files beside data files are noise in a Delta table.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
"""For the embedded session; what the user sets wins."""

REQUIRED: Mapping[str, str] = {
    # Correctness rests on these; they can be set on a running session, a remote one included.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.json.enablePartialResults": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.parquet.compression.codec": "zstd",
}


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The whole configuration of a session, from what the user set."""
    remote = "spark.remote" in given
    return {**({} if remote else DEFAULTS), **given, **REQUIRED}


class SparkProvider:
    """A session that starts in the background and is waited for where it is needed.

    Args:
        start: builds the session; called once, in a thread of its own.
    """

    def __init__(self, start: Callable[[], SparkSession]):
        self._start = start
        self._future: Future[SparkSession] | None = None
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Begin the start, if nobody has; returns at once."""
        with self._lock:
            if self._future is None:
                self._future = Future()
                name = "spark-start"
                threading.Thread(target=self._run, args=(self._future,), name=name).start()

    def get(self) -> SparkSession:
        """The session, once it is there; raises what made its start fail."""
        self.warm_up()
        assert self._future is not None
        return self._future.result()

    def _run(self, future: Future[SparkSession]) -> None:
        try:
            session = self._start()
            for key, value in REQUIRED.items():
                session.conf.set(key, value)
            future.set_result(session)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for the session
            future.set_exception(error)
