"""A session without tables: what routing costs on one core, and what it holds in memory."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from elt_assets.protocol.airbyte.catalog import (
    INCREMENTAL,
    AirbyteStream,
    ConfiguredCatalog,
    ConfiguredStream,
    StreamId,
)
from elt_assets.protocol.airbyte.codec import decode_blocks
from elt_assets.protocol.airbyte.messages import Message, RawRecord
from elt_assets.runner.process.child import Process
from elt_assets.sync.events import Checkpoint, Committed
from elt_assets.sync.segments import Segment
from elt_assets.sync.session import Session
from tests.benchmarks.measure import MEGABYTE, CommandFailed
from tests.benchmarks.report import Bar, Report

STREAMS = 20
BLOCK = 20_000
"""Records in the file that is sent again and again."""
STATE_EVERY = 10_000
_SEND = 'i=0; while [ $i -lt "$2" ]; do cat "$1"; i=$((i+1)); done'


class Nowhere:
    """A sink that counts."""

    def __init__(self) -> None:
        self._waiting = 0
        self.records = 0

    def write(self, segment: Segment) -> None:
        self._waiting += segment.records

    def commit(self, checkpoint: Checkpoint) -> Committed:
        done, self._waiting = self._waiting, 0
        self.records += done
        return Committed(1, 1, 1, done, 0, 0)


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
    """Both in this process, which should have run nothing else.

    Args:
        records: of 20 streams, one after the other; `gigabytes`: of larger records, at least so many.
    """
    with tempfile.TemporaryDirectory(prefix="routing-", dir=work) as made:
        folder = Path(made)
        small = _block(folder / "small.jsonl", width=60)
        large = _block(folder / "large.jsonl", width=1_900)
        again = -(-int(gigabytes * 1e9) // large.stat().st_size)
        return _report(
            [
                _routed("20 interleaved streams", folder, small, -(-records // BLOCK)),
                _routed("large records", folder, large, again),
            ]
        )


def _block(path: Path, width: int) -> Path:
    """Records of each stream in turn, `width` characters of text in each, and a state now and then."""
    with path.open("w") as file:
        for number in range(BLOCK):
            stream = f"stream_{number % STREAMS:02d}"
            data = f'{{"id":{number},"at":"2026-01-01T00:00:00Z","text":"{"x" * width}"}}'
            record = f'{{"stream":"{stream}","data":{data},"emitted_at":1700000000000}}'
            file.write(f'{{"type":"RECORD","record":{record}}}\n')
            if number % STATE_EVERY == STATE_EVERY - 1:
                for each in range(STREAMS):
                    file.write(_state(f"stream_{each:02d}", number))
    return path


def _state(stream: str, at: int) -> str:
    told = f'{{"stream_descriptor":{{"name":"{stream}"}},"stream_state":{{"at":{at}}}}}'
    return f'{{"type":"STATE","state":{{"type":"STREAM","stream":{told}}}}}\n'


def _routed(name: str, folder: Path, block: Path, times: int) -> Result:
    print(f"routing: {name}, {times * BLOCK:,} records", file=sys.stderr)
    sinks = {StreamId(stream.stream.name): Nowhere() for stream in _catalog().streams}
    staging = folder / block.stem
    start, core = time.perf_counter(), time.process_time()
    session = Session(_catalog(), sinks, staging)
    for _ in session.run(_messages(block, times)):
        pass
    seconds, core = time.perf_counter() - start, time.process_time() - core
    found = sum(sink.records for sink in sinks.values())
    if found != times * BLOCK:
        raise CommandFailed(f"{name}: {found:,} of {times * BLOCK:,} records came")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE
    return Result(name, found, block.stat().st_size * times / MEGABYTE, seconds, core, peak)


def _messages(block: Path, times: int) -> Iterator[RawRecord | Message]:
    with Process(["sh", "-c", _SEND, "send", str(block), str(times)]) as process:
        yield from decode_blocks(process.blocks())


def _catalog() -> ConfiguredCatalog:
    return ConfiguredCatalog(
        streams=[
            ConfiguredStream(
                stream=AirbyteStream(name=f"stream_{number:02d}", json_schema={}),
                sync_mode=INCREMENTAL,
                cursor_field=["at"],
            )
            for number in range(STREAMS)
        ]
    )


def _report(results: Sequence[Result]) -> Report:
    small, large = results
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
        headings=["what", "records", "MB", "seconds", "of a core", "records/s", "MB/s", "peak MB"],
        rows=rows,
        note="from a pipe, decoded and staged; records/s: of one core's time; peak: the whole process",
        bars=[
            Bar(
                "records of 20 streams, thousands a second",
                small.rate / 1000,
                500,
                " k/s",
                least=True,
            ),
            Bar("memory of the session", large.peak_mb, 300, " MB"),
        ],
        figures=[asdict(each) | {"rate": each.rate} for each in results],
    )
