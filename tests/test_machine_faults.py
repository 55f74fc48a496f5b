"""Faults of the machine, as each library reports them: one error of this project, without a stack trace."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import deltalake.exceptions
import pyarrow as pa
import pytest
import sqlalchemy
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PythonException

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from elt_assets.machine_faults import translate, translated

NUMBERS = {
    errno.ENOSPC: (ConfigError, "the disk is full"),
    errno.EDQUOT: (ConfigError, "the disk is full"),
    errno.EFBIG: (ConfigError, "a file grew beyond the limit"),
    errno.EMFILE: (ConfigError, "too many files are open"),
    errno.ENFILE: (ConfigError, "too many files are open"),
    errno.EROFS: (ConfigError, "the file system is read-only"),
    errno.EACCES: (ConfigError, "this user may not read or write a file"),
    errno.ENOMEM: (TransientError, "the machine has too little memory"),
    errno.EAGAIN: (TransientError, "no further process or thread can be started"),
    errno.EIO: (SystemFailure, "the disk or its network connection reports an error"),
}

FORMS: list[Callable[[int], Exception]] = [
    lambda number: OSError(number, os.strerror(number)),
    lambda number: OSError(f"[Errno {number}] Error writing bytes to file"),
    lambda number: OSError(f"Generic LocalFileSystem error: Unable to copy (os error {number})"),
    lambda number: deltalake.exceptions.DeltaError(f"{os.strerror(number)} (os error {number})"),
    lambda number: pa.ArrowException(f"[errno {number}] {os.strerror(number)}"),
    lambda number: PythonException(
        f'Traceback:\n  File "task.py", line 1\nOSError: [Errno {number}] Error writing\n at java.Thread\n'
    ),
    lambda number: Py4JError(
        f"o12.collect\n: java.io.IOException: {os.strerror(number)}\n\tat java"
    ),
]


@given(st.sampled_from(sorted(NUMBERS)), st.sampled_from(FORMS), st.integers(0, 3))
def test_a_fault_is_recognised_in_each_form_and_behind_other_errors(
    number: int, form: Callable[[int], Exception], depth: int
) -> None:
    error: Exception = form(number)
    for level in range(depth):
        outer = RuntimeError(f"step {level} failed")
        outer.__cause__ = error
        error = outer
    fault = translate(error, "while x was written")
    kind, message = NUMBERS[number]
    assert type(fault) is kind
    assert fault.message.startswith(message)
    assert fault.message.endswith(", while x was written")
    assert fault.is_machine_fault
    assert fault.guidance
    assert len(str(fault).splitlines()) <= 3


def _full_disk(_: Path) -> None:
    with pa.OSFile("/dev/full", "wb") as file:  # not by name: pyarrow would remove the device
        file.write(b"x")


def _unbuffered_full_disk(_: Path) -> None:
    with open("/dev/full", "wb", buffering=0) as file:  # noqa: PTH123
        file.write(b"x")


def _locked(folder: Path) -> None:
    holder = sqlite3.connect(folder / "runs.db")
    holder.execute("begin exclusive")
    engine = sqlalchemy.create_engine(
        f"sqlite:///{folder}/runs.db", connect_args={"timeout": 0}, poolclass=sqlalchemy.NullPool
    )
    try:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("create table t (a int)"))
    finally:
        holder.close()


def _no_thread(_: Path) -> None:
    raise RuntimeError("can't start new thread")


def _damaged(folder: Path) -> None:
    (folder / "runs.db").write_bytes(b"no database" * 500)
    connection = sqlite3.connect(folder / "runs.db")
    try:
        connection.execute("select * from sqlite_master")
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("cause", "kind", "message"),
    [
        (_full_disk, ConfigError, "the disk is full"),
        (_unbuffered_full_disk, ConfigError, "the disk is full"),
        (_locked, TransientError, "a database of Dagster is locked by another process"),
        (_damaged, SystemFailure, "a database of Dagster is damaged"),
        (_no_thread, TransientError, "no further process or thread can be started"),
    ],
)
def test_real_faults_are_translated(
    tmp_path: Path, cause: Callable[[Path], None], kind: type[EltError], message: str
) -> None:
    with pytest.raises(kind) as caught, translated():
        cause(tmp_path)
    assert caught.value.message == message


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JNetworkError("Error while sending or receiving"),
        Py4JError("An error occurred while calling o35.range"),
        Py4JError("Cannot call methods on a stopped SparkContext"),
    ],
)
def test_a_lost_jvm_is_a_transient_error(error: Exception) -> None:
    fault = translate(error)
    assert type(fault) is TransientError
    assert fault.message.startswith("Spark's Java process has ended")


CREDENTIALS = (ConfigError, "the store refuses the credentials")
PERMISSION = (ConfigError, "this user may not read or write a file")
BUSY = (TransientError, "a service cannot be reached, or refuses more requests")
AWS = "When uploading object with key 't/y' in bucket 'b': AWS Error {} operation: {}"
OBJECT_STORE = (
    "Generic S3 error\n  \x1b[31m↳\x1b[0m Error performing PUT\n {}\n <Error><Code>{}</Code>"
)
OBJECT_STORE_HEAD = (
    "Kernel error -> Generic S3 error\n  \x1b[31m↳\x1b[0m Error performing HEAD http://s3/b/t/_delta_log/1"
    ".checkpoint.parquet in 359.58µs - Server returned non-2xx status code\n 400 Bad Request\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AWS.format("UNKNOWN (HTTP status 400) during PutObject", "ExpiredToken"), CREDENTIALS),
        (
            AWS.format("UNKNOWN (HTTP status 400) during HeadObject", "No response body."),
            CREDENTIALS,
        ),
        (AWS.format("UNKNOWN (HTTP status 400) during GetObject", ""), CREDENTIALS),
        (OBJECT_STORE_HEAD, CREDENTIALS),
        (
            AWS.format("INTERNAL_FAILURE during GetObject", "Failed to flush response stream"),
            (TransientError, "the store refused to read a file, and the reason is lost"),
        ),
        (AWS.format("ACCESS_DENIED during HeadObject", "No response body."), PERMISSION),
        (AWS.format("SLOW_DOWN during PutObject", "SlowDown"), BUSY),
        (AWS.format("UNKNOWN (HTTP status 503) during HeadObject", "No response body."), BUSY),
        (AWS.format("INTERNAL_FAILURE during PutObject", "InternalError"), BUSY),
        (AWS.format("NETWORK_CONNECTION during PutObject", "Timeout was reached"), BUSY),
        (OBJECT_STORE.format("400 Bad Request", "ExpiredToken"), CREDENTIALS),
        (
            f"lacked the necessary privileges: {OBJECT_STORE.format('403', 'ExpiredToken')}",
            CREDENTIALS,
        ),
        (f"lacked the necessary privileges: {OBJECT_STORE.format('403', 'Other')}", PERMISSION),
        (OBJECT_STORE.format("503 Service Unavailable", "SlowDown"), BUSY),
        (OBJECT_STORE.format("500 Internal Server Error", "InternalError"), BUSY),
        (OBJECT_STORE.format("429 Too Many Requests", "TooManyRequests"), BUSY),
    ],
)
@pytest.mark.parametrize("kind", [OSError, deltalake.exceptions.DeltaError])
def test_faults_of_an_object_store_are_distinguished(
    kind: Callable[[str], Exception], text: str, expected: tuple[type[EltError], str]
) -> None:
    fault = translate(kind(text))
    assert fault is not None and (type(fault), expected[1]) == (
        expected[0],
        fault.message[: len(expected[1])],
    )


@pytest.mark.parametrize(
    "error",
    [
        ValueError("No space left on device"),  # a text of somebody's data
        FileNotFoundError(errno.ENOENT, "no such file", "x"),
        PythonException("KeyError: 'a'"),
        deltalake.exceptions.DeltaError("Metadata error"),
    ],
)
def test_other_errors_are_not_translated(error: Exception) -> None:
    assert translate(error) is None


def test_errors_of_this_project_stay() -> None:
    error = ConfigError("the key is missing")
    error.__cause__ = OSError(errno.ENOSPC, "full")
    assert translate(error) is error


def test_a_sync_with_too_few_open_files_says_so(tmp_path: Path) -> None:
    """Python itself meets the limit; `elt` shows one message and no stack trace."""
    script = (
        "import resource, sys, os\n"
        "from elt_assets.cli import main\n"
        "import elt_assets.orchestration.status\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
        "held = []\n"
        "try:\n"
        "    while True: held.append(os.open('/dev/null', os.O_RDONLY))\n"
        "except OSError: pass\n"
        "sys.exit(main(['status']))\n"
    )
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path), "ELT_DEFS": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "config_error: too many files are open" in done.stderr
    assert "Traceback" not in done.stderr
