"""A session without tables: what routing costs on one core, and what it holds in memory."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measure import MEGABYTE, CommandFailed
from benchmarks.report import Bar, Report
from benchmarks.staging import Counted, route
from elt_assets.protocol.catalog import INCREMENTAL, AirbyteStream, ConfiguredStream

STREAMS = 20
BLOCK = 20_000
"""Records in the file that is sent again and again."""
STATE_EVERY = 10_000


@dataclass(frozen=True)
class Result:
    """`mb`: of messages; `core`: seconds of processor time, of all threads; `peak_mb`: the process's
    resident set at its highest."""

    name: str
    records: int
    mb: float
    seconds: float
    core: float
    peak_mb: float

    @property
    def rate(self) -> float:
        """Records a second of one core."""
        return self.records / self.core


def run(work: Path, records: int, gigabytes: float) -> Report:
    """All in this process, which should have run nothing else.

    Args:
        records: of 20 streams, whose records alternate, and of one stream; `gigabytes`: of larger records, at
            least so many.
    """
    with tempfile.TemporaryDirectory(prefix="routing-", dir=work) as made:
        folder = Path(made)
        interleaved = _block(folder / "small.jsonl", width=60)
        single = _block(folder / "single.jsonl", width=60, streams=1)
        large = _block(folder / "large.jsonl", width=1_900)
        times = -(-records // BLOCK)
        again = -(-int(gigabytes * 1e9) // large.stat().st_size)
        return _report(
            [
                _routed("20 interleaved streams", folder, interleaved, times),
                _routed("one stream", folder, single, times, streams=1),
                _routed("large records, 20 streams", folder, large, again),
            ]
        )


def _block(path: Path, width: int, streams: int = STREAMS) -> Path:
    """Records of each stream in turn, `width` characters of text in each, and a state now and then."""
    with path.open("w") as file:
        for number in range(BLOCK):
            stream = f"stream_{number % streams:02d}"
            data = f'{{"id":{number},"at":"2026-01-01T00:00:00Z","text":"{"x" * width}"}}'
            record = f'{{"stream":"{stream}","data":{data},"emitted_at":1700000000000}}'
            file.write(f'{{"type":"RECORD","record":{record}}}\n')
            if number % STATE_EVERY == STATE_EVERY - 1:
                for each in range(streams):
                    file.write(_state(f"stream_{each:02d}", number))
    return path


def _state(stream: str, at: int) -> str:
    state = f'{{"stream_descriptor":{{"name":"{stream}"}},"stream_state":{{"at":{at}}}}}'
    return f'{{"type":"STATE","state":{{"type":"STREAM","stream":{state}}}}}\n'


def _routed(name: str, folder: Path, block: Path, times: int, streams: int = STREAMS) -> Result:
    print(f"routing: {name}, {times * BLOCK:,} records", file=sys.stderr)
    configured = [_stream(number) for number in range(streams)]
    sinks = [Counted() for _ in configured]
    start, core = time.perf_counter(), time.process_time()
    found = route(block, configured, sinks, folder / block.stem, times)
    seconds, core = time.perf_counter() - start, time.process_time() - core
    if found != times * BLOCK:
        raise CommandFailed(f"{name}: {found:,} of {times * BLOCK:,} records came")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE
    return Result(name, found, block.stat().st_size * times / MEGABYTE, seconds, core, peak)


def _stream(number: int) -> ConfiguredStream:
    return ConfiguredStream(
        stream=AirbyteStream(name=f"stream_{number:02d}", json_schema={}),
        sync_mode=INCREMENTAL,
        cursor_field=["at"],
    )


def _report(results: Sequence[Result]) -> Report:
    interleaved, _, large = results
    rows = [
        [
            each.name,
            f"{each.records:,}",
            f"{each.mb:,.0f}",
            f"{each.seconds:.1f}",
            f"{each.core:.1f}",
            f"{each.rate:,.0f}",
            f"{each.mb / each.seconds:,.0f}",
            f"{each.peak_mb:.0f}",
        ]
        for each in results
    ]
    return Report(
        title="messages → routed to segments on disk; no tables",
        headings=["what", "records", "MB", "seconds", "core-s", "records/s", "MB/s", "peak MB"],
        rows=rows,
        note="from a connector's pipe to segments; records/s and core-s: of this process, without the "
        "connector; peak: the whole process until then",
        bars=[
            Bar(
                "records of 20 streams, thousands a second",
                interleaved.rate / 1000,
                1000,
                " k/s",
                least=True,
            ),
            Bar("memory of the session", large.peak_mb, 300, " MB"),
        ],
        figures=[asdict(each) | {"rate": each.rate} for each in results],
    )
