"""An erasure in a store that refuses its requests, and one that is killed: the same command finishes it.

Whatever happened, readers see the table with the rows or without them, and no file that it names is missing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import replace

import pytest

from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.failpoints import Failpoint, armed
from elt_assets.machine_faults import translate
from tests.lake.crashing import Killed
from tests.lake.harness import Lake
from tests.lake.test_erasure import (
    SECRET,
    erase_rows,
    open_erasure,
    people,
    person,
    select,
    view_of,
)
from tests.lake.test_lying_runs import EXPIRED, REFUSED_DELETES
from tests.support.failpoints import KILLED_IN
from tests.support.lying_store import Lie, LyingStore
from tests.support.object_store import ObjectStore, copy_folder, missing_files
from tests.support.seeds import read_range
from tests.support.value_search import find_in_store

pytestmark = pytest.mark.spark
HERE = "tests/lake/test_erasure.py::test_an_erasure_survives_a_kill_at_any_point"
POINTS = [point for point, test in KILLED_IN.items() if test == HERE]
REFUSED = Lie(".*", ".", 403, is_done=False, times=10**6)


class Story:
    """A lake with a person, in a folder of the bucket; each erasure starts from a copy of it."""

    def __init__(self, lake: Lake, store: ObjectStore, proxy: LyingStore):
        self.lake, self.store, self.proxy = lake, store, proxy
        lake.history, self.users = True, people()
        first = self._move()
        lake.sync(self.users, person(1, SECRET), person(2, "b@x"), person("no", SECRET), value=1)
        lake.sync(self.users, person(1, SECRET, 2), person(2, "c@x", 2), value=2)
        self.before, self.first = view_of(lake), first
        assert self.find()
        self.begin()
        proxy.tell()
        self.passed: Counter[Failpoint] = Counter()
        with armed(lambda point: self.passed.update([point])):
            self.erase()
        self.requests, self.after = len(proxy.requests()), view_of(lake)
        assert not self.find()

    def _move(self) -> str:
        self.folder = os.urandom(8).hex()
        self.lake.root = f"s3://{self.store.bucket}/{self.folder}"
        return self.folder

    def begin(self) -> None:
        copy_folder(self.store, self.first, self._move())

    def erase(self) -> None:
        erasure = open_erasure(self.lake, self.users)
        erase_rows(erasure, select(erasure, f"email = '{SECRET}'"), suppresses=True)

    def find(self) -> Collection[object]:
        return find_in_store(SECRET, self.store, f"{self.folder}/")

    def check(
        self, lie: Lie | None = None, kill: Callable[[Failpoint], None] | None = None
    ) -> BaseException:
        """Erase with a disturbance, and again without; return the error of the first one."""
        self.begin()
        hook, lies = (armed(kill) if kill else nullcontext()), ([lie] if lie else [])
        with pytest.raises((Exception, Killed)) as caught, hook, self.proxy.telling(*lies):
            self.erase()
        ids = self.lake.ids()
        assert ids in ([1, 2], [2]), caught.value
        assert missing_files(self.store, self.folder) == []
        self.erase()
        assert view_of(self.lake) == self.after, caught.value
        assert not self.find(), caught.value
        return caught.value


@pytest.fixture
def story(
    lying_lake: Lake, store: ObjectStore, proxy: LyingStore, monkeypatch: pytest.MonkeyPatch
) -> Story:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    return Story(lying_lake, store, proxy)


def kill_at(point: Failpoint, skip: int = 0) -> Callable[[Failpoint], None]:
    left = iter(range(skip, -1, -1))

    def kill(reached: Failpoint) -> None:
        if reached is point and next(left, -1) == 0:
            raise Killed

    return kill


def test_an_erasure_in_a_store_is_finished_by_the_same_command(story: Story) -> None:
    refused = story.check(REFUSED_DELETES)
    assert isinstance(refused, SystemFailure) and "could not be removed" in refused.message
    assert "s3:DeleteObject" in (refused.guidance or "")
    expired = translate(story.check(replace(EXPIRED, skip=story.requests // 2)))
    assert isinstance(expired, ConfigError) and "credentials" in expired.message


@pytest.mark.long
@pytest.mark.parametrize("lie", [EXPIRED, REFUSED], ids=["expired", "refused"])
def test_an_erasure_whose_store_refuses_all_from_some_request_on_is_finished(
    story: Story, lie: Lie, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each third request; `ELT_REQUESTS=40-` goes on from the 40th."""
    for skip in read_range("ELT_REQUESTS", story.requests, first=1)[::3]:
        with capsys.disabled():
            print(f"refused from request {skip} of {story.requests} on", flush=True)
        error = story.check(replace(lie, skip=skip))
        fault = error if isinstance(error, EltError) else translate(error)
        assert fault is not None and fault.guidance, (skip, error)


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_an_erasure_in_a_store_survives_a_kill_at_any_point(story: Story, point: Failpoint) -> None:
    times = story.passed[point]
    assert times
    for skip in range(min(times, 3)):
        story.check(kill=kill_at(point, skip))
