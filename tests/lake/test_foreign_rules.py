"""Rules of another engine: a table is refused while it has one that commits of this project do not keep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.rules import UnsupportedTable
from elt_assets.lake.delta.storage import TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.protocol.catalog import APPEND_DEDUP
from tests.lake.crashing import done_at
from tests.lake.harness import USERS, Lake, user
from tests.lake.staging import APP, checkpoint, stream, unnamed_files

MORE = t.StructType([t.StructField("more", t.LongType())])
PLAIN = t.StructType([t.StructField("id", t.LongType()), t.StructField("name", t.StringType())])


def alter(
    uri: str,
    *,
    schema: t.StructType | None = None,
    properties: dict[str, str] | None = None,
    protocol: tuple[int, int] | None = None,
    features: dict[str, Sequence[str]] | None = None,
    partition_by: Sequence[str] = (),
) -> None:
    """Commit new metadata, as another engine's ALTER TABLE does, without any check."""
    delta = DeltaTable(uri)
    metadata = delta.metadata()
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": 1, "operation": "CHANGE COLUMN", "operationParameters": {}}}
    ]
    if protocol is not None:
        versions = {"minReaderVersion": protocol[0], "minWriterVersion": protocol[1]}
        actions.append({"protocol": {**versions, **(features or {})}})
    body = {
        "id": str(metadata.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": delta.schema().to_json() if schema is None else schema.json(),
        "partitionColumns": list(partition_by),
        "configuration": {**metadata.configuration, **(properties or {})},
    }
    path = Path(uri, "_delta_log", f"{delta.version() + 1:020}.json")
    path.write_text("\n".join(map(json.dumps, [*actions, {"metaData": body}])) + "\n")


def table(folder: Path, schema: t.StructType = PLAIN) -> str:
    DeltaTable.create(str(folder), Schema.from_json(schema.json()))
    return str(folder)


def columns(field: t.StructField) -> t.StructType:
    return t.StructType([t.StructField("id", t.LongType()), field])


def name_with(**metadata: Any) -> t.StructType:
    return columns(t.StructField("name", t.StringType(), metadata=metadata))


MAPPED = t.StructType(
    [
        t.StructField(
            field.name,
            field.dataType,
            metadata={
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{number}",
            },
        )
        for number, field in enumerate(PLAIN.fields, 1)
    ]
)
INVARIANT = json.dumps({"expression": {"expression": "name <> 'x'"}})
ADDRESS = t.StructType([t.StructField("street", t.StringType(), nullable=False)])
WRITING: dict[str, tuple[dict[str, Any], str]] = {
    "not null": (
        {"schema": columns(t.StructField("name", t.StringType(), nullable=False))},
        "NOT NULL column name",
    ),
    "not null, nested": (
        {"schema": columns(t.StructField("list", t.ArrayType(ADDRESS)))},
        r"NOT NULL column list\[\].street",
    ),
    "not null, element": (
        {"schema": columns(t.StructField("list", t.ArrayType(t.LongType(), containsNull=False)))},
        "NOT NULL element of list",
    ),
    "not null, value of a map": (
        {"schema": columns(t.StructField("m", t.MapType(t.StringType(), t.LongType(), False)))},
        "NOT NULL value of m",
    ),
    "generated": (
        {"schema": name_with(**{"delta.generationExpression": "upper(x)"}), "protocol": (1, 4)},
        "generated column name",
    ),
    "invariant": (
        {"schema": name_with(**{"delta.invariants": INVARIANT}), "protocol": (1, 2)},
        "invariant of column name",
    ),
    "identity": (
        {"schema": name_with(**{"delta.identity.start": 1, "delta.identity.step": 1})},
        "identity column name",
    ),
    "identity, by version": ({"protocol": (1, 6)}, "writer version 6"),
    "default": ({"schema": name_with(CURRENT_DEFAULT="'x'")}, "default of column name"),
    "check": ({"properties": {"delta.constraints.positive": "id > 0"}}, "constraint positive"),
    "append only": ({"properties": {"delta.appendOnly": "True"}}, "delta.appendOnly"),
    "change data feed": (
        {"properties": {"delta.enableChangeDataFeed": "true"}, "protocol": (1, 4)},
        "delta.enableChangeDataFeed",
    ),
    **{
        name: (
            {"protocol": (1, 7), "features": {"writerFeatures": [name]}},
            name,
        )
        for name in (
            *("allowColumnDefaults", "clustering", "domainMetadata", "identityColumns"),
            *("inCommitTimestamp", "rowTracking", "icebergCompatV2", "materializePartitionColumns"),
        )
    },
}
"""Rules for writers only."""
READING: dict[str, tuple[dict[str, Any], str]] = {
    "partition columns": ({"partition_by": ["name"]}, "partitioning by name"),
    **{
        f"column mapping by {mode}": (
            {
                "properties": {"delta.columnMapping.mode": mode},
                "schema": MAPPED,
                "protocol": (2, 5),
            },
            "columnMapping",
        )
        for mode in ("name", "id")
    },
    **{
        name: (
            {
                "protocol": (3, 7),
                "features": {"readerFeatures": [name], "writerFeatures": [name]},
            },
            name,
        )
        for name in (
            *("deletionVectors", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"),
            "variantType",
        )
    },
}


@pytest.mark.parametrize("rule", WRITING)
def test_a_rule_that_commits_would_not_keep_is_refused_before_anything_is_written(
    tmp_path: Path, rule: str
) -> None:
    change, message = WRITING[rule]
    uri = table(tmp_path / "users")
    alter(uri, **change)
    opened = Table(uri, APP)
    assert opened.schema.names == ["id", *(change.get("schema") or PLAIN).names[1:]]
    for write in (opened.refuse_unwritable, lambda: opened.prepare(MORE)):
        with pytest.raises(ConfigError, match=message) as raised:
            write()
        assert "move the table away" in str(raised.value.guidance)
    assert DeltaTable(uri).version() == 1


@pytest.mark.parametrize("rule", READING)
def test_a_feature_that_changes_what_files_mean_is_refused_at_opening(
    tmp_path: Path, rule: str
) -> None:
    change, message = READING[rule]
    uri = table(tmp_path / "users")
    alter(uri, **change)
    with pytest.raises(ConfigError, match=message) as raised:
        Table(uri, APP)
    assert "move the table away" in str(raised.value.guidance)


def test_a_table_with_a_rule_for_writers_is_read_and_not_synced(lake: Lake) -> None:
    lake.sync(stream(USERS), user(1))
    alter(lake.uri, properties={"delta.constraints.positive": "id > 0"})
    assert lake.ids() == [1]
    with pytest.raises(ConfigError, match="constraint positive"):
        lake.writer(stream(USERS))
    with pytest.raises(ConfigError, match="constraint positive"):
        maintain(lake.spark, lake.tables())
    assert lake.ids() == [1]


KEPT: dict[str, dict[str, Any]] = {
    "older features that nothing uses": {
        "protocol": (3, 7),
        "features": {
            "readerFeatures": ["columnMapping", "timestampNtz"],
            "writerFeatures": [
                *("appendOnly", "invariants", "checkConstraints", "changeDataFeed"),
                *("generatedColumns", "columnMapping", "timestampNtz"),
            ],
        },
    },
    "older versions": {"protocol": (2, 5)},
    "properties that are off": {
        "properties": {"delta.appendOnly": "false", "delta.columnMapping.mode": "none"}
    },
    "comments": {"schema": name_with(comment="the name", **{"delta.userMetadata": "x"})},
}


@pytest.mark.parametrize("change", KEPT)
def test_a_table_that_permits_a_feature_and_does_not_use_it_is_written(
    lake: Lake, change: str
) -> None:
    lake.sync(stream(USERS), user(1))
    schema = KEPT[change].get("schema")
    full = None if schema is None else t.StructType([*schema.fields, *lake.table.schema.fields[2:]])
    alter(lake.uri, **{**KEPT[change], "schema": full})
    lake.sync(stream(USERS), user(2))
    assert lake.ids() == [1, 2]


@pytest.mark.parametrize("rule", ["not null", "check", "identity, by version", "deletionVectors"])
def test_a_rule_that_appears_during_a_sync_is_not_violated(lake: Lake, rule: str) -> None:
    lake.sync(stream(USERS), user(1))
    writer = lake.writer(stream(USERS))
    writer.write(lake.stage(user(2)))
    change, message = {**WRITING, **READING}[rule]
    schema = change.get("schema")
    full = None if schema is None else t.StructType([*schema.fields, *lake.table.schema.fields[2:]])
    alter(lake.uri, **{**change, "schema": full})
    with pytest.raises(UnsupportedTable, match=message):
        writer.commit(checkpoint(final=True))
    writer.close()
    assert pq.read_table(f"{lake.uri}/data")["id"].to_pylist() == [1]
    assert unnamed_files(lake.folder) == []


@pytest.mark.parametrize("companion", ["", "_history", "_dead_letter"])
def test_a_rule_that_appears_before_a_commit_leaves_no_files(lake: Lake, companion: str) -> None:
    """The table and its companions are committed one after the other; each may be refused."""
    lake.history = True
    users = stream(USERS, APPEND_DEDUP, key=["id"])
    lake.sync(users, user(1), user(None))
    writer = lake.writer(users)
    writer.write(lake.stage(user(1, name="new"), user(None)))

    def add_rule() -> None:
        alter(lake.uri + companion, properties={"delta.constraints.positive": "id > 0"})

    with pytest.raises(UnsupportedTable), done_at(Failpoint.COMMIT_BUILT, add_rule):
        writer.commit(checkpoint(final=True))
    writer.close()
    assert unnamed_files(lake.folder) == []


NEVER_NULL = t.StructType(
    [
        t.StructField("id", t.LongType(), nullable=False),
        t.StructField("list", t.ArrayType(ADDRESS, containsNull=False)),
        t.StructField("m", t.MapType(t.StringType(), ADDRESS, valueContainsNull=False)),
    ]
)


def test_columns_of_rows_without_nulls_may_be_null_in_the_table(tmp_path: Path) -> None:
    """Spark knows that a literal or a counter is never null; that is no rule for later rows."""
    new = Table(str(tmp_path / "users"), APP)
    new.prepare(NEVER_NULL)
    Table(new.uri, APP).refuse_unwritable()
    Table(new.uri, APP).prepare(NEVER_NULL)


def test_a_commit_that_replaces_all_columns_ends_their_rules(tmp_path: Path) -> None:
    replaced = Table(table(tmp_path / "users", NEVER_NULL), APP)
    with pytest.raises(ConfigError, match="NOT NULL column id"):
        replaced.commit(TableChange(), CommitMetadata(1, 1, None), 0)
    replaced.commit(TableChange(), CommitMetadata(1, 1, None), 0, NEVER_NULL)
    Table(replaced.uri, APP).refuse_unwritable()


# Rules at any depth

_KINDS = st.recursive(
    st.sampled_from([t.LongType(), t.StringType(), t.DateType()]),
    lambda inner: st.one_of(
        inner.map(t.ArrayType),
        inner.map(lambda kind: t.MapType(t.StringType(), kind)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: t.StructType([t.StructField(f"f{n}", k) for n, k in enumerate(kinds)])
        ),
    ),
    max_leaves=6,
)


def _places(kind: t.DataType, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the paths of the nullability of fields, elements and values in the JSON of a type."""
    if isinstance(kind, t.ArrayType):
        return [(*path, "containsNull"), *_places(kind.elementType, (*path, "elementType"))]
    if isinstance(kind, t.MapType):
        return [(*path, "valueContainsNull"), *_places(kind.valueType, (*path, "valueType"))]
    places: list[tuple[str | int, ...]] = []
    for number, field in enumerate(kind.fields if isinstance(kind, t.StructType) else ()):
        places.append((*path, "fields", number, "nullable"))
        places += _places(field.dataType, (*path, "fields", number, "type"))
    return places


@given(kind=_KINDS, data=st.data())
def test_a_not_null_at_any_depth_is_refused(
    tmp_path_factory: pytest.TempPathFactory, kind: t.DataType, data: st.DataObject
) -> None:
    schema = t.StructType([t.StructField("c", kind)])
    body = json.loads(schema.json())
    place = data.draw(st.sampled_from(_places(schema)))
    target: Any = body
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = False
    folder = tmp_path_factory.mktemp("any")
    Table(table(folder / "plain", schema), APP).refuse_unwritable()
    uri = table(folder / "ruled", schema)
    alter(uri, schema=t.StructType.fromJson(body))
    with pytest.raises(ConfigError, match="NOT NULL"):
        Table(uri, APP).refuse_unwritable()
