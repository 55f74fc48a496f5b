"""Followers of commits: in a thread of their own, coalescing, never raising; and names in catalogs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.errors import ConfigError, TransientError
from elt_assets.lake.publish.followers import Followers, LakeTable
from elt_assets.lake.publish.names import catalog_name, namespace_levels
from elt_assets.storage.location import Location

pytestmark = pytest.mark.unit


def lake_table(name: str = "users") -> LakeTable:
    return LakeTable(Location(f"/lake/shop/{name}"), "shop", ("shop", name))


class Recorder:
    """A follower that waits for a permission at each table, and fails as often as it is told to."""

    name = "recorder"

    def __init__(self, failures: Sequence[Exception] = ()):
        self.followed: list[str] = []
        self.permissions = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)
        self._failures: Iterator[Exception] = iter(failures)

    def follow(self, table: LakeTable) -> None:
        self.entered.release()
        self.permissions.acquire()
        self.followed.append(table.name)
        if (failure := next(self._failures, None)) is not None:
            raise failure

    def drop(self, table: LakeTable) -> bool:
        raise NotImplementedError

    def metadata(self, table: LakeTable) -> Mapping[str, Any]:
        return {"elt/followed": self.followed.count(table.name)}


def allow(recorder: Recorder, count: int = 1) -> None:
    for _ in range(count):
        recorder.permissions.release()


def settle(followers: Followers, table: LakeTable) -> None:
    """Wait for followers whose patience is over."""
    deadline = time.monotonic() + 30
    while followers.problems(table) and time.monotonic() < deadline:
        time.sleep(0.01)


def test_commits_during_a_call_are_followed_once_and_a_read_does_not_wait_longer_than_it_says() -> (
    None
):
    recorder, table = Recorder(), lake_table()
    followers = Followers([lambda: recorder], patience=0.01)
    followers.notice(table)
    recorder.entered.acquire()
    for _ in range(5):
        followers.notice(table)
    followers.wait()
    followers.wait(lake_table("orders"))
    assert "not published yet" in followers.problems(table)[0]
    allow(recorder, 2)
    settle(followers, table)
    assert recorder.followed == ["shop.users"] * 2
    assert followers.problems(table) == []
    assert followers.metadata(table) == {"elt/followed": 2}
    followers.close()


def test_a_failure_is_a_reason_until_a_later_call_succeeds() -> None:
    failures = [TransientError("the catalog is down", guidance="start it"), ValueError("odd")]
    recorder, table = Recorder(failures), lake_table()
    followers = Followers([lambda: recorder])
    allow(recorder, 3)
    reasons = []
    for _ in range(3):
        followers.notice(table)
        followers.wait()
        reasons.append("".join(followers.problems(table)))
    assert reasons[0] == "the catalog is down; start it"
    assert reasons[1].startswith("ValueError: odd; ")
    assert reasons[2] == ""
    followers.close()


def test_a_follower_that_cannot_be_opened_is_the_reason_for_each_table() -> None:
    def fail() -> Recorder:
        raise ConfigError("no library", guidance="install it")

    recorder = Recorder()
    allow(recorder)
    followers = Followers([fail, lambda: recorder])
    followers.notice(lake_table())
    followers.wait()
    assert followers.problems(lake_table()) == ["no library; install it"]
    assert recorder.followed == ["shop.users"]
    followers.close()


def test_without_followers_there_is_no_thread() -> None:
    before = threading.active_count()
    followers = Followers()
    followers.start()
    followers.notice(lake_table())
    followers.wait()
    assert (threading.active_count(), followers.problems(lake_table())) == (before, [])
    assert not followers.are_there


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("glue", "Users_2", "users_2"),
        ("hive", "Users", "users"),
        ("unity", "Üsers-1", "üsers-1"),
        ("rest", "Users", "Users"),
        ("sql", "Üsers", "Üsers"),
    ],
)
def test_letter_case_is_folded_where_the_catalog_folds_it(
    kind: str, name: str, expected: str
) -> None:
    assert catalog_name(kind, name, "the table") == expected


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("glue", "üsers", "the letters a to z"),
        ("hive", "a" * 129, "at most 128 characters, and this one has 129"),
        ("unity", "information_schema", "reserved"),
        ("rest", "a.b", "all characters but dots"),
        ("glue", "", "letters a to z"),
    ],
)
def test_a_name_that_a_catalog_refuses_is_an_error_with_a_remedy(
    kind: str, name: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        catalog_name(kind, name, "the table shop.x")
    assert "`table` of the stream" in (caught.value.guidance or "")


@pytest.mark.parametrize(
    ("template", "above", "expected"),
    [
        ("{connection}", ("raw",), ("shop",)),
        ("{connection}", ("raw", "eu"), ("shop_eu",)),
        ("{namespace}", ("raw", "eu"), ("raw_eu",)),
        ("lake.{connection}", ("raw",), ("lake", "shop")),
        ("lake.{connection}", ("raw", "eu"), ("lake", "shop_eu")),
        ("lake_{namespace}", (), ("lake",)),
        ("{namespace}", (), ("default",)),
    ],
)
def test_a_namespace_is_made_from_its_template(
    template: str, above: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert namespace_levels("rest", template, "shop", above, "the table") == expected


def test_a_template_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the variable \{stream\}"):
        namespace_levels("rest", "{stream}", "shop", (), "the table")
    with pytest.raises(ConfigError, match="namespaces of one level"):
        namespace_levels("glue", "a.b", "shop", (), "the table")


@given(st.lists(st.from_regex(r"[a-z0-9_]{1,5}", fullmatch=True), min_size=2, max_size=3))
def test_tables_of_two_namespaces_of_a_connection_have_two_namespaces(above: list[str]) -> None:
    first, *own = above
    plain = namespace_levels("glue", "{connection}", "shop", [first], "the table")
    inner = namespace_levels("glue", "{connection}", "shop", [first, *own], "the table")
    assert plain != inner or not "".join(own).strip("_")
