"""A process that is read to its end, and ends with all that it started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from elt_assets.errors import ConfigError, SystemFailure, TransientError
from elt_assets.runner import process as process_module
from elt_assets.runner.process import STDERR_LINES, STDERR_WIDTH, Process
from tests.programs.hostile_source import alive, gone
from tests.support.project import REPOSITORY


def python(script: str) -> Process:
    return Process([sys.executable, "-ISuc", f"import os, signal, subprocess, sys, time\n{script}"])


def shell(script: str) -> Process:
    return Process(["sh", "-c", script])


def output(process: Process) -> list[bytes]:
    with process:
        return list(process.lines())


@contextlib.contextmanager
def ended_within(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (rb"", []),
        (rb"\n\n\n", []),
        (rb"a\n\nb\n", [b"a", b"b"]),
        (rb"a\nb", [b"a", b"b"]),
        (rb"a\r\n", [b"a\r"]),
        (rb"\xe2\x80\xa8\xc2\x85\x0b\x0c\r\x00\xff\n", [b"\xe2\x80\xa8\xc2\x85\x0b\x0c\r\x00\xff"]),
    ],
)
def test_lines_end_only_at_a_newline(written: bytes, lines: list[bytes]) -> None:
    process = python(f"sys.stdout.buffer.write(b'{written.decode()}')")
    assert output(process) == lines
    assert process.exhausted


def test_lines_of_any_size_are_read_completely() -> None:
    sizes = [1, 65_535, 65_536, 65_537, 5_000_000, 1]
    process = python(f"for n in {sizes}: sys.stdout.buffer.write(b'x' * n + b'\\n')")
    assert [len(line) for line in output(process)] == sizes


@pytest.mark.parametrize("end", [b"\\n", b"", b"\\ny\\n"])
def test_the_error_of_a_line_that_is_too_long_shows_the_limit(
    end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "MAX_LINE", 2 << 20)
    fitting = python("sys.stdout.buffer.write((b'x' * (2 << 20) + b'\\n') * 2)")
    assert len(output(fitting)) == 2
    script = f"sys.stdout.buffer.write(b'a\\nHEAD' + b'x' * (2 << 20) + b'{end.decode()}')"
    with pytest.raises(SystemFailure, match="longer than 2 MiB") as failure:
        output(python(script))
    assert failure.value.detail and failure.value.detail.startswith("HEADxxx")
    assert len(failure.value.detail) <= 2_000


@pytest.mark.spec("protocol.21")
def test_much_stderr_does_not_block_and_its_last_lines_are_kept() -> None:
    script = "for n in range(100_000): print('noise', n, 'x' * 50, file=sys.stderr)\nprint('done')"
    with python(script) as process:
        assert list(process.lines()) == [b"done"]
        assert process.wait() == 0
    tail = process.stderr_tail.splitlines()
    assert len(tail) == STDERR_LINES
    assert tail[-1].startswith("noise 99999 ")


def test_the_kept_part_of_stderr_is_limited_and_may_have_any_bytes() -> None:
    with python("sys.stderr.buffer.write(b'\\xff' * 3_000_000 + b'\\nend\\n')") as process:
        process.wait()
    *_, last = lines = process.stderr_tail.splitlines()
    assert last == "end"
    assert max(map(len, lines)) == STDERR_WIDTH


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9)])
def test_the_exit_code_is_returned(script: str, code: int) -> None:
    with shell(script) as process:
        assert list(process.lines()) == []
        assert process.wait() == code


def test_missing_and_not_executable_programs_are_config_errors(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    with pytest.raises(ConfigError, match=r"'no-such-program' was not found\n.*`source`"):
        Process(["no-such-program"])
    with pytest.raises(ConfigError, match="cannot be executed: Permission denied"):
        Process([str(tmp_path / "text")])
    (tmp_path / "text").chmod(0o700)
    with pytest.raises(ConfigError, match="cannot be executed: Exec format error"):
        Process([str(tmp_path / "text")])


NOBODY = "os.setgroups([]); os.setgid(65534); os.setuid(65534)" if os.geteuid() == 0 else "pass"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder for any user: limits of processes do not hold for root, and pytest's folders are private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.mark.parametrize(
    ("arrange", "expected"),
    [
        ("os.defpath = '/none'", "ConfigError 'PROGRAM' was not started: the shell `sh`"),
        (
            "os.defpath = 'EMPTY'",
            "TransientError the connector was stopped: the process that watches it has ended",
        ),
        ("resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))", "TransientError no further process"),
        (
            "resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))",
            "ConfigError too many files are open",
        ),
        (
            "resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))",
            "ConfigError too many files are open",
        ),
        (
            'threading.Thread.start = fail(RuntimeError("can\'t start new thread"))',
            "TransientError no f",
        ),
    ],
)
def test_a_child_that_cannot_be_watched_does_not_run(
    arrange: str, expected: str, open_folder: Path
) -> None:
    """In a process of its own, because some limits cannot be raised again."""
    program, shell = open_folder / "program", open_folder / "empty" / "sh"
    # Named once it is written: a program that is killed between the two has left an empty file.
    program.write_text(
        f"#!/bin/sh\ncd {open_folder} && echo $$ > part && mv part pid && exec sleep 600\n"
    )
    shell.parent.mkdir()
    shell.write_text("#!/bin/false\n")
    for file in (program, shell):
        file.chmod(0o755)
    code = UNWATCHED.replace("ARRANGE", arrange).replace("EMPTY", str(shell.parent))
    done = subprocess.run(
        [sys.executable, "-c", code.replace("PROGRAM", str(program))],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.startswith(expected.replace("PROGRAM", str(program))), done.stderr
    assert "\n" in done.stdout.strip()  # the guidance
    pid = open_folder / "pid"
    assert not pid.exists() or gone(int(pid.read_text()))


UNWATCHED = f"""
import os, resource, threading
from elt_assets.errors import EltError
from elt_assets.runner.process import Process

def fail(error):
    def start(self): raise error
    return start

{NOBODY}
ARRANGE
try:
    with Process(["PROGRAM"]) as process:
        list(process.lines())
except EltError as error:
    print(type(error).__name__, error)
"""


def test_a_connector_whose_watchdog_is_killed_is_ended() -> None:
    with python("print(os.getpid())\ntime.sleep(600)") as process:
        lines = process.lines()
        pid = int(next(lines))
        (watchdog,) = (
            child
            for child in psutil.Process().children()
            if child.pid != pid and process._mark in child.cmdline()
        )
        watchdog.kill()
        with pytest.raises(TransientError, match=r"the process that watches it has ended\n.*`sh`"):
            next(lines)
    assert gone(pid)


@pytest.mark.spec("protocol.17")
def test_arguments_are_not_expanded_by_a_shell_and_stdin_is_empty() -> None:
    process = Process(["sh", "-c", 'cat; printf "%s" "$0"', "$(id) `id` ;"])
    assert output(process) == [b"$(id) `id` ;"]


def test_the_environment_can_be_set() -> None:
    process = Process(["/bin/sh", "-c", "echo $GIVEN$HOME"], environment={"GIVEN": "x"})
    assert output(process) == [b"x"]


STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sh", "-c", "trap '' TERM; echo $$; while :; do sleep 1; done"])
print(os.getpid())
time.sleep(60)
"""


def test_close_stops_the_whole_process_group() -> None:
    with ended_within(6), python(STUBBORN) as process:
        lines = process.lines()
        pids = [int(next(lines)), int(next(lines))]
        assert process.pid in pids and all(map(alive, pids))
    assert all(map(gone, pids))


def test_close_returns_when_the_process_group_has_ended() -> None:
    with ended_within(3), shell("sleep 60 & echo $!; wait") as process:
        sleeper = int(next(process.lines()))
    assert gone(sleeper)


@pytest.mark.spec("protocol.15")
@pytest.mark.parametrize("start", ["sleep 60 &", "setsid sleep 60 &"])
def test_output_ends_with_the_process_while_a_child_holds_the_pipe(start: str) -> None:
    with ended_within(9), shell(f"{start} echo $!; printf torn") as process:
        stray, torn = process.lines()
        assert torn == b"torn" and process.exhausted
        assert process.wait() == 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(stray), 9)


def test_slow_output_is_waited_for() -> None:
    assert output(shell("echo a; sleep 1.2; echo b")) == [b"a", b"b"]


PARENT = """
import ctypes, os
from elt_assets.runner.process import Process
if os.getuid() == 0:
    os.setuid(65534)  # root may read everything
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as any program is when it starts
with Process(["sh", "-c", "tr '\\\\0' '\\\\n' < /proc/$PPID/environ"]) as process:
    print(*process.lines())
print("dumpable:", ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is of Linux")
@pytest.mark.parametrize("allowed", [False, True])
def test_a_program_cannot_read_the_environment_of_its_parent(allowed: bool) -> None:
    variables = {**os.environ, "PGPASSWORD": "hunter2"}
    if allowed:
        variables["ELT_ALLOW_INSPECTION"] = "1"
    found = subprocess.check_output([sys.executable, "-c", PARENT], env=variables, cwd=REPOSITORY)
    assert (b"hunter2" in found) is allowed
    assert f"dumpable: {int(allowed)}\n".encode() in found
