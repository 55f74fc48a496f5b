"""Tables as a data source of Spark, which `pyspark_elt` hands to Spark.

Each method runs in a Python worker of Spark, which has neither the project nor its settings: the place of the
lake comes with the source (`lake_reference`). Planning opens the table in a worker of the driver, or of the
Spark Connect server; tasks then read groups of its files.

The rows are those of `snapshots.scan` at one version: the newest when Spark asked for the columns. So a
companion that is ahead of its table is not shown, nor are delete markers and unfinished refreshes.

Spark asks no data source in Python for some of the columns: the option `columns` names them. Nor does it hand
over conditions, unless its session allows that; then too, Spark applies them.

First the options of a read; then the source; then the reader of one version. `spark_stream` reads changes.

Test: `tests/lake/test_spark_source.py`
"""

from __future__ import annotations

import datetime as dt
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import types as t
from pyspark.sql.datasource import DataSourceReader, InputPartition

from elt_assets import paths
from elt_assets.errors import ConfigError
from elt_assets.lake.delta.opening import find_retyped
from elt_assets.lake.delta.table import Table
from elt_assets.lake.jobs import group_by_size
from elt_assets.lake.read.lake_reference import LakeReference
from elt_assets.lake.read.snapshots import (
    find_near_tables,
    list_files,
    open_snapshot,
    select_columns,
)
from elt_assets.lake.read.spark_files import FilePartition, TableFiles
from elt_assets.lake.read.spark_stream import CHANGE, Deletes, TableStream
from elt_assets.lake.write.companions import app_id
from elt_assets.lake.write.paths import locate_table
from elt_assets.storage.location import Location

_OPTIONS = ("path", "lake", "version", "timestamp", "columns", "partition", "deletes")


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read, as Spark's users write them."""

    key: Sequence[str]
    lake: str | None = None
    version: int | dt.datetime | None = None  # a number or a time; None for the newest
    columns: Sequence[str] | None = None
    partitions: Sequence[str] | None = None
    deletes: Deletes | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Return the options, from their texts.

        Raises:
            ConfigError: one is unknown or not valid, or the key is missing.
        """
        unknown = [name for name in options if name.lower() not in _OPTIONS]
        if unknown:
            raise ConfigError(
                f"the format elt has no option {', '.join(map(repr, unknown))}",
                guidance=f"its options are {', '.join(_OPTIONS[1:])}",
            )
        texts = {name.lower(): text for name, text in options.items()}
        if not texts.get("path", "").strip("/"):
            raise ConfigError(
                "the format elt needs the key of one asset", guidance='write load("shop/users")'
            )
        return cls(
            _parse_list("load", texts["path"], "/"),
            texts.get("lake"),
            _parse_version(texts),
            _parse_list("columns", texts["columns"], ",") if "columns" in texts else None,
            _parse_list("partition", texts["partition"], ",") if "partition" in texts else None,
            _parse_deletes(texts.get("deletes")),
        )


def _parse_list(option: str, text: str, separator: str) -> list[str]:
    """Return the parts of a text; or those of a list in JSON, for names with the separator."""
    if not text.startswith("["):
        return [part.strip() for part in text.split(separator)]
    try:
        parts = json.loads(text)
        if parts and all(isinstance(part, str) for part in parts):
            return list(parts)
    except ValueError:
        pass
    raise ConfigError(
        f"{option}: {text!r} is no list of texts",
        guidance=f'write names with {separator!r} between them, or a list in JSON: ["a", "b"]',
    )


def _parse_version(texts: Mapping[str, str]) -> int | dt.datetime | None:
    version, time = texts.get("version"), texts.get("timestamp")
    if version is not None and time is not None:
        raise ConfigError(
            "a read has the options version and timestamp", guidance="leave one of the two out"
        )
    if version is not None:
        if not (version.isascii() and version.isdecimal()):
            raise ConfigError(f"version: {version!r} is no number", guidance="write 3, for example")
        return int(version)
    if time is None:
        return None
    try:
        # Python 3.10 knows no `Z`.
        parsed = dt.datetime.fromisoformat(time.removesuffix("Z") + "+00:00" * time.endswith("Z"))
    except ValueError:
        raise ConfigError(
            f"timestamp: {time!r} is no time", guidance="write it as 2026-01-31T12:00:00Z"
        ) from None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=dt.timezone.utc)


def _parse_deletes(text: str | None) -> Deletes | None:
    if text is None:
        return None
    try:
        return Deletes(text.lower())
    except ValueError:
        raise ConfigError(
            f"deletes: {text!r} is not known",
            guidance=f"write one of {', '.join(choice.value for choice in Deletes)}",
        ) from None


@dataclass(frozen=True)
class TableSource:
    """A table as Spark reads it."""

    reference: LakeReference
    options: ReadOptions
    location: Location
    table: Table

    @classmethod
    def open(
        cls, lake: Mapping[str, Any] | None, texts: Mapping[str, str], version: int | None
    ) -> TableSource:
        """Open the table of a read.

        Args:
            lake: the document of a `LakeReference`; None for the lake of this process.
            texts: the options of the read.
            version: the version that was opened before.

        Raises:
            ConfigError: an option is not valid, or there is no such table, version or column.
        """
        options = ReadOptions.parse(texts)
        reference = _find_lake(lake, options)
        root = reference.open()
        location = locate_table(root, options.key, reference)
        try:
            number = options.version if version is None else version
            table = open_snapshot(location, app_id(options.key), version=number)
        except ConfigError as error:
            near = find_near_tables(root, location)
            if near and not Table(location, "").exists:
                error.guidance = f"near names: {', '.join(near)}"
            raise
        return cls(reference, options, location, table)

    @property
    def schema(self) -> t.StructType:
        """The columns that Spark gets."""
        columns = select_columns(self.table, self.options.columns)
        if self.options.deletes is not Deletes.ROWS:
            return columns
        if CHANGE in self.table.schema.names:
            raise ConfigError(
                f"the table {self.table.uri} has a column {CHANGE} of its own",
                guidance="leave `deletes` out, or rename the field (`rename` in defs.yaml)",
            )
        return t.StructType([*columns.fields, t.StructField(CHANGE, t.StringType())])

    def make_reader(self, schema: t.StructType) -> TableReader:
        """Return the reader of the table's rows at one version."""
        self._refuse_other_schema(schema)
        if self.options.deletes is not None:
            raise ConfigError(
                "`deletes` is an option of streams",
                guidance="leave it out, or write spark.readStream",
            )
        groups = group_by_size(
            [(file.path, file.size) for file in list_files(self.table, self.options.partitions)]
        )
        files = TableFiles(self.reference, self.location.uri, schema, self.options.partitions)
        return TableReader(files, groups)

    def make_stream_reader(self, schema: t.StructType) -> TableStream:
        """Return the reader of the table's changes."""
        self._refuse_other_schema(schema)
        refused = {
            "version or timestamp": self.options.version,
            "partition": self.options.partitions,
        }
        for name, value in refused.items():
            if value is not None:
                raise ConfigError(
                    f"{name} is no option of streams: a stream begins with all rows of the newest version",
                    guidance="leave it out; filter the rows of the stream, or read a version with spark.read",
                )
        columns = t.StructType([column for column in schema.fields if column.name != CHANGE])
        files = TableFiles(self.reference, self.location.uri, columns)
        return TableStream(files, app_id(self.options.key), self.options.deletes or Deletes.FAIL)

    def _refuse_other_schema(self, schema: t.StructType) -> None:
        own = self.schema
        if schema.names != own.names or find_retyped(own, schema):
            raise ConfigError(
                f"the table {self.table.uri} has other columns than the schema of the read",
                guidance='leave .schema(…) out, and name columns by option("columns", "id,name")',
            )


def _find_lake(lake: Mapping[str, Any] | None, options: ReadOptions) -> LakeReference:
    if options.lake is None and lake is not None:
        return LakeReference.from_document(lake)
    return LakeReference.describe(Location.parse(options.lake or paths.lake()))


@dataclass(frozen=True)
class TableReader(DataSourceReader):
    """Reads the rows of a table at one version."""

    rows: TableFiles
    groups: Sequence[Sequence[str]]

    def partitions(self) -> list[InputPartition]:
        return [FilePartition(group) for group in self.groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, FilePartition):  # a table without rows has another one
            for file in partition.files:
                yield from self.rows.read(file)


def register_source(spark: SparkSession, lake: LakeReference) -> None:
    """Make a lake the one of the format `elt` in a session."""
    module = importlib.import_module("pyspark_elt")  # workers get its code, and need not find it
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    source = type("DefaultSource", (module.DefaultSource,), {"lake": lake.to_document()})
    spark.dataSource.register(source)
