"""The log of a long sync, and the times of its lines."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from elt_assets.pipeline.progress import LONGEST, Phase, Progress, Reporter, report_phases
from elt_assets.sync.committer import Work

READING = Progress(Phase.READING, read=1000, size=2_000_000, committed=400, estimate=2000)


def test_the_first_phase_is_logged_and_then_each_long_one_at_growing_intervals() -> None:
    lines: list[str] = []
    reporter = Reporter(lines.append, first=5, started=0)
    looks = [
        *[Progress(Phase.INSTALLING, package="source-x==1.0")] * 20,
        *[READING] * 200,
        *[Progress(Phase.STARTING_SPARK, read=2000)] * 10,
        *[Progress(Phase.WRITING, read=2000, records_written=1500), Progress(Phase.COMMITTING)]
        * 10,
    ]
    for second, progress in enumerate(looks):
        reporter.report(progress, float(second))
    assert [text.partition(":")[0] for text in lines] == [
        *("installing source-x==1.0, once for all runs", *["installing source-x==1.0"] * 2),
        *["reading"] * 6,
        "starting Spark",
        *("writing", "writing"),
    ]
    assert lines[1:3] == [
        "installing source-x==1.0: 5 s so far",
        "installing source-x==1.0: 15 s so far",
    ]
    assert lines[-1].startswith("writing: 1,500 of 2,000 records, ")


def test_the_interval_between_reports_is_limited() -> None:
    times: list[float] = []
    time = 0.0
    reporter = Reporter(lambda _: times.append(time), first=5, started=0)
    for second in range(1000):
        time = float(second)
        reporter.report(READING, time)
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses[:5] == [5, 10, 20, 40, LONGEST] and set(pauses[5:]) == {LONGEST}


def test_the_remaining_time_is_shown_only_if_it_can_be_estimated() -> None:
    assert READING.report(10) == (
        "reading: 1,000 records (2.0 MB, 100/s), 400 committed; 50% of about 2,000, about 10 s left to read"
    )
    for progress in (
        Progress(Phase.READING, read=1000, committed=400),
        Progress(Phase.READING, read=1000, committed=400, estimate=1000),
        Progress(Phase.READING, read=1001, committed=400, estimate=1000),
        Progress(Phase.READING, estimate=1000),
    ):
        text = progress.report(10)
        assert "left" not in text and "%" not in text
    for phase in set(Phase) - {Phase.READING}:
        text = Progress(phase, read=1000, estimate=1000, package="p").report(3700)
        assert "left" not in text and "%" not in text


def test_a_rate_is_measured_from_the_start() -> None:
    lines: list[str] = []
    reporter = Reporter(lines.append, first=5, started=0)
    for second in (3.0, 10.0):  # it says nothing for the first three seconds
        reporter.report(READING, second)
    assert "100/s" in lines[1]


def test_incomplete_progress_is_never_shown_as_100_percent() -> None:
    assert "; 99% of about 2,000," in replace(READING, read=1999).report(10)


def test_short_work_is_not_reported() -> None:
    lines: list[str] = []
    with report_phases(lambda: READING, lines.append, quiet=60):
        pass
    assert lines == []


def test_progress_is_reported_during_the_work() -> None:
    lines: list[str] = []
    enough = threading.Event()

    def log(text: str) -> None:
        lines.append(text)
        if len(lines) == 2:
            enough.set()

    with report_phases(lambda: READING, log, quiet=0, first=0.01):
        assert enough.wait(60)
    assert lines[0] == "reading" and lines[1].startswith("reading: 1,000 records")


def test_the_work_of_several_sinks_is_counted(switching: None) -> None:
    """No record is lost between threads, and a commit that ends does not hide one that goes on."""
    work, count = Work(), 20_000

    def add_records(_number: int) -> None:
        for _ in range(count):
            work.add(1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_records, range(4)))
    assert work.records_written == 4 * count
    with work.count_commit():
        with pytest.raises(ValueError), work.count_commit():  # noqa: PT011, PT012 - a commit that fails
            assert work.is_committing
            raise ValueError
        assert work.is_committing
    assert not work.is_committing


@pytest.fixture
def switching() -> Iterator[None]:
    """Let the interpreter switch between threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
