"""Ingest, append, beside its peers: the same messages, each contender a process of its own.

What is timed is the whole process. `less start` takes from it the time of the same process over one
record (the best of a few), measured in the same run: interpreter, imports, JVM, catalog, commit.
Only ratios within one run mean anything.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import duckdb
import yaml
from deltalake import DeltaTable

from tests.benchmarks import measure, peers
from tests.benchmarks.messages import CATALOG, cached_messages
from tests.benchmarks.report import MISSING, Bar, Report, ratio

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STUB = HERE / "source_stub"
SMALL = 1
SMALL_RUNS = 2  # the first one compiles bytecode and warms the page cache

OURS, PYAIRBYTE, LIMIT = "elt-assets", "PyAirbyte", "DuckDB, bare"

CONNECTION = {
    "type": "elt_assets.ConnectionComponent",
    "attributes": {
        "name": "bench",
        "source": {"command": [str(STUB)], "config": {}},
        "streams": [
            {
                "name": "users",
                "sync_mode": "incremental",
                "destination_sync_mode": "append",
                "cursor_field": ["updated_at"],
            }
        ],
    },
}


@dataclass(frozen=True)
class Contender:
    """Who does the work, with what command in which environment, and how many rows it left."""

    name: str
    label: str
    command: Callable[[Path, Path], Sequence[str | Path]]  # (messages, folder)
    environment: Callable[[Path], dict[str, str]]  # (folder)
    count: Callable[[Path], int]  # (folder)


@dataclass(frozen=True)
class Result:
    name: str
    label: str
    records: int
    seconds: float
    seconds_small: float
    python_mb: float
    python_all_mb: float
    jvm_mb: float

    @property
    def seconds_less_start(self) -> float:
        return max(self.seconds - self.seconds_small, 0.001)

    @property
    def rate(self) -> float:
        """Records a second, start not counted."""
        return self.records / self.seconds_less_start


# --- contenders ---------------------------------------------------------------------------------


def ours() -> Contender:
    select = ["--select", 'key:"bench/users"']
    module = ["-m", "elt_assets.definitions"]
    return Contender(
        name=OURS,
        label=f"elt-assets {version('elt-assets')} → Delta",
        command=lambda _messages, _folder: (
            *(sys.executable, "-m", "dagster", "asset", "materialize"),
            *module,
            *select,
        ),
        environment=_project,
        count=lambda folder: _delta_rows(folder / "lake" / "bench" / "users"),
    )


def pyairbyte(folder: Path) -> Contender:
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
    )


def limit(folder: Path) -> Contender:
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
    )


def _project(folder: Path) -> dict[str, str]:
    """A project of one connection in `folder`; returns the environment that names its places."""
    connection, home = folder / "defs" / "bench", folder / "home"
    connection.mkdir(parents=True)
    home.mkdir()
    (connection / "defs.yaml").write_text(yaml.safe_dump(CONNECTION, sort_keys=False))
    shutil.copy(CATALOG, connection)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return {
        "ELT_DEFS": str(folder / "defs"),
        "ELT_LAKE": str(folder / "lake"),
        "ELT_STAGING": str(folder / "staging"),
        "DAGSTER_HOME": str(home),
    }


def _delta_rows(table: Path) -> int:
    return int(DeltaTable(str(table)).to_pyarrow_dataset().count_rows())


def _duckdb_rows(database: Path) -> int:
    return _rows(duckdb.connect(str(database), read_only=True), "main.users")


def _rows(connection: duckdb.DuckDBPyConnection, relation: str) -> int:
    with connection:
        found = connection.execute(f"select count(*) from {relation}").fetchone()
    return int(found[0]) if found else 0


# --- the runs -----------------------------------------------------------------------------------


def run(work: Path, records: int, peers_folder: Path | None) -> Report:
    """Each contender once.

    Args:
        work: messages are made, and logs left, there.
        peers_folder: where the peers' environments are, or are made; None: none of them runs.

    Raises:
        CommandFailed: a contender failed, or left another number of rows.
    """
    contenders = [ours()]
    if peers_folder is not None:
        contenders += [pyairbyte(peers_folder), limit(peers_folder)]
    return _report({each.name: contest(each, records, work) for each in contenders})


def contest(contender: Contender, records: int, work: Path) -> Result:
    """The contender over one record, then over all; its rows are counted each time."""
    small = min(_run(contender, SMALL, work, f"small-{turn}").seconds for turn in range(SMALL_RUNS))
    whole = _run(contender, records, work, "whole")
    return Result(
        name=contender.name,
        label=contender.label,
        records=records,
        seconds=whole.seconds,
        seconds_small=small,
        python_mb=whole.python_mb,
        python_all_mb=whole.python_all_mb,
        jvm_mb=whole.jvm_mb,
    )


def _run(contender: Contender, records: int, work: Path, turn: str) -> measure.Run:
    print(f"{contender.name}: {records:,} records", file=sys.stderr)
    messages = cached_messages(work, records)
    with tempfile.TemporaryDirectory(prefix="run-", dir=work) as made:
        folder = Path(made)
        env = (
            measure.environment()
            | contender.environment(folder)
            | {"BENCH_MESSAGES": str(messages)}
        )
        log = work / f"{contender.name.split(',')[0]}-{turn}.log"
        # The project must be found from the root; a peer must find nothing of ours there.
        cwd = ROOT if contender.name == OURS else folder
        done = measure.run(contender.command(messages, folder), env, cwd, log)
        rows = contender.count(folder)
    if rows != records:
        raise measure.CommandFailed(f"{contender.name} left {rows:,} rows of {records:,}: {log}")
    return done


# --- the report ---------------------------------------------------------------------------------


def _report(results: Mapping[str, Result]) -> Report:
    return Report(
        title=f"{results[OURS].records:,} records of one stream, append",
        headings=[
            *("who", "seconds", "less start", "records/s"),
            *("× PyAirbyte's speed", "× the limit's time", "Python MB", "JVM MB"),
        ],
        rows=[_row(result, results) for result in results.values()],
        note="less start: T(all) − T(1 record), whole processes, this run; × of less start",
        bars=_bars(results),
        figures=[
            asdict(result)
            | {"seconds_less_start": result.seconds_less_start, "records_per_second": result.rate}
            for result in results.values()
        ],
    )


def _row(result: Result, results: Mapping[str, Result]) -> list[str]:
    return [
        result.label,
        f"{result.seconds:.1f}",
        f"{result.seconds_less_start:.1f}",
        f"{result.rate:,.0f}",
        ratio(_less_start(results, PYAIRBYTE), result.seconds_less_start),
        ratio(result.seconds_less_start, _less_start(results, LIMIT)),
        f"{result.python_mb:,.0f}",
        f"{result.jvm_mb:,.0f}" if result.jvm_mb else MISSING,
    ]


def _bars(results: Mapping[str, Result]) -> list[Bar]:
    own, peer = results[OURS], _less_start(results, PYAIRBYTE)
    speed = None if peer is None else peer / own.seconds_less_start
    return [
        Bar("ingest less start, of PyAirbyte's speed", speed, 3, least=True),
        Bar("peak memory of the Python process", own.python_mb, 600, " MB"),
    ]


def _less_start(results: Mapping[str, Result], name: str) -> float | None:
    return results[name].seconds_less_start if name in results else None
