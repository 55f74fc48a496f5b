"""Catalogs that are down, refuse, lose an answer or are changed by others: named errors, and no harm."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from pyiceberg.types import StringType
from pyiceberg.utils.config import Config

from elt_assets.errors import ConfigError, EltError, TransientError
from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.publish.connecting import explain, open_catalog, store_properties
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.publish.iceberg import Publisher
from elt_assets.pipeline.following import PUBLISHER, open_follower
from elt_assets.settings import IcebergSettings
from elt_assets.storage.location import Location
from tests.lake.publishing import oracle

pytestmark = pytest.mark.unit


@pytest.fixture
def table(tmp_path: Path) -> LakeTable:
    made = oracle.lake_table(tmp_path / "lake" / "shop" / "users")
    append(made, 1)
    return made


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(oracle.sqlite_settings(tmp_path / "catalog"))


def settings_of(catalog: Mapping[str, Any]) -> IcebergSettings:
    return IcebergSettings.model_validate({"catalog": dict(catalog)})


def append(table: LakeTable, *ids: int) -> None:
    write_deltalake(table.location.uri, pa.table({"id": list(ids)}), mode="append")


def append_there(iceberg: Table) -> None:
    iceberg.append(iceberg.scan().to_arrow())


def change_columns(iceberg: Table) -> None:
    with iceberg.update_schema() as update:
        update.add_column("theirs", StringType())


def go_back(iceberg: Table) -> None:
    first = iceberg.snapshots()[0].snapshot_id
    iceberg.manage_snapshots().set_current_snapshot(first).commit()


@pytest.mark.parametrize("harm", [append_there, change_columns, go_back])
def test_a_table_that_another_program_changed_is_refused_until_it_is_replaced(
    table: LakeTable, publisher: Publisher, harm: Callable[[Table], None]
) -> None:
    publisher.publish(table)
    append(table, 2)
    publisher.publish(table)
    iceberg = oracle.load(publisher, table)
    assert iceberg is not None
    harm(iceberg)
    append(table, 3)
    with pytest.raises(ConfigError, match="changed by another program") as caught:
        publisher.publish(table)
    assert "elt publish shop --replace" in (caught.value.guidance or "")
    with pytest.raises(ConfigError, match="changed by another program"):
        publisher.drop(table)
    publisher.publish(table, replace=True)
    oracle.check_current(publisher, table)


@pytest.mark.parametrize(
    ("name", "value"),
    [("schema.name-mapping.default", "[]"), ("gc.enabled", "true")],
    ids=["names", "files"],
)
@pytest.mark.parametrize("grows", [True, False], ids=["after a commit", "without a commit"])
def test_properties_that_another_program_changed_are_set_again(
    table: LakeTable,
    publisher: Publisher,
    name: str,
    value: str,
    grows: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without the names readers see nulls in all columns; without the other, engines remove files.

    apache/beam, pull request 39836.
    """
    publisher.publish(table)
    iceberg = oracle.load(publisher, table)
    assert iceberg is not None
    before = iceberg.properties[name]
    with iceberg.transaction() as transaction:
        transaction.set_properties({name: value, "theirs": "1"})
    if grows:
        append(table, 2)
    publisher.publish(table)
    iceberg = oracle.load(publisher, table)
    assert iceberg is not None
    assert (iceberg.properties[name], iceberg.properties["theirs"]) == (before, "1")
    assert [name in record.getMessage() for record in caplog.records] == [True]
    oracle.check_current(publisher, table)


def test_a_table_that_another_program_made_is_refused_until_it_is_replaced(
    table: LakeTable, publisher: Publisher, tmp_path: Path
) -> None:
    catalog = publisher._open(table).catalog
    catalog.create_namespace("shop")
    schema = pa.schema({"id": pa.int64()})
    theirs = catalog.create_table("shop.users", schema, location=f"file://{tmp_path}/theirs")
    theirs.append(pa.table({"id": [7]}))
    with pytest.raises(ConfigError, match="made by another program"):
        publisher.publish(table)
    publisher.publish(table, replace=True)
    oracle.check_current(publisher, table)
    assert list((tmp_path / "theirs").rglob("*.parquet")), "no data file is removed"


def test_a_name_that_is_another_table_of_the_lake_is_refused(
    table: LakeTable, publisher: Publisher, tmp_path: Path
) -> None:
    publisher.publish(table)
    other = oracle.lake_table(tmp_path / "elsewhere" / "shop" / "users")
    append(other, 9)
    with pytest.raises(ConfigError, match="is that of the files at"):
        publisher.publish(other)
    oracle.check_current(publisher, table)


def test_of_two_publishers_one_wins_and_the_other_looks_again(
    table: LakeTable, publisher: Publisher
) -> None:
    publisher.publish(table)
    append(table, 2)
    rival = Publisher(publisher._settings)
    others: list[int] = []

    def publish_first(point: Failpoint) -> None:
        if point is Failpoint.SNAPSHOT_WRITTEN and not others:
            others.append(1)
            append(table, 3)
            rival.publish(table)

    with armed(publish_first):
        published = publisher.publish(table)
    assert others and published is not None and published.version == 2
    oracle.check_current(publisher, table)
    iceberg = oracle.load(publisher, table)
    assert iceberg is not None and len(iceberg.snapshots()) == 2


def test_tables_of_a_new_namespace_are_published_at_the_same_time(tmp_path: Path) -> None:
    """airbytehq/airbyte, issue 59749."""
    tables = []
    for number in range(4):
        folder = tmp_path / "lake" / "shop" / f"t{number}"
        write_deltalake(folder, pa.table({"id": [number]}))
        tables.append(oracle.lake_table(folder))
    for attempt in range(8):
        settings = oracle.sqlite_settings(tmp_path / f"catalog-{attempt}")
        Publisher(settings)._open(tables[0])
        begin = Barrier(len(tables))

        def publish(
            table: LakeTable, settings: IcebergSettings = settings, begin: Barrier = begin
        ) -> None:
            publisher = Publisher(settings)
            begin.wait()
            publisher.publish(table)
            oracle.check_current(publisher, table)

        with ThreadPoolExecutor(len(tables)) as pool:
            list(pool.map(publish, tables))


@pytest.mark.parametrize("error", [CommitStateUnknownException, CommitFailedException, OSError])
@pytest.mark.parametrize("takes_effect", [True, False])
def test_an_answer_that_is_lost_is_looked_up(
    table: LakeTable,
    publisher: Publisher,
    error: type[Exception],
    takes_effect: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher.publish(table)
    append(table, 2)
    original, lost = SqlCatalog.commit_table, list[int]()

    def commit_table(*arguments: Any) -> Any:
        answer = original(*arguments) if takes_effect or lost else None
        if not lost:
            lost.append(1)
            raise error("the answer is lost")
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    if takes_effect or error is CommitFailedException:
        assert publisher.publish(table) is not None
    else:
        with pytest.raises(EltError):
            publisher.publish(table)
        assert oracle.check(publisher, table) == 0
        assert publisher.metadata(table)["elt/iceberg_lag"] == 1
        publisher.publish(table)
    oracle.check_current(publisher, table)
    iceberg = oracle.load(publisher, table)
    assert iceberg is not None and len(iceberg.snapshots()) == 2


def test_a_catalog_that_is_down_is_named_with_what_to_do(table: LakeTable) -> None:
    catalog = {"type": "rest", "uri": "http://127.0.0.1:9", "token": "s3cret-token"}
    with pytest.raises(
        TransientError, match="did not answer while the catalog was opened"
    ) as caught:
        Publisher(settings_of(catalog)).publish(table)
    assert "`elt publish`" in (caught.value.guidance or "")
    assert DeltaTable(table.location.uri).version() == 0


def test_secrets_of_the_catalog_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATALOG_TOKEN", "s3cret-token-of-mine")
    catalog: dict[str, Any] = {"type": "sql", "uri": {"env": "CATALOG_TOKEN"}}
    with pytest.raises(EltError) as caught:
        open_catalog(settings_of(catalog), Location("/lake"))
    assert "s3cret" not in str(caught.value)
    monkeypatch.delenv("CATALOG_TOKEN")
    with pytest.raises(ConfigError, match="CATALOG_TOKEN, which is not set"):
        open_catalog(settings_of(catalog), Location("/lake"))


@pytest.mark.parametrize(
    "theirs",
    [
        {"type": "rest", "uri": "http://127.0.0.1:9", "warehouse": "theirs"},
        {"type": "glue", "uri": "thrift://127.0.0.1:9"},
        {"init_catalog_tables": "false", "py-io-impl": "nothing.Nothing"},
    ],
)
@pytest.mark.parametrize("is_file", [True, False])
def test_a_configuration_of_pyiceberg_is_that_of_other_programs(
    table: LakeTable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    theirs: dict[str, str],
    is_file: bool,
) -> None:
    if is_file:
        text = yaml.safe_dump({"catalog": {"elt": theirs}})
        (tmp_path / ".pyiceberg.yaml").write_text(text)
        monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    else:
        for name, value in theirs.items():
            key = name.upper().replace("-", "_")
            monkeypatch.setenv(f"PYICEBERG_CATALOG__ELT__{key}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it is read once in a process
    before = dict(os.environ)
    publisher = Publisher(oracle.sqlite_settings(tmp_path / "catalog"))
    publisher.publish(table)
    oracle.check_current(publisher, table)
    assert dict(os.environ) == before
    with pytest.raises(ConfigError, match="has no `uri`") as caught:
        open_catalog(settings_of({"warehouse": "ours"}), Location("/lake"))
    assert ".pyiceberg.yaml" in (caught.value.guidance or "")


def test_a_type_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="the `type` 'polaris', which") as caught:
        open_catalog(settings_of({"type": "polaris", "uri": "https://x"}), Location("/lake"))
    assert "rest, hive, glue" in (caught.value.guidance or "")


def test_a_name_that_is_a_view_in_the_catalog_is_named(
    table: LakeTable, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A REST catalog has no table of the name, and refuses one because of its view."""

    def create_table(*_: Any, **__: Any) -> Table:
        raise TableAlreadyExistsError("View with same name already exists: shop.users")

    monkeypatch.setattr(SqlCatalog, "create_table", create_table)
    with pytest.raises(ConfigError, match=r"shop\.users, which is no Iceberg table \(View"):
        publisher.publish(table)


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "rest", "uri": "https://s3tables.eu-west-1.amazonaws.com/iceberg"},
        {"type": "rest", "uri": "https://x", "rest.signing-name": "s3tables"},
        {"type": "glue", "warehouse": "arn:aws:s3tables:eu-west-1:1:bucket/b"},
    ],
)
def test_s3_tables_are_refused_by_name(catalog: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="AWS S3 Tables") as caught:
        open_catalog(settings_of(catalog), Location("/lake"))
    assert "Glue" in (caught.value.guidance or "")


def test_a_place_that_readers_would_misread_is_refused(
    publisher: Publisher, tmp_path: Path
) -> None:
    table = oracle.lake_table(tmp_path / "lake" / "a#b" / "users")
    append(table, 1)
    with pytest.raises(ConfigError, match="one of the characters"):
        publisher.publish(table)


def test_the_options_of_the_lakes_store_are_those_of_the_catalogs_files() -> None:
    options = {"access_key_id": "me", "endpoint_url": "http://x:1", "allow_http": "true"}
    lake = Location("s3://bucket/lake", options)
    answer = store_properties(lake)
    assert (answer["s3.access-key-id"], answer["s3.endpoint"]) == ("me", "http://x:1")
    assert answer["s3.region"] == "us-east-1"


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (PermissionError(13, "Permission denied"), ConfigError, "may not read or write"),
        (ValueError("location must be within the warehouse"), ConfigError, "refused the place"),
        (ConnectionError("no route"), TransientError, "did not answer"),
        (KeyError("x"), EltError, "the Iceberg catalog failed"),
    ],
)
def test_errors_of_catalogs_say_who_must_act(
    error: Exception, kind: type[EltError], text: str
) -> None:
    answer = explain(error, "the table shop.users was published", str)
    assert isinstance(answer, kind) and text in answer.message


def forget_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the library, and the modules that use it, loaded again."""
    for name in list(sys.modules):
        if name.startswith("elt_assets.lake.publish.") or name.partition(".")[0] == "pyiceberg":
            monkeypatch.delitem(sys.modules, name)


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_pyiceberg(monkeypatch)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(ConfigError, match="is not installed") as caught:
        open_follower(PUBLISHER)
    assert "elt-assets[iceberg]" in (caught.value.guidance or "")


def test_a_file_of_pyiceberg_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_pyiceberg(monkeypatch)
    (tmp_path / ".pyiceberg.yaml").write_text("catalog: [")
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="a library cannot be loaded: Flow") as caught:
        open_follower(PUBLISHER)
    assert "`.pyiceberg.yaml` in PYICEBERG_HOME" in (caught.value.guidance or "")
