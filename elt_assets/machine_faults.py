"""Translation of the faults of a machine, such as a full disk, into errors.

Used by `storage.staging`, `runner.process`, `lake`, `pipeline.read`, `orchestration`, `destination`, `cli`.

Libraries report one fault in many forms: Python and pyarrow by `errno`; delta-rs, the JVM and the workers of
Spark in the text of their errors; SQLite by texts of its own. `translate` reduces all of them to one table of
faults, which states who must act. Every program and every step of Dagster passes its errors through it, so
that no fault of the machine is shown as a stack trace of a library.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError

_LIBRARIES = frozenset(
    {
        *("_internal", "deltalake", "grpc", "obstore", "py4j", "pyarrow", "pyspark"),
        *("psycopg2", "sqlalchemy", "sqlite3"),
    }
)
"""Packages whose errors are recognised by their text. `_internal` is the core of delta-rs."""

_ERRNO = re.compile(r"\[[Ee]rrno (\d+)\]|\(os error (\d+)\)")
"""The number of an error of the system, as Python, pyarrow and Rust write it."""

_MARKS = re.compile(r"\x1b\[[0-9;]*m|↳")
"""Colours and arrows in the errors of delta-rs."""
_NO_THREAD = "can't start new thread"
"""The text of Python's RuntimeError for a thread that the system does not start."""
EXHAUSTED = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Numbers of errors at the start of a program, because the machine or a limit has no room for another."""
_MAX_DETAIL = 300
_AGAIN = "the next run continues from the last commit"


@dataclass(frozen=True)
class _Fault:
    """One kind of fault: how it is recognised, and the error that is shown for it."""

    kind: type[EltError]
    message: str
    guidance: str
    pattern: str  # texts by which libraries report it
    numbers: Sequence[int] = ()  # numbers of the system (`errno`) for it
    is_general: bool = True  # whether other tables have it too

    def error(self, place: str, cause: BaseException) -> EltError:
        message = f"{self.message}{place}"
        error = self.kind(message, guidance=f"{self.guidance}; {_AGAIN}", detail=first_line(cause))
        error.is_machine_fault = self.is_general
        return error


_FAULTS: Sequence[_Fault] = (
    _Fault(
        ConfigError,
        "the disk is full",
        "free space on the disk, or move the lake (ELT_LAKE), the staging folder (ELT_STAGING), the home "
        "(DAGSTER_HOME) or the temporary files (TMPDIR) to a larger one",
        r"No space left on device|[Dd]isk quota exceeded|database or disk is full",
        (errno.ENOSPC, errno.EDQUOT),
    ),
    _Fault(
        ConfigError,
        "a file grew beyond the limit for files of this process",
        "raise the limit (`ulimit -f`, or LimitFSIZE of the service)",
        r"File too large",
        (errno.EFBIG,),
    ),
    _Fault(
        ConfigError,
        "too many files are open",
        "raise the limit of open files (`ulimit -n`, or LimitNOFILE of the service) to 4096 or more",
        r"Too many open files",
        (errno.EMFILE, errno.ENFILE),
    ),
    _Fault(
        ConfigError,
        "the file system is read-only",
        "mount it for writing, or move the lake (ELT_LAKE), the staging folder (ELT_STAGING) or the home "
        "(DAGSTER_HOME)",
        r"Read-only file system|attempt to write a readonly database",
        (errno.EROFS,),
    ),
    _Fault(
        ConfigError,
        "the store refuses the credentials: they are not valid, or have expired",
        "renew the credentials, and check the clock of the machine; those of the machine's role are renewed "
        "during a sync (docs/storage.md)",
        # The answer to a request of the method HEAD has no text, and that to a short GET may lose it.
        r"ExpiredToken|InvalidToken|TokenRefreshRequired|InvalidAccessKeyId|SignatureDoesNotMatch"
        r"|RequestTimeTooSkewed|RequestExpired|lacked valid authentication"
        r"|status 40[01]\) during (?:HeadObject|GetObject operation: ?$)"
        r"|performing HEAD [\s\S]*400 Bad Request",
    ),
    _Fault(
        TransientError,
        "the store refused to read a file, and the reason is lost",
        "check that the credentials have not expired and may read the file; otherwise check the network and "
        "the service",
        # pyarrow reads the answer into the buffer of the file's bytes, where a longer text has no room.
        r"Failed to flush response stream",
    ),
    _Fault(
        ConfigError,
        "this user may not read or write a file",
        "correct the owner or the permissions of the file or its folder",
        r"Permission denied|unable to open database file|AccessDenied|Access Denied|ACCESS_DENIED"
        r"|lacked the necessary privileges",
        (errno.EACCES, errno.EPERM),
    ),
    _Fault(
        TransientError,
        "no further process or thread can be started",
        "end other programs, run fewer syncs at the same time, or raise the limit of processes (`ulimit -u`, "
        "TasksMax of the service, the limit of pids of the container)",
        rf"{_NO_THREAD}|unable to create native thread|Resource temporarily unavailable",
        (errno.EAGAIN,),
    ),
    _Fault(
        ConfigError,
        "Spark's Java process has too little memory",
        "raise `spark.driver.memory` in the Spark settings (ELT_SPARK), or set a smaller `checkpoint` in "
        "defs.yaml",
        r"java\.lang\.OutOfMemoryError",
    ),
    _Fault(
        SystemFailure,
        "a file that another engine wrote cannot be read in the types of its table without a change",
        "rewrite the file's rows with that engine, with values that the table's types hold, or restore the "
        "table to the version before them",
        r"its column [^\n]* has the type [^\n]*",
        is_general=False,
    ),
    _Fault(
        TransientError,
        "the machine has too little memory",
        "end other programs, run fewer syncs at the same time, or use a machine with more memory",
        r"Cannot allocate memory|Python worker exited unexpectedly|realloc of size \d+ failed",
        (errno.ENOMEM,),
    ),
    _Fault(
        SystemFailure,
        "the disk or its network connection reports an error",
        "check the disk and the log of the system's kernel",
        r"Input/output error|Stale file handle|disk I/O error",
        (errno.EIO, errno.ESTALE),
    ),
    _Fault(
        SystemFailure,
        "a database of Dagster is damaged",
        "restore DAGSTER_HOME from a backup, or move its databases away; the tables and their states are in "
        "the lake and are not affected",
        r"database disk image is malformed|file is not a database",
    ),
    _Fault(
        TransientError,
        "a database of Dagster is locked by another process",
        "end what holds it, for example a backup or a database tool; if many runs work at the same time, "
        "configure PostgreSQL in dagster.yaml",
        r"database (?:table )?is locked",
    ),
    _Fault(
        TransientError,
        "Spark's Java process has ended, or does not answer",
        "if the system killed it for its memory (see the log of the kernel), run fewer syncs at the same "
        "time, or use a machine with more memory",
        r"Answer from Java side is empty|Error while (?:sending|obtaining)|An error occurred while trying to "
        r"connect to the Java server|SparkContext was (?:shut down|stopped)|stopped SparkContext"
        r"|An error occurred while calling [^\n]*\Z",
    ),
    _Fault(
        TransientError,
        "a service cannot be reached, or refuses more requests (a store, a database or Spark)",
        "check the network and the service",
        r"error sending request|NETWORK_CONNECTION|SLOW_DOWN|SlowDown|ServiceUnavailable|INTERNAL_FAILURE"
        r"|HTTP status (?:429|5\d\d)|429 Too Many Requests|500 Internal|50[234] (?:Bad|Service|Gateway)"
        r"|operation timed out|could not connect to server|connection to server .* failed"
        r"|server closed the connection",
        (errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH),
    ),
)


def translate(error: BaseException, where: str | None = None) -> EltError | None:
    """Return the error to show for a fault of the machine; None if the error reports none.

    An error of this project is returned as it is. Of any other error, the chain of its causes is searched.

    Args:
        where: what was done, and where, such as "while the table x was written".
    """
    if isinstance(error, EltError):
        return error
    for cause in _causes(error):
        if isinstance(cause, EltError):
            return None  # the fault is an older one, which was handled
        fault = _fault_of(cause)
        if fault is not None:
            return fault.error(f"{_file(error)}{f', {where}' if where else ''}", cause)
    return None


@contextlib.contextmanager
def translated(where: str | None = None) -> Iterator[None]:
    """Raise a fault of the machine within this context as an error of this project.

    Args:
        where: as for `translate`.

    Raises:
        EltError: the machine has a fault. All errors without such a cause are raised unchanged.
    """
    try:
        yield
    except EltError:
        raise
    except Exception as error:
        fault = translate(error, where)
        if fault is None:
            raise
        raise fault from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, the error first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _fault_of(error: BaseException) -> _Fault | None:
    if isinstance(error, MemoryError):
        return _by_number(errno.ENOMEM)
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return _by_number(errno.EAGAIN)
    if isinstance(error, OSError) and error.errno is not None:
        return _by_number(error.errno)
    if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _LIBRARIES:
        return _by_text(str(error))
    return None


def _by_number(number: int) -> _Fault | None:
    return next((fault for fault in _FAULTS if number in fault.numbers), None)


def _by_text(text: str) -> _Fault | None:
    for match in _ERRNO.finditer(text):
        fault = _by_number(int(match[1] or match[2]))
        if fault is not None:
            return fault
    return next((fault for fault in _FAULTS if re.search(fault.pattern, text)), None)


def _file(error: BaseException) -> str:
    """Return the file that an error or one of its causes names, for the end of a sentence."""
    names = [cause.filename for cause in _causes(error) if isinstance(cause, OSError)]
    return next((f": {os.fsdecode(name)}" for name in names if isinstance(name, (str, bytes))), "")


def first_line(error: BaseException) -> str:
    """Return the line of a library's error that names the fault, without its stack trace."""
    lines = [line.strip() for line in _MARKS.sub("", str(error)).splitlines() if line.strip()]
    named = [line for line in lines if _by_text(line) is not None]
    line = (named or lines or [type(error).__name__])[0]
    return line if len(line) <= _MAX_DETAIL else f"{line[: _MAX_DETAIL - 1]}…"
