"""The Spark session: its settings, from outside and our own, and its start beside other work."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.lake.spark import class_archive

A = TypeVar("A")
B = TypeVar("B")

__all__ = ["DataFrame", "SparkProvider", "SparkSession", "read_settings", "settings", "start"]

# `_SUCCESS` and `.crc` files beside data files are noise in a Delta table.
_NO_MARKER = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
# Rows that a task decodes at once. Spark's own 4096 are 400 MB, and twice that for a moment, where a row
# has 100 KB.
_ROWS_AT_ONCE = "spark.sql.parquet.columnarReaderBatchSize"

REMOTE_DEFAULTS: Mapping[str, str] = {
    "spark.sql.parquet.compression.codec": "zstd",
    _ROWS_AT_ONCE: "1024",
    _NO_MARKER: "false",
}
"""For a session of another's; what the user sets wins, as over `DEFAULTS`."""

DEFAULTS: Mapping[str, str] = {
    "spark.sql.parquet.compression.codec": "zstd",
    _ROWS_AT_ONCE: "1024",
    "spark.master": "local[*]",
    "spark.app.name": "elt-assets",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    f"spark.hadoop.{_NO_MARKER}": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
"""For a driver of this process's own, which works alone or drives a cluster."""

REQUIRED: Mapping[str, str] = {
    # Correctness rests on these; they can be set on a running session, a remote one included.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.json.enablePartialResults": "true",
    "spark.sql.variant.allowDuplicateKeys": "true",
    "spark.sql.ansi.enabled": "false",
    # A file that is gone or damaged is an error; without it, its rows.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}

STRICT_READ: Mapping[str, str] = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Options of every read of the lake's: what others set on a session that they share does not count."""

WORKER_PYTHON = "spark.pyspark.python"
DRIVER_OPTIONS = "spark.driver.defaultJavaOptions"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_RESOURCE = "SparkResource(spark_config=…)"
_ENTRY = re.compile(r"(spark\.[^ \t\f=:\\]+)(?:[ \t\f]*[=:]|[ \t\f]+(?=[^ \t\f]))(.*)", re.DOTALL)
_NAME_END = re.compile(r"[ \t\f=:]")  # what comes after it may be a secret
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def settings(given: Mapping[str, Any], file: Path | None = None) -> dict[str, Any]:
    """The whole configuration of a session.

    `DEFAULTS`, and what the embedded session needs besides, give way to the file, which gives way to
    `given`; `REQUIRED` stands whatever the others say.

    Args:
        given: what the resource says, by Spark's names.
        file: the user's settings file.

    Raises:
        ConfigError: the file cannot be read, or a required setting is set to something else.
    """
    outside = read_settings(file) if file else {}
    for where, values in ((str(file), outside), (_RESOURCE, given)):
        _check_required(values, where)
    own = {**outside, **given}
    return {**_defaults(own), **own, **REQUIRED}


def read_settings(file: Path) -> dict[str, str]:
    """The entries of a file in Spark's own format, `spark-defaults.conf`: as `spark-submit` reads it,
    but that a line it would ignore is an error.

    Raises:
        ConfigError: there is no such file, it is not UTF-8, or a line is no entry.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the Spark settings file {file} cannot be read: {error}",
            guidance="correct the path in ELT_SPARK, or the file",
        ) from error
    found = {}
    for number, line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise ConfigError(
                f"{file}, line {number}: {_NAME_END.split(line)[0]!r} is no Spark setting with a value",
                guidance="write one setting a line, its name (spark.…), a space and its value: "
                "spark.master spark://host:7077",
            )
        found[entry[1]] = _unescaped(entry[2]).strip()
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Entries with the number of their first line; a backslash at its end joins a line with the next."""
    whole, first = "", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        part = line.lstrip(" \t\f")
        if not whole:
            first = number
            if not part or part[0] in "#!":
                continue
        whole += part
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1]
            continue
        yield first, whole
        whole = ""
    if whole:
        yield first, whole


def _unescaped(value: str) -> str:
    def character(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(character, value)


def _check_required(values: Mapping[str, Any], where: str) -> None:
    for key, required in REQUIRED.items():
        value = str(values.get(key, required))
        if value.casefold() != required.casefold():
            raise ConfigError(
                f"{where} sets {key} to {value!r}; the lake needs {required!r}",
                guidance=f"remove {key} from {where}",
            )


def _defaults(own: Mapping[str, Any]) -> dict[str, str]:
    if "spark.remote" in own:
        return dict(REMOTE_DEFAULTS)
    if not str(own.get("spark.master", DEFAULTS["spark.master"])).startswith("local"):
        # A cluster's warnings say why a job waits.
        return {**DEFAULTS, DRIVER_OPTIONS: _logging("warn")}
    return {
        **DEFAULTS,
        DRIVER_OPTIONS: f"{_logging('error')} {class_archive.java_options()}".strip(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Enough for every core; adaptive execution joins small ones. Spark's 200 cost a merge of
        # 100,000 rows a quarter of its time.
        "spark.sql.shuffle.partitions": str(max(16, os.cpu_count() or 1)),
        # Spark's own default is whatever `python3` is on the PATH.
        WORKER_PYTHON: os.environ.get("PYSPARK_PYTHON") or sys.executable,
    }


def _logging(level: str) -> str:
    """Return the options with which the driver's JVM logs from its first line on by our settings."""
    return f'"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}" -Delt.log.level={level}'


def start(wanted: Mapping[str, Any]) -> SparkSession:
    """The process's session, with such settings.

    Raises:
        SystemFailure: Spark does not start, or its cluster cannot be reached.
    """
    if WORKER_PYTHON in wanted:  # which only `spark-submit` reads; PySpark itself reads this one:
        os.environ["PYSPARK_PYTHON"] = str(wanted[WORKER_PYTHON])
    try:
        return SparkSession.builder.config(map=dict(wanted)).getOrCreate()
    except Exception as error:  # of py4j, gRPC, PySpark: whatever it is, it is told to a person
        where = wanted.get("spark.remote") or wanted["spark.master"]
        raise SystemFailure(
            f"Spark could not be started at {where}",
            guidance="see whether it is up and can be reached from here, and what this process's "
            "stderr says; on this machine, whether JAVA_HOME is a Java 17 or newer",
            detail=str(error),
        ) from error


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

    @property
    def ready(self) -> bool:
        """Whether the start is over, well or not."""
        return self._future is not None and self._future.done()

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


def side_by_side(beside: Callable[[], A], here: Callable[[], B]) -> tuple[A, B]:
    """Run two pieces of Spark work at once: that keeps all cores busy where one of them alone does not.

    Raises:
        what `here` raises, or else what `beside` does, once both have ended.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="beside") as pool:
        other = pool.submit(beside)
        found = here()
        return other.result(), found
