"""The benchmark counts the processor time of every process that takes part, also of those that have ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import REPOSITORY

pytestmark = pytest.mark.process

BURN = "import time\nwhile time.process_time() < 0.5: pass"
"""Takes half a second of processor time, whatever else the machine does."""
ORPHAN = f"""
import os, sys
if os.fork() == 0:
    if os.fork() == 0:
        exec({BURN!r})
    os._exit(0)
os.wait()
"""
"""Ends at once; the work is done by a process whose parent does not wait for it."""
IGNORED = f"""
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    exec({BURN!r})
    time.sleep(1)
    os._exit(0)
try:
    os.wait()
except ChildProcessError:
    pass
"""
"""Ignores the end of its children, as the daemon of Spark's Python workers does; a child does the work."""
RUN = """
import os, sys
from pathlib import Path
from benchmarks import measure
work = Path(sys.argv[1])
done = measure.run([sys.executable, "-c", sys.argv[2]], os.environ, work, work / "log")
print(done.cost.core)
"""
TIMED = """
import subprocess, sys
from benchmarks import measure
_, cost = measure.timed(lambda: subprocess.run([sys.executable, "-c", sys.argv[2]], check=True))
print(cost.core)
"""


@pytest.mark.parametrize(
    ("meter", "work"),
    [(RUN, BURN), (RUN, ORPHAN), (RUN, IGNORED), (TIMED, BURN)],
    ids=["run", "orphan", "ignored", "timed"],
)
def test_processes_that_have_ended_are_counted(tmp_path: Path, meter: str, work: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", meter, str(tmp_path), work],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.45  # the system counts in steps of 10 ms
