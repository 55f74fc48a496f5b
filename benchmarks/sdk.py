"""The cost of a source on this project's SDK and on Meltano's: the same stream, as a Singer tap.

Figures are processor time of the process; that of a read of one record is its start, which is left out.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import peers
from benchmarks.measure import MEGABYTE, Usage, usage
from benchmarks.report import Bar, Report

OURS = [sys.executable, "-m", "benchmarks.sdk_source"]
PEER_RECORDS = 200_000
"""The peer takes about a minute for a million."""
PARTITIONS = 10_000
LARGE_PARTITIONS = 100_000


@dataclass(frozen=True)
class Result:
    """`core`: seconds of processor time, without those of the start; `peak_mb`: of resident memory; `states`:
    the size of all states as a multiple of the last one."""

    name: str
    records: int
    core: float
    start: float
    peak_mb: float
    output_mb: float
    states: float

    @property
    def rate(self) -> float:
        """Records a second of one core."""
        return self.records / self.core


def run(work: Path, records: int, peer_folder: Path | None) -> Report:
    """Read streams as a tap on our SDK, and some of them as one on the peer's.

    Args:
        records: of the large stream that shows the memory.
        peer_folder: the folder of the peers' environments; None leaves them out.
    """
    size = min(records, PEER_RECORDS)
    parts, many = min(PARTITIONS, size // 20), min(LARGE_PARTITIONS, size)
    with tempfile.TemporaryDirectory(prefix="sdk-", dir=work) as made:
        folder = Path(made)
        ours = [
            _read("sorted", OURS, folder, size, 0),
            _read(f"{parts:,} partitions", OURS, folder, size, parts),
            _read("sorted, large", OURS, folder, records, 0),
            _read(f"{many:,} partitions", OURS, folder, many, many),
        ]
        theirs: list[Result] = []
        if peer_folder is not None:
            version = peers.ensure(peers.SINGER_SDK, peer_folder)
            script = Path(__file__).with_name(peers.SINGER_SDK.script)
            command = [str(peers.interpreter(peers.SINGER_SDK, peer_folder)), str(script)]
            for name, number in (("sorted", 0), (f"{parts:,} partitions", parts)):
                title = f"singer-sdk {version}: {name}"
                theirs.append(_read(title, command, folder, size, number))
    return _report(ours, theirs)


def _read(name: str, command: Sequence[str], folder: Path, records: int, parts: int) -> Result:
    print(f"sdk: {name}, {records:,} records", file=sys.stderr)
    start = _measured(command, folder, 1, 0)
    whole = _measured(command, folder, records, parts)
    output = folder / "output"
    size = output.stat().st_size / MEGABYTE
    core = whole.core - start.core
    return Result(name, records, core, start.core, whole.peak_mb, size, _states(output))


def _states(output: Path) -> float:
    """Size of all states as a multiple of the last one."""
    with output.open("rb") as lines:
        sizes = [len(line) for line in lines if line.startswith(b'{"type":"STATE"')]
    return sum(sizes) / sizes[-1]


def _measured(command: Sequence[str], folder: Path, records: int, parts: int) -> Usage:
    """Read a stream; the output is left in the folder."""
    config = folder / "config.json"
    config.write_text(json.dumps({"records": records, "partitions": parts}))
    return usage([*command, "--config", str(config)], folder / "output")


def _report(ours: Sequence[Result], theirs: Sequence[Result]) -> Report:
    ratios = [mine.rate / other.rate for mine, other in zip(ours, theirs, strict=False)]
    ratios += [0.0] * (2 - len(ratios))
    large = ours[2]
    return Report(
        title="a source on the SDK, as a tap",
        headings=[
            "stream",
            "records",
            "s core",
            "k records/s",
            "start, s core",
            "memory MB",
            "MB",
            "states",
        ],
        rows=[
            [
                result.name,
                f"{result.records:,}",
                f"{result.core:.2f}",
                f"{result.rate / 1000:,.0f}",
                f"{result.start:.2f}",
                f"{result.peak_mb:.0f}",
                f"{result.output_mb:,.0f}",
                f"{result.states:,.1f}",
            ]
            for result in (*ours, *theirs)
        ],
        note="processor time without the start; MB: the output, all states included; states: the size of all "
        "states as a multiple of the last one",
        bars=[
            Bar("sorted, beside singer-sdk", ratios[0] or None, 3, least=True),
            Bar("partitioned, beside singer-sdk", ratios[1] or None, 5, least=True),
            Bar("memory of the large stream", large.peak_mb, 100, " MB"),
            Bar(f"states of {ours[3].name}", ours[3].states, 4),
            Bar("start to the first record", ours[0].start, 0.4, " s core"),
        ],
        figures=[asdict(result) for result in (*ours, *theirs)],
    )
