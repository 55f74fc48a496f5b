"""The Spark session: its settings, and its start in the background."""

from __future__ import annotations

import errno
import os
import re
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.lake.spark import class_archive
from elt_assets.lake.spark.local_files import choose_local_dir
from elt_assets.machine_faults import translate

A = TypeVar("A")
B = TypeVar("B")

__all__ = [
    "DataFrame",
    "SparkProvider",
    "SparkSession",
    "adopt",
    "check_required",
    "read_settings",
    "settings",
    "start",
]

# A Delta table does not need the `_SUCCESS` and `.crc` files that Spark writes beside data files.
_NO_MARKER = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
# Rows that a task decodes at once. With rows of 100 KB, Spark's default of 4096 rows takes 400 MB, and
# for a short time twice that.
_BATCH_ROWS = "spark.sql.parquet.columnarReaderBatchSize"

REMOTE_DEFAULTS: Mapping[str, str] = {
    "spark.sql.parquet.compression.codec": "zstd",
    _BATCH_ROWS: "1024",
    _NO_MARKER: "false",
}
"""Defaults for a session of a Spark Connect server (`spark.remote`). The user's settings override them."""

DEFAULTS: Mapping[str, str] = {
    "spark.sql.parquet.compression.codec": "zstd",
    _BATCH_ROWS: "1024",
    "spark.master": "local[*]",
    "spark.app.name": "elt-assets",
    "spark.ui.enabled": "false",
    # Python's workers do not import what lies in the working directory.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.ui.showConsoleProgress": "false",
    # With "true", each method of an expression asks the JVM three times for the sake of error messages.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.driver.memory": "2g",
    f"spark.hadoop.{_NO_MARKER}": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
"""Defaults for a driver in this process, local or of a cluster. The user's settings override them."""

REQUIRED: Mapping[str, str] = {
    # Correct results depend on these. They can be set on a running session, also on a remote one.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.json.enablePartialResults": "true",
    "spark.sql.variant.allowDuplicateKeys": "true",
    "spark.sql.ansi.enabled": "false",
    # A missing or damaged file is an error. With "true", Spark would silently omit its rows.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}

STRICT_READ: Mapping[str, str] = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Options of every read of the lake. They override what other users of a shared session set."""

WORKER_PYTHON = "spark.pyspark.python"
DRIVER_OPTIONS = "spark.driver.defaultJavaOptions"
_LATE_OPTIMISING = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""JVM options of an embedded session: the optimising compiler waits ten times longer than by default. It then
compiles the loops over rows, and not the code that only starts Spark and plans jobs."""
_LOOKED_UP = ("PythonUtils", "PythonSQLUtils", "functions", "org.apache.spark.sql.functions")
"""Java classes as PySpark names them."""
_OPEN_FILES = 512
"""Open files that a JVM with Spark needs to start: it opens each of about 300 JAR files."""
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_RESOURCE = "SparkResource(spark_config=…)"
_ENTRY = re.compile(r"(spark\.[^ \t\f=:\\]+)(?:[ \t\f]*[=:]|[ \t\f]+(?=[^ \t\f]))(.*)", re.DOTALL)
_IN_PROCESS = re.compile(r"local(\[.*\])?")
"""Masters that run everything in one JVM: Spark then makes the secret of `spark.authenticate` itself."""
_NAME_END = re.compile(r"[ \t\f=:]")  # the rest of the line may be a secret
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def settings(
    configured: Mapping[str, Any], of_project: Path | Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the whole configuration of a session.

    The project's settings override the defaults, and `configured` overrides both. Nothing overrides
    `REQUIRED`.

    Args:
        configured: settings of the resource, by Spark's names.
        of_project: the settings of the project, or the file that has them.

    Raises:
        ConfigError: the file cannot be read; or it or `configured` sets a required setting to another value.
    """
    project_settings = (
        read_settings(of_project) if isinstance(of_project, Path) else of_project or {}
    )
    where = str(of_project) if isinstance(of_project, Path) else "the setting `spark`"
    for place, values in ((where, project_settings), (_RESOURCE, configured)):
        check_required(values, place)
    user = {**project_settings, **configured}
    return {**_defaults(user), **user, **REQUIRED}


def read_settings(file: Path) -> dict[str, str]:
    """Return the entries of a file in the format of `spark-defaults.conf`.

    The file is read as `spark-submit` reads it, except that a line which `spark-submit` ignores is an error.

    Raises:
        ConfigError: the file does not exist, it is not UTF-8, or a line is not an entry.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the Spark settings file {file} cannot be read: {error}",
            guidance="correct the path in ELT_SPARK, or correct the file",
        ) from error
    entries = {}
    for number, line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise ConfigError(
                f"{file}, line {number}: {_NAME_END.split(line)[0]!r} is not a Spark setting with a value",
                guidance="write one setting per line: its name (spark.…), a space and its value, for "
                "example: spark.master spark://host:7077",
            )
        entries[entry[1]] = _unescape(entry[2]).strip()
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield entries with the number of their first line. A backslash at its end joins a line to the next."""
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


def _unescape(value: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(character, value)


def check_required(values: Mapping[str, Any], where: str) -> None:
    """Check that settings leave those that the lake requires as they must be.

    Raises:
        ConfigError: one has another value; names it, and `where` it is set.
    """
    for key, required in REQUIRED.items():
        value = str(values.get(key, required))
        if value.casefold() != required.casefold():
            raise ConfigError(
                f"{where} sets {key} to {value!r}; the lake requires {required!r}",
                guidance=f"remove {key} from {where}",
            )


def _defaults(user: Mapping[str, Any]) -> dict[str, str]:
    if "spark.remote" in user:
        return dict(REMOTE_DEFAULTS)
    master = str(user.get("spark.master", DEFAULTS["spark.master"]))
    if not master.startswith("local"):
        # The warnings of a cluster report why a job waits.
        return {**DEFAULTS, DRIVER_OPTIONS: f"{_log_options('warn')} -Delt.tasks.level=warn"}
    return {
        **DEFAULTS,
        DRIVER_OPTIONS: " ".join(
            [_log_options("error"), _LATE_OPTIMISING, class_archive.java_options()]
        ).strip(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Spark's ports on the loopback address accept only who knows a secret, which this JVM makes.
        **({"spark.authenticate": "true"} if _IN_PROCESS.fullmatch(master) else {}),
        # Enough for every core; adaptive execution joins small partitions. Spark's default of 200 takes
        # a quarter of the time of a merge of 100,000 rows.
        "spark.sql.shuffle.partitions": str(max(16, os.cpu_count() or 1)),
        # Spark's default is the `python3` on the PATH.
        WORKER_PYTHON: os.environ.get("PYSPARK_PYTHON") or sys.executable,
    }


def _log_options(level: str) -> str:
    """Return the JVM options that apply this project's log settings from the first line of the log."""
    return f'"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}" -Delt.log.level={level}'


def start(config: Mapping[str, Any]) -> SparkSession:
    """Start the session of this process, or return it if it has started; apply the settings to it.

    Raises:
        SystemFailure: Spark does not start, or its cluster cannot be reached.
    """
    if _jvm_has_ended():
        _forget_session()
    if WORKER_PYTHON in config:  # only `spark-submit` reads it; PySpark itself reads the variable
        os.environ["PYSPARK_PYTHON"] = str(config[WORKER_PYTHON])
    try:
        own = choose_local_dir(config)
        session = SparkSession.builder.config(map={**config, **own}).getOrCreate()
    except Exception as error:  # py4j, gRPC and PySpark raise errors of many types
        where = config.get("spark.remote") or config["spark.master"]
        fault = _machine_fault(error, where) if str(where).startswith("local") else None
        if fault is not None:
            raise fault from error
        raise SystemFailure(
            f"Spark cannot be started at {where}",
            guidance="check that Spark runs and is reachable from this host, and read the stderr of this "
            "process; for a local session, check that JAVA_HOME is a Java 17 or newer",
            detail=str(error),
        ) from error
    if str(config.get("spark.master", "")).startswith("local"):
        class_archive.make_later()
    return session


def adopt(session: SparkSession) -> SparkSession:
    """Apply the settings that the lake requires to a session that another program part has started.

    Raises:
        ConfigError: a setting cannot be changed in this session.
    """
    for key, value in REQUIRED.items():
        try:
            session.conf.set(key, value)
        except Exception as error:  # noqa: PERF203 - the error names the setting
            raise ConfigError(
                f"the Spark session does not accept {key} = {value!r}, which the lake requires",
                guidance=f"start the session with {key} = {value!r}",
            ) from error
    _keep_classes(session)
    _use_this_python(session)
    return session


def _use_this_python(session: SparkSession) -> None:
    """Let the tasks of a local session run in the Python of this process, unless another one is configured.

    Spark's default is the `python3` on the PATH, which need not have the packages of this process.
    """
    context = getattr(session, "_sc", None)  # a session of Spark Connect has none
    if context is None or not context.master.startswith("local"):
        return
    if not os.environ.get("PYSPARK_PYTHON") and context.getConf().get(WORKER_PYTHON) is None:
        context.pythonExec = sys.executable


def _machine_fault(error: Exception, where: str) -> EltError | None:
    """Return the fault of this machine for which a local Spark did not start; None if none is known."""
    occasion = f"while Spark was started at {where}"
    fault = translate(error, occasion)
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)  # a JVM raises its limit to the hard one
    if fault is None and 0 <= limit < _OPEN_FILES:
        # A JVM that cannot open its files reports missing classes or settings, on stderr only.
        return translate(OSError(errno.EMFILE, f"the limit of open files is {limit}"), occasion)
    return fault


def _keep_classes(session: SparkSession) -> None:
    """Keep the Java classes that PySpark looks up whenever it builds an expression.

    To find a class by its short name, the JVM searches all its JAR files. Without this, the lookups take an
    eighth of the CPU time of a small commit. A session of Spark Connect has no JVM here.
    """
    jvm = getattr(session, "_jvm", None)
    for name in _LOOKED_UP if jvm is not None else ():
        setattr(jvm, name, getattr(jvm, name))


def _jvm_has_ended() -> bool:
    """Return whether the JVM that PySpark started in this process has ended, for example by a kill."""
    process = getattr(getattr(SparkContext, "_gateway", None), "proc", None)
    return process is not None and process.poll() is not None


def _forget_session() -> None:
    """Let PySpark start another JVM. It keeps the session of a JVM that has ended, so that a retry in the
    same process would fail, too."""
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        setattr(SparkContext, name, None)
    for name in ("_instantiatedSession", "_activeSession"):
        setattr(SparkSession, name, None)


class SparkProvider:
    """A session that starts in the background; `get` waits for it.

    Args:
        start: returns a new session. It is called once, in a separate thread.
    """

    def __init__(self, start: Callable[[], SparkSession]):
        self._start = start
        self._future: Future[SparkSession] | None = None
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Start the session, if it has not been started or its JVM has ended since. Returns at once."""
        with self._lock:
            if self._future is None or (self._future.done() and _jvm_has_ended()):
                self._future = Future()
                name = "spark-start"
                threading.Thread(target=self._run, args=(self._future,), name=name).start()

    @property
    def is_starting(self) -> bool:
        """Return whether the session is being started."""
        return self._future is not None and not self._future.done()

    def get(self) -> SparkSession:
        """Wait for the session and return it. Raises the error of its start if that failed."""
        self.warm_up()
        assert self._future is not None
        return self._future.result()

    def _run(self, future: Future[SparkSession]) -> None:
        try:
            future.set_result(adopt(self._start()))
        except BaseException as error:  # noqa: BLE001 - `get` raises it
            future.set_exception(error)


def side_by_side(beside: Callable[[], A], here: Callable[[], B]) -> tuple[A, B]:
    """Run two pieces of Spark work at the same time, `beside` in another thread; return both results.

    This keeps all cores busy where one piece alone does not. If both fail, the error of `here` is raised.
    Errors are raised after both have ended.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="beside") as pool:
        future = pool.submit(beside)
        result = here()
        return future.result(), result
