"""Ingest, append, beside its peers: the same messages, each contender a process of its own.

What is timed is the whole process. `less start` takes from it the time of the same process over one
record (the best of a few), measured in the same run: interpreter, imports, JVM, catalog, commit.
Only ratios within one run mean anything.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
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
from rich.console import Console
from rich.table import Table

from tests.benchmarks import measure, peers
from tests.benchmarks.messages import cached_messages

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


@dataclass(frozen=True)
class Bar:
    """A promise about our own figures; `measured` is None where a peer was left out."""

    text: str
    measured: Callable[[Mapping[str, Result]], float | None]
    met: Callable[[float], bool]
    unit: str


BARS = (
    Bar(
        "ingest less start, at least 3 times as fast as PyAirbyte",
        lambda results: _faster(results, PYAIRBYTE),
        lambda ratio: ratio >= 3,
        "×",
    ),
    Bar(
        "peak memory of the Python process, at most 600 MB",
        lambda results: results[OURS].python_mb,
        lambda peak: peak <= 600,
        " MB",
    ),
)


def _faster(results: Mapping[str, Result], peer: str) -> float | None:
    """How many times as fast as the peer we are."""
    if peer not in results:
        return None
    return results[peer].seconds_less_start / results[OURS].seconds_less_start


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
    shutil.copy(HERE / "catalog.json", connection)
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
        env = _environment() | contender.environment(folder) | {"BENCH_MESSAGES": str(messages)}
        log = work / f"{contender.name.split(',')[0]}-{turn}.log"
        # The project must be found from the root; a peer must find nothing of ours there.
        cwd = ROOT if contender.name == OURS else folder
        done = measure.run(contender.command(messages, folder), env, cwd, log)
        rows = contender.count(folder)
    if rows != records:
        raise measure.CommandFailed(f"{contender.name} left {rows:,} rows of {records:,}: {log}")
    return done


def _environment() -> dict[str, str]:
    """The caller's environment, less what would lead a contender to the caller's own data."""
    ours_only = ("ELT_", "DAGSTER_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours_only)}


# --- the report ---------------------------------------------------------------------------------


def table_of(results: Mapping[str, Result]) -> Table:
    table = Table(title=f"{results[OURS].records:,} records of one stream, append")
    table.add_column("who")
    for heading in (
        *("seconds", "less start", "records/s", "× PyAirbyte's speed", "× the limit's time"),
        *("Python MB", "JVM MB"),
    ):
        table.add_column(heading, justify="right")
    for result in results.values():
        table.add_row(
            result.label,
            f"{result.seconds:.1f}",
            f"{result.seconds_less_start:.1f}",
            f"{result.rate:,.0f}",
            _ratio(results.get(PYAIRBYTE), result),
            _ratio(result, results.get(LIMIT)),
            f"{result.python_mb:,.0f}",
            f"{result.jvm_mb:,.0f}" if result.jvm_mb else "–",
        )
    return table


def _ratio(longer: Result | None, shorter: Result | None) -> str:
    if longer is None or shorter is None:
        return "–"
    return f"{longer.seconds_less_start / shorter.seconds_less_start:.2f}"


def verdict(bar: Bar, results: Mapping[str, Result]) -> str:
    measured = bar.measured(results)
    if measured is None:
        return f"  –     {bar.text}: not measured"
    return f"  {'pass' if bar.met(measured) else 'MISS'}  {bar.text}: {measured:.1f}{bar.unit}"


def report(results: Mapping[str, Result]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table_of(results))
    console.print(
        "  less start: T(all) − T(1 record), whole processes, this run; × of less start; "
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    for bar in BARS:
        console.print(verdict(bar, results), highlight=False)


def as_json(results: Mapping[str, Result]) -> str:
    rows = [
        asdict(result)
        | {"seconds_less_start": result.seconds_less_start, "records_per_second": result.rate}
        for result in results.values()
    ]
    bars = []
    for bar in BARS:
        measured = bar.measured(results)
        met = None if measured is None else bar.met(measured)
        bars.append({"bar": bar.text, "measured": measured, "met": met})
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    return json.dumps({"machine": machine, "results": rows, "bars": bars}, indent=2) + "\n"


# --- the command --------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument(
        "--work", type=Path, help="keeps messages and logs there (default: a temporary folder)"
    )
    parser.add_argument("--peers-dir", type=Path, default=peers.DEFAULT_FOLDER)
    parser.add_argument("--skip-peers", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return parser.parse_args()


def compete(args: argparse.Namespace, work: Path) -> dict[str, Result]:
    contenders = [ours()]
    if not args.skip_peers:
        folder = args.peers_dir.expanduser().resolve()
        contenders += [pyairbyte(folder), limit(folder)]
    return {each.name: contest(each, args.records, work) for each in contenders}


def main() -> int:
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="elt-bench-") as temporary:
        work = (args.work or Path(temporary)).expanduser().resolve()
        work.mkdir(parents=True, exist_ok=True)
        try:
            results = compete(args, work)
        except measure.CommandFailed as failure:
            print(failure, file=sys.stderr)
            return 1
    report(results)
    if args.json:
        args.json.write_text(as_json(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
