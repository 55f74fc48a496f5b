"""The benchmarks, each part in a process of its own: `make bench`.

Only ratios within one run mean anything: each part runs its peers itself, on the same machine and data.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks import (
    changes,
    conform,
    erase,
    file_sources,
    follow,
    ingest,
    loading,
    log,
    log_scale,
    manifest,
    merge,
    overview,
    parts,
    peers,
    publish,
    report,
    routing,
    sdk,
    slices,
    soak,
    source_memory,
    sources,
    start,
    verify,
)
from benchmarks.measure import CommandFailed
from benchmarks.report import Report

Part = Callable[[], Report]

SIZES = {
    "records": 5_000_000,
    "mixed": 2_000_000,
    "parted": 2_000_000,
    "starts": 5,
    "rows": 10_000_000,
    "batch": 100_000,
    "lines": 1_000_000,
    "routed": 5_000_000,
    "gigabytes": 10,
    "commits": 1_000,
    "files": 100_000,
    "emitted": 10_000_000,
    "fetched": 1_000_000,
    "sliced": 4_000_000,
    "tabled": 2_000_000,
    "verified": 10_000_000,
    "changed": 1_000_000,
    "merged": 10_000_000,
    "followed": 300,
    "published": 1_000_000,
    "publications": 1_000,
    "soaked": 100_000_000,
}
QUICK = {
    "records": 200_000,
    "mixed": 100_000,
    "parted": 200_000,
    "starts": 1,
    "rows": 2_500_000,
    "batch": 20_000,
    "lines": 200_000,
    "routed": 500_000,
    "gigabytes": 1,
    "commits": 100,
    "files": 3_000,
    "emitted": 200_000,
    "fetched": 100_000,
    "sliced": 200_000,
    "tabled": 100_000,
    "verified": 50_000,
    "changed": 20_000,
    "merged": 50_000,
    "followed": 30,
    "published": 50_000,
    "publications": 50,
    "soaked": 3_000_000,
}
NAMES = (
    *("ingest", "mixed", "parts", "start", "merge", "erase", "conform", "routing"),
    *("log", "log_scale", "sdk", "manifest", "slices", "sources"),
    *("changes", "follow", "verify"),
    *("file_sources", "source_memory", "loading", "overview", "publish"),
)
ON_REQUEST = ("soak",)
"""Parts that run for hours, and only if they are asked for."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--only", choices=[*NAMES, *ON_REQUEST], nargs="+", default=NAMES, metavar="PART"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it runs at all")
    parser.add_argument("--records", type=int, help="that ingest moves, and soak")
    parser.add_argument("--mixed", type=int, help="records with a decimal and JSON text")
    parser.add_argument("--parted", type=int, help="records whose ingest is measured by its parts")
    parser.add_argument("--starts", type=int, help="runs of each kind whose start is measured")
    parser.add_argument(
        "--rows", type=int, help="of the table that is merged into, and erased from"
    )
    parser.add_argument("--batch", type=int, help="rows that are merged")
    parser.add_argument("--lines", type=int, help="that conform types")
    parser.add_argument("--routed", type=int, help="records that routing moves")
    parser.add_argument("--gigabytes", type=float, help="of large records that it moves")
    parser.add_argument("--commits", type=int, help="to a table, whose log is measured")
    parser.add_argument("--files", type=int, help="of a table, to which commits are measured")
    parser.add_argument("--emitted", type=int, help="records of a source on the SDK")
    parser.add_argument("--fetched", type=int, help="records that a manifest reads")
    parser.add_argument("--sliced", type=int, help="rows that executors read by slices")
    parser.add_argument("--tabled", type=int, help="rows of tables and of files that sources copy")
    parser.add_argument("--verified", type=int, help="rows of a table that is compared")
    parser.add_argument("--changed", type=int, help="changes of a log that are read")
    parser.add_argument("--merged", type=int, help="rows of the table that changes are merged into")
    parser.add_argument("--followed", type=int, help="seconds for which a log is followed")
    parser.add_argument("--published", type=int, help="records of a sync with publication")
    parser.add_argument("--publications", type=int, help="of one table, for what they leave")
    parser.add_argument(
        "--work", type=Path, help="keeps messages and logs there (default: a temporary folder)"
    )
    parser.add_argument("--peers-dir", type=Path, default=peers.DEFAULT_FOLDER)
    parser.add_argument("--skip-peers", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    args = parser.parse_args()
    args.soaked = args.records
    for name, size in (QUICK if args.quick else SIZES).items():
        if getattr(args, name) is None:
            setattr(args, name, size)
    return args


def wanted(args: argparse.Namespace, work: Path) -> Mapping[str, Part]:
    folder = None if args.skip_peers else args.peers_dir.expanduser().resolve()
    return {
        "ingest": partial(ingest.run, work, args.records, folder),
        "mixed": partial(ingest.run_mixed, work, args.mixed, folder),
        "parts": partial(parts.run, work, args.parted),
        "start": partial(start.run, work, args.starts),
        "merge": partial(merge.run, work, args.rows, args.batch, peer=not args.skip_peers),
        "erase": partial(erase.run, work, args.rows),
        "conform": partial(conform.run, work, args.lines),
        "routing": partial(routing.run, work, args.routed, args.gigabytes),
        "log": partial(log.run, work, args.commits),
        "log_scale": partial(log_scale.run, work, args.files),
        "sdk": partial(sdk.run, work, args.emitted, folder),
        "manifest": partial(manifest.run, work, args.fetched, folder),
        "slices": partial(slices.run, work, args.sliced),
        "sources": partial(sources.run, work, args.tabled, folder),
        "file_sources": partial(file_sources.run, work, args.tabled),
        "source_memory": partial(source_memory.run, work, args.tabled),
        "changes": partial(changes.run, work, args.changed, args.merged),
        "follow": partial(follow.run, work, args.followed),
        "verify": partial(verify.run, work, args.verified),
        "loading": partial(loading.run, work),
        "overview": partial(overview.run, work),
        "publish": partial(publish.run, work, args.files, args.publications, args.published),
        "soak": partial(soak.run, work, args.soaked),
    }


def alone(part: Part) -> Report:
    """Run in a process that nothing else has run in."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(part).result()


def measured(args: argparse.Namespace, work: Path) -> dict[str, object]:
    """Run what was asked for, show each part's figures as it ends, and return them all."""
    machine, results = report.machine(), {}
    print("  " + ", ".join(f"{name} {value}" for name, value in machine.items()))
    for name, part in wanted(args, work).items():
        if name in args.only:
            found = alone(part)
            found.show()
            results[name] = found.to_json()
    if args.quick:
        print("  --quick: the bars are for the full sizes")
    return {"machine": machine, "parts": results}


def main() -> int:
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="elt-bench-") as temporary:
        work = (args.work or Path(temporary)).expanduser().resolve()
        work.mkdir(parents=True, exist_ok=True)
        try:
            figures = measured(args, work)
        except CommandFailed as failure:
            print(failure, file=sys.stderr)
            return 1
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
