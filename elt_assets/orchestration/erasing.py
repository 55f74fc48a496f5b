"""The erasure of rows of a stream, with the checks before it and what it leaves in Dagster: for `elt erase`.

`lake.admin.erasure` does the work in the lake. Here a selection is made of what a user wrote, a run in
progress is refused, the staging folder and Dagster's home are cleaned (`erased_home`), the new commits are
reported as observations, and what is not reached is named (`unerased`).
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec

from elt_assets import paths
from elt_assets.connection.read_only_query import SqlCondition, check_condition
from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.lake.admin.erased_keys import read_keys
from elt_assets.lake.admin.erased_rows import Selection
from elt_assets.lake.admin.erasure import Counts, Erasure, KeyLog, erase
from elt_assets.lake.delta.storage import ALLOW_REMOVAL
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import app_id
from elt_assets.orchestration.erased_home import (
    CleanedHome,
    ErasedTexts,
    choose_texts,
    clean_home,
)
from elt_assets.orchestration.metadata import CONNECTION, ICEBERG, commit_metadata, unwrap
from elt_assets.orchestration.renaming import refuse_running
from elt_assets.orchestration.resources import (
    AnySparkResource,
    LakeResource,
    spark_provider,
)
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.unerased import ICEBERG as ICEBERG_FOLDER
from elt_assets.orchestration.unerased import (
    list_left_in_lake,
    list_left_in_stores,
    list_other_folders,
    list_unsearched,
)
from elt_assets.pipeline.following import make_lake_table
from elt_assets.pipeline.publication import open_publisher
from elt_assets.runner.vault import hash_salt
from elt_assets.sync.field_selection import FieldSelection
from elt_assets.sync.record_filter import hash_value

_HASH_DIGITS = 64


@dataclass(frozen=True)
class ErasureRequest:
    """What a user wants to erase."""

    where: str | None = None
    keys: Path | None = None
    suppress: bool = False  # records of these keys are not stored again
    everything: bool = False  # all rows of the table may be selected


@dataclass(frozen=True)
class Erased:
    """What an erasure has removed, or would remove."""

    id: str
    counts: Counts
    home: CleanedHome
    suppressed: int = 0  # keys
    staged: int = 0  # abandoned folders of the staging
    left: Sequence[str] = ()  # what was not looked at, or may be left, as sentences


class ErasurePlan:
    """An erasure of one stream that is checked, and not begun."""

    def __init__(
        self,
        asset: StreamAsset,
        lake: LakeResource,
        spark: AnySparkResource,
        request: ErasureRequest,
    ):
        """
        Raises:
            ConfigError: the request cannot be carried out as it is; nothing was changed.
        """
        _refuse_elsewhere(asset)
        tables = asset.tables(lake.location)
        asset.refuse_foreign(tables.main)
        time = dt.datetime.now(dt.timezone.utc)
        self.asset, self._lake, self._request = asset, lake, request
        self.id = f"{time:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"
        place = tables.main.storage.location
        self._erasure = Erasure(
            spark_provider(spark),
            place,
            app_id(asset.levels),
            asset.make_stored_stream(),
            self.id,
        )
        self._selection = _select(asset, self._erasure, request)

    def preview(self) -> Counts:
        """Return what would be removed; nothing is.

        Raises:
            ConfigError: every row is selected, and that was not asked for.
        """
        try:
            counts = self._erasure.build(self._selection) + self._erasure.count_rest()
            self._refuse_everything(counts)
            return counts + self._erasure.count_past()
        finally:
            self._erasure.discard()

    def carry_out(self, instance: dg.DagsterInstance) -> Erased:
        """Erase the rows, and clean up.

        Raises:
            ConfigError: a run of the connection is in progress; or every row is selected, and that was not
                asked for. Nothing was changed.
            ConcurrentSync: syncs have committed first each time.
            SystemFailure: a file could not be removed. The same command goes on.
        """
        refuse_running(instance, self.asset)
        log = KeyLog(hash_salt(), paths.fingerprint(hash_salt()), self._request.suppress)
        home = CleanedHome()

        def prepare(counts: Counts) -> None:
            nonlocal home
            self._refuse_everything(counts)
            home = self._clean_home(log, instance)

        counts = erase(self._erasure, self._selection, log, prepare, self._publish)
        abandoned = self._lake.sync_staging.remove_abandoned()
        self._report(instance)
        left = [
            *list_left_in_lake(self._erasure, self._choose_texts(log)),
            *list_left_in_stores(self._erasure, self._lake.sync_staging, abandoned),
            *list_unsearched(instance),
        ]
        return Erased(self.id, counts, home, log.suppressed, abandoned.removed, left)

    def _publish(self, table: Table, companion: str | None) -> bool:
        """Publish a table without the rows, and remove the Iceberg snapshots that have them.

        Returns:
            whether the table is published at all.

        Raises:
            EltError: it could not be done; the rows are gone from the newest version only.
        """
        publisher = open_publisher()
        if publisher is None:
            return False
        metadata = self.asset.spec.metadata
        connection, iceberg = (unwrap(metadata.get(key)) for key in (CONNECTION, ICEBERG))
        lake = self._lake.location
        lake_table = make_lake_table(table, lake, connection, companion, iceberg=iceberg)
        try:
            expiry = publisher.expire(lake_table, dt.timedelta(0))
            if expiry.left:
                raise SystemFailure(
                    f"{expiry.left} metadata files could not be removed from {table.uri}/{ICEBERG_FOLDER}",
                    guidance=ALLOW_REMOVAL,
                )
        except EltError as error:
            error.guidance = (
                f"{error.guidance or 'correct what the message says'}; the rows are gone from the newest "
                "version, and older versions and Iceberg snapshots have them: run the same command again"
            )
            raise
        return publisher.publishes(lake_table)

    def _clean_home(self, log: KeyLog, instance: dg.DagsterInstance) -> CleanedHome:
        """Replace the texts of the keys and of the condition in Dagster's home."""
        home = paths.home()
        own = (home / "packages", home / paths.SALT_FILE, self._lake.sync_staging.folder)
        lake = self._lake.location.path
        folders = (home, *list_other_folders(instance, home))
        skipped = (*own, *([] if lake is None else [lake]))
        return clean_home(folders, self._choose_texts(log), skipped)

    def _choose_texts(self, log: KeyLog) -> ErasedTexts:
        """Return the texts of the keys and of the condition."""
        condition = self._selection.condition
        literals = () if condition is None else condition.literals
        texts = {text for key in log.keys for text in key if text is not None}
        columns = [".".join(part) for part in self._erasure.key]
        return ErasedTexts(choose_texts({*texts, *literals}), log.keys, columns)

    def _refuse_everything(self, counts: Counts) -> None:
        if counts.of and counts.rows == counts.of and not self._request.everything:
            raise ConfigError(
                f"all {counts.of:,} rows of {self.asset.name} are selected",
                guidance="correct the condition; or add --all if every row is to be erased",
            )

    def _report(self, instance: dg.DagsterInstance) -> None:
        """Report the new commits, so that the next sync finds an event for each."""
        for table in self._erasure.writers:
            partition = table.app_id.removeprefix(app_id(self.asset.levels))[1:] or None
            metadata = {**commit_metadata(table), "elt/erasure": self.id}
            instance.report_runless_asset_event(
                dg.AssetObservation(self.asset.key, metadata=metadata, partition=partition)
            )


def _refuse_elsewhere(asset: StreamAsset) -> None:
    if asset.connection.destination is not None:
        raise ConfigError(
            f"the rows of {asset.name} are in another destination",
            guidance="erase them there; the lake has only the state of the stream",
        )


def _select(asset: StreamAsset, erasure: Erasure, request: ErasureRequest) -> Selection:
    if (request.where is None) == (request.keys is None):
        raise ConfigError(
            "write either --where or --keys", guidance="for example --where \"email = 'x'\""
        )
    key = erasure.key
    if request.suppress and not key:
        raise ConfigError(
            f"{asset.name} has no primary key, so records cannot be told apart to be suppressed",
            guidance="give the stream a `primary_key`, or omit --suppress and filter the records with "
            "`filter`",
        )
    if request.where is not None:
        return Selection(key, _check(asset, erasure, request.where))
    if not key:
        raise ConfigError(
            f"{asset.name} has no primary key, so --keys names no row",
            guidance="write --where with a condition on its columns",
        )
    assert request.keys is not None
    stored = asset.make_stored_stream()
    schema = erasure.main.arrow_schema()
    keys = read_keys(request.keys, key, stored.key, schema, _hasher(asset))
    return Selection(key, keys=keys)


def _hasher(asset: StreamAsset) -> Callable[[Sequence[str], Any], Any]:
    """Return the function that gives the stored value for a value of the source."""
    hashed = asset.fields.hashed if asset.fields is not None else ()
    names = asset.renames.names if asset.renames is not None else {}
    stored = {(names.get(path[0], path[0]), *path[1:]) for path in hashed}

    def change(field: Sequence[str], value: Any) -> Any:
        if tuple(field) not in stored or _is_hash(value):
            return value
        raw = msgspec.Raw(msgspec.json.encode(value))
        return json.loads(bytes(hash_value(raw, hash_salt())))

    return change


def _is_hash(value: object) -> bool:
    digits = set("0123456789abcdef")
    return isinstance(value, str) and len(value) == _HASH_DIGITS and set(value) <= digits


def _check(asset: StreamAsset, erasure: Erasure, text: str) -> SqlCondition:
    """Return the condition of `--where`.

    Raises:
        ConfigError: it is not one; or it names a field that the table does not have, or has as hashes.
    """
    try:
        condition = check_condition(text)
    except ValueError as error:
        raise ConfigError(
            f"--where: {error}",
            guidance="write a condition on the columns of the table, such as \"email = 'x'\"",
        ) from None
    present = {name.lower() for name in erasure.main.schema.names}
    renamed = asset.renames.names if asset.renames is not None else {}
    for name in sorted(condition.columns):
        if name.lower() not in present:
            raise _refuse_column(asset, name, renamed, erasure.main.schema.names)
    _refuse_hashed(asset, condition, renamed)
    return condition


def _refuse_column(
    asset: StreamAsset, name: str, renamed: Mapping[str, str], columns: Sequence[str]
) -> ConfigError:
    if name in renamed:
        return ConfigError(
            f"--where: {name!r} is stored as {renamed[name]!r}",
            guidance=f"write {renamed[name]!r} in its place",
        )
    if asset.fields is not None and not asset.fields.covers((name,)):
        return ConfigError(
            f"--where: {name!r} is not stored (`fields`), so no row can be found by it",
            guidance=f"write a condition on columns that are: {', '.join(columns)}",
        )
    return ConfigError(
        f"--where: the table has no column {name!r}",
        guidance=f"its columns: {', '.join(columns)}",
    )


def _refuse_hashed(asset: StreamAsset, condition: SqlCondition, renamed: Mapping[str, str]) -> None:
    """Refuse to compare a value with hashes: no row would be found."""
    hashed = {renamed.get(name, name) for name in _list_hashed(asset.fields)} & condition.columns
    if hashed and not any(map(_is_hash, condition.literals)):
        name = min(hashed)
        raise ConfigError(
            f"--where: the table has hashes in {name!r} (`fields`), so no value of the source is there",
            guidance="write the hash as the table has it; or, if it is the key, write the values in a file "
            "and name it with --keys: they are hashed as in the table",
        )


def _list_hashed(fields: FieldSelection | None) -> Iterator[str]:
    yield from (path[0] for path in (fields.hashed if fields is not None else ()))


def describe(counts: Counts) -> dict[str, int]:
    """Return the counts of an erasure by place, for an answer."""
    return {name: count for name, count in asdict(counts).items() if name != "of"}
