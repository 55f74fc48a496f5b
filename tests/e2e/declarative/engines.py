"""The two engines, and what a job of one of them gives: its requests, records, states, failures and waits."""

from __future__ import annotations

import contextlib
import copy
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.programs.recording_api import Received, RecordingApi, Script
from tests.support.project import REPOSITORY

Json = dict[str, Any]

SECONDS = 60
"""Time limit of one job."""


@dataclass(frozen=True)
class Job:
    """A job: a verb of a source with a manifest.

    Attributes:
        manifest: the manifest.
        config: the config; the worker adds `url`, that of the server.
        streams: the streams to read.
        incremental: those of them that have a cursor.
        now: the present time of the engine.
        state: the state of each stream.
        verb: read, discover or check.
        real_time: whether waits take their time, and the clock is not stopped.
    """

    manifest: Json
    config: Json
    streams: tuple[str, ...]
    incremental: frozenset[str]
    now: str
    state: Json = field(default_factory=dict)
    verb: str = "read"
    real_time: bool = False

    def message(self, url: str) -> Json:
        """Return the job as a worker takes it."""
        configured = [
            {
                "stream": {
                    "name": name,
                    "json_schema": {"type": "object"},
                    "supported_sync_modes": ["full_refresh", "incremental"],
                },
                "sync_mode": "incremental" if name in self.incremental else "full_refresh",
                "destination_sync_mode": "append",
            }
            for name in self.streams
        ]
        state = [
            {
                "type": "STREAM",
                "stream": {"stream_descriptor": {"name": name}, "stream_state": saved},
            }
            for name, saved in self.state.items()
        ]
        return {
            "manifest": copy.deepcopy(self.manifest),
            "config": {**self.config, "url": url},
            "catalog": {"streams": configured},
            "state": state,
            "now": self.now,
            "verb": self.verb,
            "real_time": self.real_time,
        }


@dataclass(frozen=True)
class Outcome:
    """The actions of an engine in a job.

    Attributes:
        requests: the requests, in the order in which they were received.
        messages: the messages of the source.
        waits: the waits in seconds.
        crash: the error that is not a message of the source; None if there is none.
    """

    requests: list[Received]
    messages: list[Json]
    waits: list[float]
    crash: str | None = None

    def select_type(self, kind: str) -> list[Json]:
        """Return the contents of the messages of a type."""
        field = "connectionStatus" if kind == "CONNECTION_STATUS" else kind.lower()
        return [message[field] for message in self.messages if message["type"] == kind]

    @property
    def records(self) -> dict[str, list[Json]]:
        """The records of each stream, in their order."""
        records: dict[str, list[Json]] = {}
        for record in self.select_type("RECORD"):
            records.setdefault(record["stream"], []).append(record["data"])
        return records

    @property
    def states(self) -> Json:
        """The last state of each stream."""
        entries = (entry["stream"] for entry in self.select_type("STATE"))
        return {entry["stream_descriptor"]["name"]: entry.get("stream_state") for entry in entries}

    @property
    def status(self) -> dict[str, str]:
        """The last status of each stream."""
        entries = (
            entry["stream_status"]
            for entry in self.select_type("TRACE")
            if "stream_status" in entry
        )
        return {
            entry["stream_descriptor"]["name"]: entry["status"]
            for entry in entries
            if entry and entry["status"] in ("COMPLETE", "INCOMPLETE")
        }

    @property
    def errors(self) -> list[Json]:
        """The errors, of streams or of the source."""
        errors = (error.get("error") for error in self.select_type("TRACE"))
        return [error for error in errors if error]


class Engine:
    """A worker process.

    Args:
        command: its command.
        log: the file that takes what it writes to standard error.
    """

    def __init__(self, command: list[str], log: Path):
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self.log = log

    def run(self, job: Job, api: RecordingApi, script: Script) -> Outcome:
        """Do a job with a server that answers by a script."""
        api.script, api.requests = script, []
        line = json.dumps(job.message(api.url)).encode() + b"\n"
        with self._limit():
            _pipe(self._process.stdin).write(line)
            _pipe(self._process.stdin).flush()
            answer = _pipe(self._process.stdout).readline()
        if not answer:
            raise AssertionError(f"the worker ended: {self.log.read_text()[-3000:]}")
        result = json.loads(answer)
        return Outcome(api.requests, result["messages"], result["waits"], result["crash"])

    def close(self) -> None:
        """End the process."""
        _pipe(self._process.stdin).close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _pipe(self._process.stdout).close()
        self._log.close()

    @contextlib.contextmanager
    def _limit(self) -> Iterator[None]:
        timer = threading.Timer(SECONDS, self._process.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def oracle(python: Path, folder: Path) -> Engine:
    """Start the worker of airbyte-cdk.

    Args:
        python: the interpreter of its environment.
        folder: where its log goes.
    """
    return Engine([str(python), "-m", "tests.e2e.declarative.cdk_worker"], folder / "oracle.log")


def ours(folder: Path) -> Engine:
    """Start the worker of connectors.declarative."""
    return Engine([sys.executable, "-m", "tests.e2e.declarative.our_worker"], folder / "ours.log")


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
