"""The programs that ingest: this project's asset, destination and target, and peers; each in a process."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import duckdb
import yaml
from deltalake import DeltaTable

from benchmarks import measure, peers
from benchmarks.measure import Cost, Run
from benchmarks.messages import HERE, PLAIN, SINGER, MessageSet, cached_messages
from benchmarks.staging import STUB

ROOT = HERE.parent
BIN = Path(sys.executable).parent
SMALL = 1
SMALL_RUNS = 2  # the first one compiles bytecode and warms the page cache

OURS, PYAIRBYTE, LIMIT = "elt-assets", "PyAirbyte", "DuckDB, bare"
DESTINATION, TARGET = "elt-destination", "target-elt"

ASSET = (
    *(sys.executable, "-m", "dagster", "asset", "materialize"),
    *("-m", "elt_assets.definitions", "--select", 'key:"bench/users"'),
)


@dataclass(frozen=True)
class Contender:
    """A program that ingests: its command, its environment, and the rows that it left.

    Attributes:
        messages: what it reads.
        piped: it reads the messages from its input; others start the stub.
        is_ours: it runs in the project's folder.
    """

    name: str
    label: str
    command: Callable[[Path, Path], Sequence[str | Path]]  # (messages, folder)
    environment: Callable[[Path], Mapping[str, str]]  # (folder)
    count: Callable[[Path], int]  # (folder)
    messages: MessageSet = PLAIN
    piped: bool = False
    is_ours: bool = True


@dataclass(frozen=True)
class Result:
    """The whole process, and the same process over one record (`start`)."""

    name: str
    label: str
    records: int
    run: Run
    start: Cost

    @property
    def less_start(self) -> Cost | None:
        """None if the start took as long: then there were too few records to measure anything."""
        cost = self.run.cost - self.start
        return cost if cost.seconds > 0 and cost.core > 0 else None

    @property
    def rate(self) -> float | None:
        """Records a second, start not counted."""
        less = self.less_start
        return None if less is None else self.records / less.seconds


def ours(messages: MessageSet = PLAIN) -> Contender:
    return Contender(
        name=OURS,
        label=f"elt-assets {version('elt-assets')} → Delta",
        command=lambda _messages, _folder: ASSET,
        environment=lambda folder: project(folder, messages),
        count=lambda folder: _delta_rows(folder / "lake" / "bench" / "users"),
        messages=messages,
    )


def destination() -> Contender:
    return Contender(
        name=DESTINATION,
        label="elt-destination write → Delta",
        command=lambda _messages, folder: (
            *(BIN / "elt-destination", "write", "--config", folder / "config.json"),
            *("--catalog", folder / "catalog.json"),
        ),
        environment=lambda folder: _piped(folder, {}),
        count=lambda folder: _delta_rows(folder / "lake" / "bench" / "users"),
        piped=True,
    )


def target() -> Contender:
    return Contender(
        name=TARGET,
        label="target-elt → Delta",
        command=lambda _messages, folder: (
            *(BIN / "target-elt", "--config", folder / "config.json"),
        ),
        environment=lambda folder: _piped(folder, {"load_method": "append-only"}),
        count=lambda folder: _delta_rows(folder / "lake" / "bench" / "users"),
        messages=SINGER,
        piped=True,
    )


def pyairbyte(folder: Path, messages: MessageSet = PLAIN) -> Contender:
    found = peers.ensure(peers.PYAIRBYTE, folder)
    python = peers.interpreter(peers.PYAIRBYTE, folder)
    return Contender(
        name=PYAIRBYTE,
        label=f"PyAirbyte {found} → DuckDB file",
        command=lambda _messages, work: (
            *(python, HERE / peers.PYAIRBYTE.script),
            *(STUB, work / "peer.duckdb"),
        ),
        # Offline: the registry's answer would be timed too, and no benchmark needs telemetry.
        environment=lambda _work: {"AIRBYTE_OFFLINE_MODE": "1", "DO_NOT_TRACK": "1"},
        count=lambda work: _duckdb_rows(work / "peer.duckdb"),
        messages=messages,
        is_ours=False,
    )


def limit(folder: Path, messages: MessageSet = PLAIN) -> Contender:
    found = peers.ensure(peers.DUCKDB, folder)
    python = peers.interpreter(peers.DUCKDB, folder)
    return Contender(
        name=LIMIT,
        label=f"limit: DuckDB {found} → Parquet",
        command=lambda messages, work: (
            *(python, HERE / peers.DUCKDB.script),
            *(messages, work / "out.parquet"),
        ),
        environment=lambda _work: {},
        count=lambda work: _rows(duckdb.connect(), f"'{work / 'out.parquet'}'"),
        messages=messages,
        is_ours=False,
    )


def contest(contender: Contender, records: int, work: Path) -> Result:
    """The contender over one record, then over all; its rows are counted each time."""
    small = [run(contender, SMALL, work, f"small-{turn}").cost for turn in range(SMALL_RUNS)]
    whole = run(contender, records, work, "whole")
    start = measure.least(small)
    return Result(contender.name, contender.label, records, whole, start)


def run(contender: Contender, records: int, work: Path, turn: str) -> Run:
    """The contender over so many records, in a folder that is removed.

    Raises:
        CommandFailed: it failed, or left another number of rows.
    """
    print(f"{contender.name}: {records:,} records", file=sys.stderr)
    messages = cached_messages(work, records, kind=contender.messages)
    with tempfile.TemporaryDirectory(prefix="run-", dir=work) as made:
        folder = Path(made)
        log = work / f"{contender.name.split(',')[0]}-{contender.messages.name}-{turn}.log"
        env = {
            **measure.environment(),
            **contender.environment(folder),
            "BENCH_MESSAGES": str(messages),
            "BENCH_CATALOG": str(contender.messages.catalog),
        }
        done = measure.run(
            contender.command(messages, folder),
            env,
            # The project must be found from the root; a peer must find nothing of ours there.
            ROOT if contender.is_ours else folder,
            log,
            stdin=messages if contender.piped else None,
        )
        rows = contender.count(folder)
    if rows != records:
        raise measure.CommandFailed(f"{contender.name} left {rows:,} rows of {records:,}: {log}")
    return done


def project(
    folder: Path, messages: MessageSet = PLAIN, command: Sequence[str] = (str(STUB),)
) -> dict[str, str]:
    """A project of one connection in `folder`; returns the environment that names its places."""
    connection = folder / "defs" / "bench"
    connection.mkdir(parents=True)
    stream = {
        "name": "users",
        "sync_mode": "incremental",
        "destination_sync_mode": "append",
        "cursor_field": ["updated_at"],
    }
    attributes = {
        "name": "bench",
        "source": {
            "command": list(command),
            "config": {},
            "environment": ["BENCH_MESSAGES", "BENCH_CATALOG", "BENCH_TIMES"],
        },
        "streams": [stream],
    }
    defs = {"type": "elt_assets.ConnectionComponent", "attributes": attributes}
    (connection / "defs.yaml").write_text(yaml.safe_dump(defs, sort_keys=False))
    shutil.copy(messages.catalog, connection / "catalog.json")
    return places(folder)


def places(folder: Path) -> dict[str, str]:
    """The environment of a project in `folder`, with a home of its own."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return {
        "ELT_DEFS": str(folder / "defs"),
        "ELT_LAKE": str(folder / "lake"),
        "ELT_STAGING": str(folder / "staging"),
        "DAGSTER_HOME": str(home),
    }


def _piped(folder: Path, config: Mapping[str, str]) -> dict[str, str]:
    """The files of a program that reads its messages from a pipe, and its environment."""
    (stream,) = json.loads(PLAIN.catalog.read_text())["streams"]
    configured = {
        "stream": stream,
        "sync_mode": "incremental",
        "cursor_field": ["updated_at"],
        "destination_sync_mode": "append",
    }
    (folder / "catalog.json").write_text(json.dumps({"streams": [configured]}))
    (folder / "config.json").write_text(json.dumps({"namespace": "bench", **config}))
    return places(folder)


def _delta_rows(table: Path) -> int:
    return int(DeltaTable(str(table)).to_pyarrow_dataset().count_rows())


def _duckdb_rows(database: Path) -> int:
    return _rows(duckdb.connect(str(database), read_only=True), "main.users")


def _rows(connection: duckdb.DuckDBPyConnection, relation: str) -> int:
    with connection:
        found = connection.execute(f"select count(*) from {relation}").fetchone()
    return int(found[0]) if found else 0
