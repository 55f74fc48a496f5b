"""The state of a stream of files, against a store that is simulated with a clock."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.sdk.files.read_files import (
    KEEP,
    LIMIT,
    FileVersion,
    ReadFiles,
    ReadProgress,
    read_state,
)
from elt_assets.errors import ConfigError
from tests.support.examples import examples

WINDOW = 10
ORIGIN = "place: *"


@dataclass
class Store:
    """A store in which a file becomes visible at most `WINDOW` after its time of modification."""

    clock: int = 1_000
    files: dict[str, FileVersion] = field(default_factory=dict)
    state: ReadFiles = field(default_factory=lambda: ReadFiles(ORIGIN))
    reads: Counter[FileVersion] = field(default_factory=Counter)
    versions: set[FileVersion] = field(default_factory=set)

    def put(self, path: str, late: int, size: int) -> None:
        version = FileVersion(self.clock - late, path, size)
        previous = self.files.get(path)
        if previous is not None and previous.modified == version.modified:
            return  # its store cannot tell the two versions apart
        if previous is not None and not self.reads[previous]:
            self.versions.discard(previous)  # it was replaced before it was read
        self.files[path] = version
        self.versions.add(version)

    def sync(self, count: int, keep: int, limit: int | None) -> int:
        """Read at most `count` files, as a sync that is killed then; return how many were left."""
        progress = ReadProgress(
            self.state, self.files.values(), self.clock - WINDOW, keep=keep, limit=limit
        )
        done = min(count, len(progress.pending))
        self.reads.update(progress.pending[:done])
        self.state = read_state(json.loads(json.dumps(progress.after(done).to_json())), ORIGIN)
        assert limit is None or len(self.state.recent) <= limit
        return len(progress.pending) - done + len(progress.deferred)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.sampled_from("abcdefgh"), st.integers(0, WINDOW), st.integers(0, 1)
        ),
        st.tuples(st.just("remove"), st.sampled_from("abcdefgh")),
        st.tuples(st.just("sync"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.integers(1, 2 * WINDOW)),
    ),
    max_size=40,
)


@settings(max_examples=examples(400))
@given(steps=STEPS, keep=st.integers(0, 5), more=st.sampled_from([None, 1, 2, 4]))
def test_each_version_of_a_file_is_read_exactly_once(
    steps: list[tuple[str, ...]], keep: int, more: int | None
) -> None:
    store, limit = Store(), None if more is None else keep + more
    for name, *values in steps:
        if name == "put":
            store.put(*values)  # type: ignore[arg-type]
        elif name == "remove":
            removed = store.files.pop(values[0], None)
            if removed is not None and not store.reads[removed]:
                store.versions.discard(removed)
        elif name == "sync":
            store.sync(int(values[0]), keep, limit)
        else:
            store.clock += int(values[0])
    while store.sync(100, keep, limit):
        store.clock += WINDOW
    assert store.reads == dict.fromkeys(store.versions, 1)


def test_a_few_files_are_known_whatever_their_age() -> None:
    day = 86_400 * 10**9
    old = [FileVersion(n * day, f"f{n}", 1) for n in range(100)]
    state = ReadProgress(ReadFiles(ORIGIN), old, 1_000 * day).after(100)
    assert state.before is None
    late = FileVersion(day // 2, "moved here with its old time", 1)
    assert ReadProgress(state, [*old, late], 2_000 * day).pending == [late]


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_million_files_need_a_small_state(count: int) -> None:
    files = [FileVersion(n // 1_000, f"folder/{n:07}.csv", 10) for n in range(count)]
    progress = ReadProgress(ReadFiles(ORIGIN), files, 10**6)
    assert len(progress.pending) == count
    half, full = progress.after(count // 2), progress.after(count)
    assert len(json.dumps(half.to_json())) < 300 and len(full.recent) <= KEEP
    assert not ReadProgress(full, files, 10**6).pending
    assert len(ReadProgress(half, files, 10**6).pending) == count // 2


def test_a_million_files_of_this_moment_are_read_by_and_by() -> None:
    count = 60_000
    files = [FileVersion(1_000, f"{n}", 10) for n in range(count)]
    state = ReadFiles(ORIGIN)
    progress = ReadProgress(state, files, 900)
    assert len(progress.pending) == LIMIT and len(progress.deferred) == count - LIMIT
    state = progress.after(LIMIT)
    assert not ReadProgress(state, files, 999).pending
    assert len(json.dumps(state.to_json())) < 1_100_000
    later = ReadProgress(state, files, 1_001)
    assert len(later.pending) == count - LIMIT and not later.deferred
    assert len(later.after(count - LIMIT).recent) == 0


def test_a_time_in_the_future_hides_no_file() -> None:
    future = [FileVersion(10**9 + n, f"future {n}", 1) for n in range(KEEP + 10)]
    state = ReadProgress(ReadFiles(ORIGIN), future, 500).after(len(future))
    present = FileVersion(600, "present", 1)
    assert ReadProgress(state, [*future, present], 700).pending == [present]


@pytest.mark.parametrize(
    "state", [{"a": 1}, {"version": 1, "origin": "x", "before": 3, "recent": "?"}]
)
def test_a_state_of_another_source_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="none of a stream of files"):
        read_state(state, ORIGIN)


def test_other_globs_are_refused_once_files_are_forgotten() -> None:
    files = [FileVersion(n, f"{n}", 1) for n in range(10)]
    few = ReadProgress(ReadFiles("other: *"), files, 100).after(10)
    assert not ReadProgress(read_state(few.to_json(), ORIGIN), files, 100).pending
    many = ReadProgress(ReadFiles("other: *"), files, 100, keep=3).after(10)
    with pytest.raises(ConfigError, match="told from"):
        read_state(many.to_json(), ORIGIN)
