"""Runs in a store that lies at one of their requests, or from one of them on.

Whatever it answers, readers see the former or the new contents, no file that a table names is missing, and
the next run ends as an undisturbed one does.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elt_assets.errors import ConfigError
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.machine_faults import translate
from tests.lake.crashing import EVENTS, View, configured, event, sync, view
from tests.lake.harness import Lake
from tests.lake.staging import NUMBER
from tests.support.lying_store import LOG_ENTRY, Lie, LyingStore
from tests.support.object_store import ObjectStore, copy_folder, missing_files

BATCHES = [
    [event(1, 10), event(2, 10), event(None, 1)],
    [event(1, 20), event(3, 5), event(None, 2)],
]
LATER = [*BATCHES, [event(2, 30), event(None, 3)]]
WHOLE = [[row for batch in LATER for row in batch]]


def merge(lake: Lake) -> None:
    sync(lake, LATER)


def widen(lake: Lake) -> None:
    sync(lake, LATER, configured(lake, properties={**EVENTS, "at": NUMBER}))


def retain(lake: Lake) -> None:
    sync(lake, WHOLE, refresh="retain")


def truncate(lake: Lake) -> None:
    sync(lake, WHOLE, refresh="truncate")


def tidy(lake: Lake) -> None:
    maintain(lake.spark, lake.tables(), dt.timedelta(0))


def follow(lake: Lake) -> None:
    """A run after a refresh, without new data."""
    sync(lake, WHOLE)


RUNS: dict[Callable[[Lake], None], Callable[[Lake], None]] = {
    merge: merge,
    widen: widen,
    retain: follow,
    truncate: follow,
    tidy: tidy,
}
"""Each run, and the next one after it has ended."""

EXPIRED = Lie(".*", ".", 400, is_done=False, code="ExpiredToken", times=10**6)
REFUSED_DELETES = Lie("DELETE|POST", ".", 403, is_done=False, times=10**6)
LIES = [
    *(
        Lie(".*", ".", status, is_done=done)
        for status in (500, 503, 403, 0)
        for done in (True, False)
    ),
    *(Lie(status=status, is_done=done) for status in (409, 412) for done in (True, False)),
    Lie(".*", ".", 503, is_done=False, times=3),
    Lie(".*", ".", 500, is_done=False, times=10**6),
    Lie(".*", ".", seconds=0.5),
    EXPIRED,
    REFUSED_DELETES,
]


@dataclass(frozen=True)
class Undisturbed:
    """The contents after a run to which nothing was done, and the numbers of its requests and commits."""

    after: View
    requests: int
    commits: int


class Story:
    """A lake in a folder of the bucket; each run starts from a copy of it."""

    def __init__(self, lake: Lake, store: ObjectStore, proxy: LyingStore):
        self.lake, self.store, self.proxy = lake, store, proxy
        self._undisturbed: dict[Callable[[Lake], None], Undisturbed] = {}
        self.lake.history = True
        self.folder = self._move()
        sync(lake, BATCHES[:1])
        sync(lake, BATCHES)
        self.before = view(lake)

    def _move(self) -> str:
        """Move the lake to a new folder; return the folder's name."""
        folder = os.urandom(8).hex()
        self.lake.root = f"s3://{self.store.bucket}/{folder}"
        return folder

    def _begin(self) -> None:
        self.current = self._move()
        copy_folder(self.store, self.folder, self.current)

    def undisturbed(self, run: Callable[[Lake], None]) -> Undisturbed:
        if run not in self._undisturbed:
            self._begin()
            self.proxy.tell()
            run(self.lake)
            requests = self.proxy.requests()
            commits = [
                path
                for method, path, _ in requests
                if re.search(LOG_ENTRY, path) and method == "PUT"
            ]
            self._undisturbed[run] = Undisturbed(view(self.lake), len(requests), len(commits))
        return self._undisturbed[run]

    def check(self, run: Callable[[Lake], None], lie: Lie, place: float) -> None:
        """Run, with a lie at a request.

        Args:
            place: the request, from 0 for the first one to 1 for the last one.
        """
        usual = self.undisturbed(run)
        count = usual.commits if lie.path == LOG_ENTRY else usual.requests
        self._begin()
        with self.proxy.telling(replace(lie, skip=int(place * count))):
            error = raised_by(partial(run, self.lake))
        seen = view(self.lake)
        assert seen in (self.before, usual.after), error
        assert missing_files(self.store, self.current) == [], error
        assert error is not None or seen == usual.after
        if error is not None and lie is EXPIRED:
            fault = translate(error)
            assert isinstance(fault, ConfigError) and "credentials" in str(fault), error
        next_run = run if seen != usual.after else RUNS[run]
        next_run(self.lake)
        assert view(self.lake) == usual.after
        assert missing_files(self.store, self.current) == []


def raised_by(run: Callable[[], object]) -> Exception | None:
    try:
        run()
    except Exception as error:  # noqa: BLE001 - the store answers in many ways
        return error
    return None


@pytest.fixture
def story(
    lying_lake: Lake, store: ObjectStore, proxy: LyingStore, monkeypatch: pytest.MonkeyPatch
) -> Story:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "4")
    return Story(lying_lake, store, proxy)


def explore(story: Story, examples: int) -> None:
    @given(
        run=st.sampled_from(list(RUNS)),
        lie=st.sampled_from(LIES),
        place=st.floats(0, 1, exclude_max=True),
    )
    @settings(max_examples=examples, derandomize=True, database=None)
    def holds(run: Callable[[Lake], None], lie: Lie, place: float) -> None:
        story.check(run, lie, place)

    holds()


@pytest.mark.spark
def test_a_run_whose_store_lies_once_is_whole_or_not_there(story: Story) -> None:
    story.check(merge, EXPIRED, 0.5)
    story.check(tidy, Lie(status=0), 0.5)


@pytest.mark.spark
@pytest.mark.long
def test_a_run_whose_store_lies_at_any_request_is_whole_or_not_there(story: Story) -> None:
    explore(story, int(os.environ.get("EXAMPLES", "60")))
