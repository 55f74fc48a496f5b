"""What a code server says about the runs that it was asked to start.

`dagster api grpc` executes each run in a process of its own, and says which of them are alive. `dagster
code-server start`, which starts another server at each reload, answers no such request.
"""

from __future__ import annotations

from typing import Any

from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._grpc.types import GetCurrentRunsResult
from dagster_shared.serdes import deserialize_value


def is_executing(client: Any, run_id: str) -> bool | None:
    """Return whether a code server executes a run; None if that is unknown, because it does not answer.

    Args:
        client: the client of the server that started the run; None if no server did.
    """
    if client is None:
        return None
    try:
        answer = deserialize_value(client.get_current_runs(), GetCurrentRunsResult)
    except DagsterUserCodeUnreachableError:
        return None
    return run_id in answer.current_runs
