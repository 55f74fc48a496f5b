"""The Spark session: its settings, and its start in the background; for runs of Dagster and `destination`.

Started by `orchestration.resources` and `destination.process`, and handed to `pipeline` and `lake` as a
`SparkProvider`.

A process has one Spark (`SparkContext`), which serves whoever runs in it. The lake works in a session of its
own there: its SQL settings, temporary views and current catalog are not those of the session that others get
from `SparkSession.builder.getOrCreate()`, whichever of both is first. What the first one decides for all
(master, memory, JVM options) is in docs/dagster.md, "Beside other assets".
Test: `tests/lake/test_own_session.py`

First two expressions of Spark that several modules need, and the folder for shuffled, spilled and cached
rows; then the settings, the start of a session, and `SparkProvider`, by which all other modules get it.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import logging
import os
import re
import resource
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from pyspark import SparkConf, SparkContext
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.utils import is_remote

from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.lake import class_archive
from elt_assets.machine_faults import translate
from elt_assets.storage.folders import scratch


def value_at(parts: Sequence[str]) -> Expression:
    """Return a column of the table, or a field nested in one. Names may contain dots and backticks."""
    first, *rest = parts
    column = f.col("`" + first.replace("`", "``") + "`")
    return reduce(lambda value, name: value.getField(name), rest, column)


def make_empty(spark: SparkSession, schema: t.StructType) -> DataFrame:
    """Return no rows. `createDataFrame` would make the session active in the thread, for others too."""
    columns = (f.lit(None).cast(field.dataType).alias(field.name) for field in schema)
    return spark.range(0).select(*columns)


LOCAL_DIR = "spark.local.dir"
_VARIABLE = "SPARK_LOCAL_DIRS"


def choose_local_dir(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the setting of a private folder for a session on this machine; nothing if the user has set one.

    Spark writes shuffled, spilled and cached rows there. Its own default is the folder for temporary files,
    in directories that every user of the machine can read. The executors of a cluster, and a Connect server,
    have folders of their own, on other machines.
    """
    is_here = str(config.get("spark.master", "")).startswith("local")
    if not is_here or LOCAL_DIR in config or os.environ.get(_VARIABLE):
        return {}
    return {LOCAL_DIR: str(_make_folder(os.getpid()))}


@functools.cache
def _make_folder(_process: int) -> Path:
    """Create the folder of this process, which is removed when it ends; after a kill, by the next process."""
    stack = contextlib.ExitStack()
    folder = stack.enter_context(scratch(Path(tempfile.gettempdir()), "spark"))
    atexit.register(stack.close)
    return folder


A = TypeVar("A")
B = TypeVar("B")

__all__ = [
    "DataFrame",
    "SparkProvider",
    "SparkSession",
    "activate_shared_session",
    "check_required",
    "open_session",
    "read_settings",
    "settings",
    "start",
]

# A Delta table does not need the `_SUCCESS` and `.crc` files that Spark writes beside data files.
_NO_MARKER = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
# Rows that a task decodes at once. With rows of 100 KB, Spark's default of 4096 rows takes 400 MB, and
# for a short time twice that.
_BATCH_ROWS = "spark.sql.parquet.columnarReaderBatchSize"

SESSION_DEFAULTS: Mapping[str, str] = {
    "spark.sql.parquet.compression.codec": "zstd",
    _BATCH_ROWS: "1024",
    _NO_MARKER: "false",
}
"""Defaults for any session, also one of a Spark Connect server. The user's settings override them."""

DEFAULTS: Mapping[str, str] = {
    **SESSION_DEFAULTS,
    # Hadoop shares the file systems of a process. One that is not shared leaves those of others as they are.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
    "spark.master": "local[*]",
    "spark.app.name": "elt-assets",
    "spark.ui.enabled": "false",
    # Python's workers do not import what lies in the working directory.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    # Tasks of RDDs have what those of DataFrames have: workers are shared if their variables are equal. Each
    # first worker imports PySpark, pandas and pyarrow: 3 core-seconds.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    "spark.ui.showConsoleProgress": "false",
    # With "true", each method of an expression asks the JVM three times for the sake of error messages.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.driver.memory": "2g",
}
"""Defaults for a driver in this process, local or of a cluster. The user's settings override them."""

REQUIRED: Mapping[str, str] = {
    # Correct results depend on these. They can be set on a running session, also on a remote one.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.json.enablePartialResults": "true",
    "spark.sql.variant.allowDuplicateKeys": "true",
    "spark.sql.ansi.enabled": "false",
    # A missing or damaged file is an error. With "true", Spark would silently omit its rows.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}

STRICT_READ: Mapping[str, str] = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
}
"""Options of every read of the lake. They override the settings of the session that reads, which may be a
team's (`read_table(spark, …)`)."""

_REMOTE = "spark.remote"
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
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
_log = logging.getLogger(__name__)
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
    if _REMOTE in user:
        return dict(SESSION_DEFAULTS)
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
        _SHUFFLE_PARTITIONS: str(max(16, os.cpu_count() or 1)),
        # Spark's default is the `python3` on the PATH.
        WORKER_PYTHON: os.environ.get("PYSPARK_PYTHON") or sys.executable,
    }


def _log_options(level: str) -> str:
    """Return the JVM options that apply this project's log settings from the first line of the log."""
    return f'"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}" -Delt.log.level={level}'


def start(config: Mapping[str, Any]) -> SparkSession:
    """Return a session of its own, with these settings, in the Spark of this process.

    Spark is started if it does not run. If it does, settings that Spark takes only at its start are those of
    whoever started it.

    Raises:
        SystemFailure: Spark does not start, or its cluster cannot be reached.
        ConfigError: a setting has a value that Spark does not accept.
    """
    if _jvm_has_ended():
        # PySpark keeps the session of a JVM that has ended: a retry would get it.
        for name in ("_gateway", "_jvm", "_active_spark_context"):
            setattr(SparkContext, name, None)
        for name in ("_instantiatedSession", "_activeSession"):
            setattr(SparkSession, name, None)
    running: SparkContext | None = getattr(SparkContext, "_active_spark_context", None)
    if running is not None:
        _log_ignored(config, running)
        return open_session(SparkSession.builder.getOrCreate(), config)
    shared = _start_spark(config)
    if str(config.get("spark.master", "")).startswith("local"):
        class_archive.make_later()
    return open_session(shared, config)


def _start_spark(config: Mapping[str, Any]) -> SparkSession:
    """Start Spark with the settings that belong to all sessions; return the session that others get."""
    try:
        own = _list_session_settings(config)
        shared = {key: value for key, value in config.items() if key not in own}
        shared |= choose_local_dir(config)
        session = SparkSession.builder.config(map=shared).getOrCreate()
    except Exception as error:  # py4j, gRPC and PySpark raise errors of many types
        where = config.get(_REMOTE) or config["spark.master"]
        fault = _machine_fault(error, where) if str(where).startswith("local") else None
        if fault is not None:
            raise fault from error
        raise SystemFailure(
            f"Spark cannot be started at {where}",
            guidance="check that Spark runs and is reachable from this host, and read the stderr of this "
            "process; for a local session, check that JAVA_HOME is a Java 17 or newer",
            detail=str(error),
        ) from error
    if WORKER_PYTHON in config and _REMOTE not in config:
        # Only `spark-submit` reads the setting. PySpark reads PYSPARK_PYTHON, of the whole process.
        session.sparkContext.pythonExec = str(config[WORKER_PYTHON])
    return session


def _list_session_settings(config: Mapping[str, Any]) -> set[str]:
    """Return the names of the settings that can differ between the sessions of one Spark.

    They are those of Spark SQL, and those of Hadoop by Hadoop's names (without the prefix `spark.hadoop.`).
    """
    names = {
        name for name in config if name.startswith("spark.sql.") or not name.startswith("spark.")
    }
    unknown = names - {*DEFAULTS, *REQUIRED, _SHUFFLE_PARTITIONS}
    if unknown and not (_REMOTE in config or is_remote()):
        # Spark takes some settings of SQL only at its start: `spark.sql.extensions`. The JVM knows which.
        start_settings = [(name, str(config[name])) for name in config if name not in names]
        start_jvm: Any = getattr(SparkContext, "_ensure_initialized", None)
        start_jvm(conf=SparkConf(loadDefaults=False).setAll(start_settings))
        jvm = getattr(SparkContext, "_jvm", None)
        sql: Any = getattr(jvm, "org.apache.spark.sql.internal.SQLConf", None)
        names -= {name for name in unknown if sql.isStaticConfigKey(name)}
    return names


def _log_ignored(config: Mapping[str, Any], context: SparkContext) -> None:
    """Log which of the user's settings have no effect, because Spark runs already."""
    present, defaults = context.getConf(), _defaults(config)
    ignored = [
        name
        for name in sorted(set(config) - _list_session_settings(config))
        if config[name] != defaults.get(name) and str(config[name]) != present.get(name)
    ]
    if ignored:
        _log.warning(
            "another part of this process has started Spark, so these settings of elt have no effect: %s; "
            "set them where Spark is started, or run the streams in a process of their own",
            ", ".join(ignored),
        )


def open_session(shared: SparkSession, config: Mapping[str, Any]) -> SparkSession:
    """Return the session of the lake in the Spark of another session, which stays as it is.

    With the same settings it is the same session, so all resources and assets of a process share it.

    Args:
        config: settings; those that Spark takes only at its start are left out.

    Raises:
        ConfigError: Spark does not accept a setting.
    """
    key = id(shared), tuple(sorted((name, str(value)) for name, value in config.items()))
    with _opening:
        if key not in _opened:
            _opened[key] = shared, _open_session(shared, config)
        return _opened[key][1]


_opening = threading.Lock()
_opened: dict[tuple[int, Any], tuple[SparkSession, SparkSession]] = {}
"""The sessions of the lake, each with the one that it was opened beside."""


def _open_session(shared: SparkSession, config: Mapping[str, Any]) -> SparkSession:
    session = _open_another(shared, config.get(_REMOTE))
    own = {name: config[name] for name in _list_session_settings(config)}
    for key, value in {**SESSION_DEFAULTS, **own, **REQUIRED}.items():
        try:
            session.conf.set(key, value)
        except Exception as error:  # noqa: PERF203 - the error names the setting
            if key not in own and key not in REQUIRED:
                continue  # a default only makes syncs faster
            guidance = f"correct the value, or remove {key} from the settings of Spark"
            if key in REQUIRED:
                guidance = "the lake needs it: let the Spark server accept it, or use another one"
            raise ConfigError(
                f"the Spark session does not accept {key} = {value!r}",
                guidance=guidance,
                detail=str(error),
            ) from error
    _keep_classes(session)
    _use_this_python(session)
    return session


def _open_another(shared: SparkSession, remote: str | None) -> SparkSession:
    if hasattr(shared, "newSession"):
        return shared.newSession()
    # A session of Spark Connect has it since PySpark 4.3. Without `remote`, the builder reads SPARK_REMOTE.
    builder = SparkSession.builder if remote is None else SparkSession.builder.remote(remote)
    return builder.create()


def activate_shared_session() -> None:
    """Make the session that others get the active one of this thread, if Spark runs and the thread has none.

    Whoever starts Spark by `getOrCreate()` has an active session then. Where the lake has started Spark, in
    another thread, PySpark would leave `SparkSession.getActiveSession()` None for them.
    """
    shared: Any = getattr(SparkSession, "_instantiatedSession", None)
    if shared is None or _jvm_has_ended() or SparkSession.getActiveSession() is not None:
        return
    jvm, java_session = (getattr(shared, name, None) for name in ("_jvm", "_jsparkSession"))
    session_class: Any = getattr(jvm, "org.apache.spark.sql.classic.SparkSession", None)
    session_class.setActiveSession(java_session)


def _use_this_python(session: SparkSession) -> None:
    """Run the tasks of a local session in the Python of this process, unless one is configured.

    Spark's default is the `python3` on the PATH, which need not have the packages of this process. All
    sessions of a Spark have the same one.
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


def _has_ended(future: Future[SparkSession]) -> bool:
    """Return whether the Spark of a session has ended: by a kill, or by `stop()` of whoever shares it."""
    if not future.done():
        return False
    if _jvm_has_ended():
        return True
    context = None if future.exception() else getattr(future.result(), "_sc", None)
    return context is not None and getattr(context, "_jsc", None) is None


class SparkProvider:
    """A session of the lake that starts in the background; `get` waits for it.

    Args:
        start: returns a new session. It is called in a separate thread, and again after Spark has ended.
    """

    def __init__(self, start: Callable[[], SparkSession]):
        self._start = start
        self._future: Future[SparkSession] | None = None
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Start the session, if it has not been started or its Spark has ended since. Returns at once."""
        with self._lock:
            if self._future is None or _has_ended(self._future):
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
            future.set_result(self._start())
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
