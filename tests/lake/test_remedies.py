"""What the errors about a stream's tables tell a user to do lets the next sync go on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.write.states import remove_rows, set_state
from elt_assets.protocol.catalog import ConfiguredStream
from tests.lake.harness import Lake
from tests.lake.plain import NoSpark, without_spark
from tests.lake.staging import BOOLEAN, INTEGER, NUMBER, STRING, array, stream, struct

DEDUP, OVERWRITE = "append_dedup", "overwrite"
RESET, MOVE, FREEZE = "elt reset CONNECTION STREAM --data --yes", "move the table", "freeze"
REFRESH, REPLACE, EVOLVE = "--refresh truncate", "a policy that overwrites", "set `evolve`"

CONFLICTS: list[tuple[Any, Any, Any, Any]] = [
    (STRING, struct(x=INTEGER), "a", {"x": 1}),
    (struct(x=INTEGER), INTEGER, {"x": 1}, 1),
    (array(STRING), STRING, ["a"], "a"),
    (struct(x=STRING), struct(x=array(STRING)), {"x": "a"}, {"x": ["a"]}),
    (BOOLEAN, INTEGER, True, 1),
]
"""The table's type, a declared one that it cannot take, and a value of each."""


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Lake]:
    """A lake without Spark."""
    with without_spark():
        yield Lake(NoSpark(), tmp_path, is_plain=True)  # type: ignore[arg-type]


def configure(
    kind: Any, policy: str = DEDUP, *, key: Any = INTEGER, generation: int = 1
) -> ConfiguredStream:
    fields = {"id": key, "value": kind}
    keys = ["id"] if policy.endswith("dedup") else []
    return stream(fields, policy, key=keys, generation=generation)


def refuse(lake: Lake, configured: ConfiguredStream, *remedies: str, **how: Any) -> None:
    """The sync is refused before a record is read, and the message names these remedies and no other."""
    version = lake.table.version
    with pytest.raises(ConfigError) as caught:
        lake.writer(configured, **how)
    guidance = str(caught.value.guidance)
    named = {text for text in (RESET, MOVE, FREEZE, REFRESH, REPLACE, EVOLVE) if text in guidance}
    assert named == set(remedies), guidance
    assert lake.table.version == version


def follow(lake: Lake, remedy: str, configured: ConfiguredStream) -> dict[str, Any]:
    """Do what a remedy says; return how the next sync is configured."""
    if remedy == RESET:
        assert remove_rows(lake.tables(), "reset") == 1
    elif remedy == MOVE:
        for suffix in ("", "_history", "_dead_letter"):
            table = Path(f"{lake.uri}{suffix}")
            if table.exists():
                shutil.move(table, lake.folder / f"away{suffix}")
    elif remedy in (REFRESH, REPLACE):
        generation = lake.table.metadata.generation + 1
        configured.generation_id = configured.minimum_generation_id = generation
        if remedy == REPLACE:
            configured.destination_sync_mode = OVERWRITE
    return {"on_schema_change": FREEZE} if remedy == FREEZE else {}


def check(
    lake: Lake, first: tuple[Any, Any], second: tuple[Any, Any], *remedies: str, **how: Any
) -> None:
    """Each remedy that the error names lets the sync of the second type and value go on."""
    kinds, values = zip(first, second, strict=True)
    for number, remedy in enumerate(remedies):
        own = Lake(lake.provider, lake.folder / str(number), lake.history, is_plain=True)
        own.sync(configure(kinds[0]), {"id": 1, "value": values[0]}, value=1, **how)
        refuse(own, configure(kinds[1]), *remedies, **how)
        configured = configure(kinds[1])
        how_after = {**how, **follow(own, remedy, configured)}
        own.sync(configured, {"id": 1, "value": values[1]}, value=2, **how_after)
        again = configure(kinds[1], generation=own.table.metadata.generation)
        own.sync(again, {"id": 2, "value": values[1]}, value=3, **how_after)
        if remedy == FREEZE:  # a value that does not fit is in the dead letter with its record
            assert own.table.records + own.dead_letter.records >= 2
            continue
        assert own.table.records == 2 and not own.dead_letter.exists
        if lake.history:
            assert own.tables().companions["history"].records == 2


@pytest.mark.parametrize(("was", "after", "value", "later"), CONFLICTS)
def test_a_type_that_the_table_cannot_take(
    plain: Lake, was: Any, after: Any, value: Any, later: Any
) -> None:
    check(plain, (was, value), (after, later), FREEZE, REFRESH, REPLACE)


@pytest.mark.parametrize(("was", "after", "value", "later"), CONFLICTS[:2])
def test_a_type_that_the_history_cannot_take(
    plain: Lake, was: Any, after: Any, value: Any, later: Any
) -> None:
    """A refresh keeps the history, so no message offers it."""
    plain.history = True
    check(plain, (was, value), (after, later), FREEZE, RESET, MOVE)
    again = configure(after, generation=2)
    again.minimum_generation_id = 2
    refuse(
        Lake(plain.provider, plain.folder / "0", True, is_plain=True), again, FREEZE, RESET, MOVE
    )


def test_a_type_that_a_partition_cannot_take(plain: Lake) -> None:
    """A refresh of one partition leaves the rows of the others."""
    (was, after, value, later), *_ = CONFLICTS
    check(plain, (was, value), (after, later), FREEZE, MOVE, partition="mon")


def test_a_type_that_is_refused_with_any_other_difference(plain: Lake) -> None:
    """With `fail`, `evolve` alone would be refused next, if the types cannot be compared."""
    plain.sync(configure(STRING), {"id": 1, "value": "a"}, value=1)
    conflict = configure(struct(x=INTEGER))
    refuse(plain, conflict, FREEZE, EVOLVE, REFRESH, REPLACE, on_schema_change="fail")
    follow(plain, REFRESH, conflict)
    plain.sync(conflict, {"id": 1, "value": {"x": 1}}, value=2)
    wider = configure(struct(x=NUMBER), generation=2)
    with pytest.raises(ConfigError, match="or set `on_schema_change: evolve` or `freeze`"):
        plain.writer(wider, on_schema_change="fail")
    plain.sync(wider, {"id": 2, "value": {"x": 1}}, value=3, on_schema_change="freeze")
    plain.writer(wider)


@pytest.mark.parametrize("history", [False, True])
def test_a_key_of_another_type(plain: Lake, history: bool) -> None:
    plain.history = history
    remedies = (FREEZE, RESET, MOVE) if history else (FREEZE, REFRESH, REPLACE)
    changed = configure(STRING, key=STRING)
    for number, remedy in enumerate(remedies):
        own = Lake(plain.provider, plain.folder / str(number), history, is_plain=True)
        own.sync(configure(STRING, key=NUMBER), {"id": 5, "value": "a"}, value=1)
        refuse(own, configure(STRING, key=STRING), *remedies)
        changed = configure(STRING, key=STRING)
        how = follow(own, remedy, changed)
        own.sync(changed, {"id": "5.0" if remedy != FREEZE else 5, "value": "b"}, value=2, **how)
        assert own.table.records == 1


def test_a_key_of_a_partition_of_another_type(plain: Lake) -> None:
    plain.sync(configure(STRING, key=NUMBER), {"id": 5, "value": "a"}, value=1, partition="mon")
    refuse(plain, configure(STRING, key=STRING), FREEZE, MOVE, partition="mon")
    again = configure(STRING, key=STRING, generation=2)
    again.minimum_generation_id = 2
    refuse(plain, again, FREEZE, MOVE, partition="mon")
    follow(plain, MOVE, again)
    plain.sync(configure(STRING, key=STRING), {"id": "5.0"}, value=1, partition="mon")
    assert plain.table.records == 1


def test_a_table_without_rows_takes_any_type(plain: Lake) -> None:
    """Also one that has a state alone, and one whose rows a reset has removed twice."""
    plain.history = True
    first = configure(STRING)
    schema = plain.writer(first)._plan.schema
    set_state(plain.tables(), None, "by hand", schema, "users")
    plain.sync(configure(struct(x=INTEGER)), {"id": 1, "value": {"x": 1}}, value=1)
    for kind, value in ((array(STRING), ["a"]), (BOOLEAN, True)):
        assert remove_rows(plain.tables(), "reset") == 1
        generation = plain.table.metadata.generation
        plain.sync(configure(kind, generation=generation), {"id": 1, "value": value}, value=1)
    assert plain.table.records == plain.tables().companions["history"].records == 1


@pytest.mark.parametrize(
    ("salts", "remedy"), [(("one", "other"), "restore the former salt"), (("one", "other"), MOVE)]
)
def test_another_salt(plain: Lake, salts: tuple[str, str], remedy: str) -> None:
    before, after = salts
    plain.sync(configure(STRING), {"id": 1, "value": "a"}, value=1, salt=before)
    with pytest.raises(ConfigError) as caught:
        plain.writer(configure(STRING), salt=after)
    assert remedy in str(caught.value.guidance)
    follow(plain, remedy, configure(STRING))
    salt = after if remedy == MOVE else before
    plain.sync(configure(STRING), {"id": 2, "value": "a"}, value=2, salt=salt)
    assert plain.table.records == (1 if remedy == MOVE else 2)


@pytest.mark.parametrize("remedy", ["restore the former `partition_by`", MOVE])
def test_other_partition_columns(plain: Lake, remedy: str) -> None:
    plain.partition_by = ["value"]
    plain.sync(configure(STRING), {"id": 1, "value": "a"}, value=1)
    plain.partition_by = ["id"]
    with pytest.raises(ConfigError) as caught:
        plain.writer(configure(STRING))
    assert remedy in str(caught.value.guidance)
    if remedy == MOVE:
        follow(plain, MOVE, configure(STRING))
    else:
        plain.partition_by = ["value"]
    plain.sync(configure(STRING), {"id": 2, "value": "a"}, value=2)
    assert plain.table.records == (1 if remedy == MOVE else 2)


def test_a_kill_between_the_empty_tables_is_continued(plain: Lake) -> None:
    """The history has its new columns, the table still its former ones."""
    plain.history = True
    plain.sync(configure(STRING), {"id": 1, "value": "a"}, value=1)
    remove_rows(plain.tables(), "reset")

    def kill(point: Failpoint) -> None:
        if point is Failpoint.TABLE_WIDENED:
            raise InterruptedError

    changed = configure(struct(x=INTEGER), generation=plain.table.metadata.generation)
    with armed(kill), pytest.raises(InterruptedError):
        plain.sync(changed, {"id": 1, "value": {"x": 1}}, value=2)
    assert plain.table.metadata.state is None
    plain.sync(changed, {"id": 1, "value": {"x": 1}}, value=2)
    assert plain.table.records == plain.tables().companions["history"].records == 1
