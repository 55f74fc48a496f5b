"""The parts of Dagster's daemon that `dagster.yaml` names: the launcher and the queue of runs.

`dagster api grpc` executes each run in a process of its own, and says which of them are alive. `dagster
code-server start`, which starts another server at each reload, answers no such request.
"""

from __future__ import annotations

from typing import Any

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus

from elt_assets.orchestration.runs.liveness import (
    DIED,
    IN_PROGRESS,
    has_died,
    has_file,
    interrupt,
)


class MonitoredRunLauncher(dg.DefaultRunLauncher):
    """Dagster's default launcher, which also tells the run monitor whether the process of a run is alive.

    It knows this of every run of this home, also of those that it did not launch, such as `elt sync`. A run
    of another home, for example that of a pod which is gone with its disk, has ended if the code server that
    was asked to start it answers that it executes no such run. The launcher says that a process is dead when
    it sees so for the second time. At the start of the daemon, the monitor and the part
    that retries runs look at the same moment; the latter misses a failure whose event is stored and whose
    run has not got its status yet.
    """

    def __init__(self, inst_data: Any = None):
        super().__init__(inst_data)
        self._seen_dead: set[str] = set()

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        if not self._has_ended(run):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        if run.run_id in self._seen_dead:
            return CheckRunHealthResult(WorkerStatus.FAILED, DIED)
        self._seen_dead.add(run.run_id)
        return CheckRunHealthResult(WorkerStatus.RUNNING)

    def _has_ended(self, run: dg.DagsterRun) -> bool:
        if has_file(self._instance, run.run_id):
            return has_died(self._instance, run.run_id)
        client = self._get_grpc_client_for_termination(run.run_id)  # type: ignore[no-untyped-call]
        if client is None:  # no server has started the run
            return False
        try:
            answer: Any = dg.deserialize_value(client.get_current_runs())
        except dg.DagsterError:  # a server that does not answer may execute it
            return False
        return run.run_id not in answer.current_runs

    def terminate(self, run_id: str) -> bool:
        """End a run; that of a command line as Ctrl-C would, if its process is on this machine.

        Dagster ends only runs that its code server has started, and would mark the others as canceled while
        their process continues.
        """
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished or run.remote_job_origin is not None:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        self._instance.report_run_canceling(run)
        return interrupt(self._instance, run_id)


class RunQueue(dg.QueuedRunCoordinator[Any]):
    """Dagster's queue, in which only runs that wait in it take a place.

    Dagster counts every run in progress. A run of a command line (`elt sync`, `dagster asset materialize`)
    has no code location, so the queue cannot have started it; the limit grows by the number of such runs.
    """

    def get_run_queue_config(self) -> Any:
        config = super().get_run_queue_config()
        if config.max_concurrent_runs < 1:  # -1: there is no limit; 0: no run may start
            return config
        active = self._instance.get_runs(dg.RunsFilter(statuses=IN_PROGRESS))
        outside = sum(run.remote_job_origin is None for run in active)
        return config._replace(max_concurrent_runs=config.max_concurrent_runs + outside)
