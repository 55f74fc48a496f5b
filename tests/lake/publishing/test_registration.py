"""The entries of Delta tables in Glue, Hive and Unity: what is made, changed, removed, and left alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from elt_assets.errors import ConfigError, EltError, TransientError
from elt_assets.lake.publish.registration import (
    Catalog,
    EntryName,
    Outcome,
    Registration,
    differences,
    register,
    same_place,
    unregister,
)
from tests.lake.publishing.catalogs import Server
from tests.support.lossy_proxy import FATES, Fate

pytestmark = pytest.mark.process

ID = t.StructField("id", t.LongType())
SCHEMAS = (
    t.StructType([ID, t.StructField("_airbyte_raw_id", t.StringType())]),
    t.StructType([ID, t.StructField("at", t.TimestampType()), t.StructField("_x", t.StringType())]),
    t.StructType(
        [t.StructField("id", t.StringType(), metadata={"comment": "the number, as text"})]
    ),
    t.StructType(
        [
            ID,
            t.StructField("at", t.TimestampNTZType()),
            t.StructField("Rows", t.ArrayType(t.StructType([t.StructField("Ä", t.DateType())]))),
            t.StructField("price", t.DecimalType(38, 9)),
            t.StructField("attributes", t.MapType(t.StringType(), t.DoubleType())),
        ]
    ),
)
SLOTS = ("users", "orders", "items")


@dataclass(frozen=True)
class Step:
    """A step of a history: what happens to a table, and what becomes of the requests."""

    action: str
    table: int
    slot: str
    schema: int
    fates: tuple[Fate, ...]


STEPS = st.builds(
    Step,
    st.sampled_from(["sync", "sync", "rename", "remove", "other program"]),
    st.integers(0, 1),
    st.sampled_from(SLOTS),
    st.integers(0, len(SCHEMAS) - 1),
    st.lists(st.sampled_from(FATES), max_size=5).map(tuple),
)


class Lake:
    """Tables of a lake whose entries follow them, as commands and syncs have them follow."""

    def __init__(self, server: Server):
        self.server = server
        self.tables: dict[int, tuple[str, int]] = {}
        self.others: dict[str, Any] = {}

    def take(self, step: Step) -> None:
        """Take a step; a catalog that fails has no effect on the table, but stops a rename or a removal."""
        server = self.server
        if step.action == "other program":
            self.add_other(step.slot)
            return
        server.proxy.plan(step.fates)
        try:
            self._take(step)
        except EltError:
            pass
        finally:
            server.proxy.plan(())

    def _take(self, step: Step) -> None:
        slot, schema = self.tables.get(step.table, (step.slot, step.schema))
        in_use = {slot for table, (slot, _) in self.tables.items() if table != step.table}
        if step.action == "sync" and slot not in in_use:
            self.tables[step.table] = (slot, step.schema)
            register(self.server.lossy, self.registration(step.table))
        elif step.table in self.tables and step.action == "remove":
            self.forget(step.table)
            del self.tables[step.table]
        elif step.table in self.tables and step.slot not in in_use:
            self.forget(step.table)
            self.tables[step.table] = (step.slot, schema)
            register(self.server.lossy, self.registration(step.table))

    def add_other(self, slot: str) -> None:
        name = self.server.name(slot)
        if self.server.direct.find(name) is None:
            other = self.server.registration(slot, root=f"{self.server.root}_of_others")
            self.server.direct.create(other)
            self.others[slot] = read(self.server.direct, name)

    def forget(self, table: int) -> None:
        registration = self.registration(table)
        unregister(self.server.lossy, registration.name, registration.location)

    def registration(self, table: int) -> Registration:
        slot, schema = self.tables[table]
        return self.server.registration(slot, SCHEMAS[schema], f"columns {schema}")

    def assert_entries(self) -> None:
        """Assert, after a try of each table without losses, that each entry is what it should be."""
        occupied = {slot: table for table, (slot, _) in self.tables.items()}
        for slot in SLOTS:
            name = self.server.name(slot)
            if slot in self.others:
                if slot in occupied:
                    with pytest.raises(ConfigError, match=f"{name}.* at another place"):
                        register(self.server.lossy, self.registration(occupied[slot]))
                assert read(self.server.direct, name) == self.others[slot]
            elif slot in occupied:
                registration = self.registration(occupied[slot])
                register(self.server.lossy, registration)
                assert_entry(self.server.direct, registration)
            else:
                assert self.server.direct.find(name) is None


def read(catalog: Catalog, name: EntryName) -> Any:
    entry = catalog.find(name)
    assert entry is not None
    return entry.location, entry.facts


def assert_entry(catalog: Catalog, registration: Registration) -> None:
    entry = catalog.find(registration.name)
    assert entry is not None
    assert same_place(entry.location, registration.location)
    assert differences(catalog, registration, entry) == []


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=1, max_size=6))
def test_any_history_ends_with_the_entries_that_should_be_there(
    server: Server, steps: list[Step]
) -> None:
    """Renames, removals, other columns, lost requests and lost answers: after the next try all is right."""
    server.new_database()
    lake = Lake(server)
    for step in steps:
        lake.take(step)
    lake.assert_entries()


@pytest.mark.long
@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=1, max_size=20))
def test_any_long_history_ends_so_too(server: Server, steps: list[Step]) -> None:
    server.new_database()
    lake = Lake(server)
    for step in steps:
        lake.take(step)
    lake.assert_entries()


def test_the_first_try_says_what_it_did_and_the_second_does_nothing(server: Server) -> None:
    registration = server.registration("users", SCHEMAS[1])
    assert register(server.direct, registration) is Outcome.CREATED
    requests = server.proxy.requests
    assert register(server.lossy, registration) is Outcome.UNCHANGED
    assert server.proxy.requests == requests + 1
    for schema in (*SCHEMAS, *reversed(SCHEMAS)):
        changed = replace(registration, schema=schema)
        assert register(server.direct, changed) in (Outcome.UPDATED, Outcome.UNCHANGED)
        assert_entry(server.direct, changed)


def test_a_change_whose_answer_is_lost_is_looked_up(server: Server) -> None:
    registration = server.registration("users", SCHEMAS[0])
    register(server.direct, replace(registration, name=server.name("first")))  # the database
    for fates in (["pass", "pass", "lose answer"], ["lose answer"], ["lose request"]):
        server.proxy.plan(fates)  # type: ignore[arg-type]
        register(server.lossy, registration)
        assert_entry(server.direct, registration)
        server.proxy.plan(["pass", "lose answer"])
        unregister(server.lossy, registration.name, registration.location)
        assert server.direct.find(registration.name) is None


def test_a_catalog_that_is_down_is_named_with_the_next_try(server: Server) -> None:
    server.proxy.plan(["lose request"] * 20)
    with pytest.raises(TransientError) as caught:
        register(server.lossy, server.registration("users"))
    assert "cannot be reached" in caught.value.message
    assert "`elt publish`" in str(caught.value.guidance)


def test_an_entry_of_another_lake_stays_until_it_is_to_be_replaced(server: Server) -> None:
    other = server.registration("users", root=f"{server.root}_of_others")
    register(server.direct, other)
    before = read(server.direct, other.name)
    registration = server.registration("users", SCHEMAS[1])
    with pytest.raises(ConfigError) as caught:
        register(server.direct, registration)
    assert other.location.rpartition("/lake")[2] in caught.value.message
    assert "`elt publish CONNECTION STREAM --replace`" in str(caught.value.guidance)
    assert unregister(server.direct, registration.name, registration.location) is False
    assert read(server.direct, other.name) == before
    assert register(server.direct, registration, replace=True) is Outcome.REPLACED
    assert_entry(server.direct, registration)


def test_comments_stay_where_they_are_not_known(server: Server) -> None:
    """A command that changes a table's columns, and knows no descriptions of its stream."""
    commented = t.StructField("Id", t.LongType(), metadata={"comment": "who it is"})
    registration = server.registration("users", t.StructType([commented]), "All users")
    register(server.direct, registration)
    more = t.StructType([t.StructField("Id", t.LongType()), t.StructField("day", t.DateType())])
    unknown = replace(registration, schema=more, comment="", keeps_comments=True)
    assert register(server.direct, unknown) is Outcome.UPDATED
    both = t.StructType([commented, more["day"]])
    assert_entry(server.direct, replace(registration, schema=both))
    assert register(server.direct, unknown) is Outcome.UNCHANGED
    assert register(server.direct, replace(unknown, keeps_comments=False)) is Outcome.UPDATED
    assert_entry(server.direct, replace(registration, schema=more, comment=""))


@pytest.mark.parametrize(
    ("uri", "other", "is_same"),
    [
        ("s3://lake/a", "s3a://lake/a/", True),
        ("s3://lake/a", "s3://lake/b", False),
        ("s3://lake/a", "s3://other/a", False),
        ("/lake/a", "file:/lake/a", True),
        ("file:///lake/a/", "/lake/a", True),
        ("abfss://c@a.dfs.core.windows.net/x", "abfs://c@a.dfs.core.windows.net/x/", True),
        ("gs://lake/a", "s3://lake/a", False),
        ("s3://lake/A", "s3://lake/a", False),
    ],
)
def test_the_same_place_has_several_forms(uri: str, other: str, is_same: bool) -> None:
    assert same_place(uri, other) is is_same
