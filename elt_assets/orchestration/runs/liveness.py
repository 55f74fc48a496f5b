"""Show that the process of a run is alive, find runs whose process has died, and mark them as failed.

`executor` and `materialize` (for `elt sync`) show it; `daemon`, `recovery`, `renaming` and `last_syncs` ask
for it.

The process of a run keeps a file locked (`storage.folders.hold`) from before its first step until it ends. If
the file is there and free while the run is in progress, the process was killed: by whom, and whether
Dagster's daemon or a person had started it, does not matter. A run without such a file is executed on another
machine, or by another executor, or in another home, and is left to the run launcher.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from elt_assets.storage.folders import hold, hold_if_abandoned, holder, make_private

FOLDER = "run_locks"
"""Folder in the home of the instance: a file for each run in progress, whose name is the id of the run."""
IN_PROGRESS = [
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
"""Statuses of runs that have, or had, a process."""
DIED = "the process of this run has ended without reporting a result; it was probably killed"


_held: dict[Path, contextlib.ExitStack] = {}
"""The files that this process holds until it ends, since a run is not over with its last step."""


def hold_until_exit(instance: dg.DagsterInstance, run_id: str) -> None:
    """Show that this process executes a run until it ends.

    A process may execute many runs. The files of those that have ended are released: they would use up the
    files that it can open.
    """
    folder = _folder(instance)
    for path in [path for path in _held if path.parent == folder]:
        run = instance.get_run_by_id(path.name)
        if run is None or run.is_finished:
            _held.pop(path).close()
    if folder / run_id not in _held:
        _held[folder / run_id] = contextlib.ExitStack()
        _held[folder / run_id].enter_context(alive(instance, run_id))


@atexit.register
def _release_all() -> None:
    while _held:
        _held.popitem()[1].close()


@contextlib.contextmanager
def alive(instance: dg.DagsterInstance, run_id: str) -> Iterator[None]:
    """Show that this process executes a run, while the context lasts. Earlier dead runs are marked first."""
    fail_dead_runs(instance)
    path = _folder(instance) / run_id
    with hold(path):
        yield
        path.unlink(
            missing_ok=True
        )  # after an error it stays: the run may not have reported its result


def has_died(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return whether the process of a run is known to have ended."""
    with hold_if_abandoned(_folder(instance) / run_id) as is_abandoned:
        return is_abandoned


def has_file(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return whether this home has the file of a run, which tells whether its process is alive."""
    return (_folder(instance) / run_id).exists()


def interrupt(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Send the process of a run the signal of Ctrl-C; return whether it was found on this machine."""
    pid = holder(_folder(instance) / run_id)
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGINT)
    except OSError:  # it has ended, or is another user's
        return False
    return True


def fail_dead_runs(instance: dg.DagsterInstance) -> None:
    """Mark each run as failed whose process has died before it could report a result."""
    for path in _folder(instance).iterdir():
        with hold_if_abandoned(path) as is_abandoned:
            if is_abandoned:
                _mark(instance, path.name)
                path.unlink(missing_ok=True)


def _mark(instance: dg.DagsterInstance, run_id: str) -> None:
    run = instance.get_run_by_id(run_id)
    if run is None or run.is_finished:
        return
    if run.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, DIED)
    else:
        instance.report_run_failed(run, DIED)


def _folder(instance: dg.DagsterInstance) -> Path:
    folder = Path(instance.root_directory) / FOLDER
    make_private(folder)
    return folder
