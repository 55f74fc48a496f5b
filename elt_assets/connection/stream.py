"""Model of a stream in `defs.yaml`: how it is read, what is stored of it, and its contract.

Used by `connection`, `resolution` and `stream_settings`, by `pipeline` (`stream`, `row_conditions`,
`contracts`), `orchestration.translator` and `cli.lookup`.

First `Contract`, the columns that consumers rely on; then the settings for its rows, `Condition` and renamed
fields; then `Stream`, with all settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from elt_assets.connection.automation import Automation, Freshness, RunControls
from elt_assets.connection.checks import Checks
from elt_assets.connection.config_model import (
    ConfigModel,
    DottedPath,
    DottedPaths,
    FieldName,
    FieldPath,
    OtherForm,
)
from elt_assets.connection.partitions import Partitions, Window
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, SOFT_DELETE, StreamId, find_modes
from elt_assets.sync.field_selection import OnSchemaChange

_ALIASES: Mapping[str, str] = {
    "integer": "bigint",
    "number": "double",
    "text": "string",
}
"""Names of JSON's types for types of columns."""
_NAMES = (
    "bigint",
    "binary",
    "boolean",
    "date",
    "decimal(38,0)",
    "decimal(38,9)",
    "double",
    "string",
    "timestamp",
    "timestamp_ntz",
)
_NESTED = re.compile(r"(array|struct)<.+>")


def _check_type(text: str) -> str:
    """Return the name of a type in Spark's notation.

    Raises:
        ValueError: there is no such type of columns.
    """
    name = re.sub(r"\s*([<>(),:])\s*", r"\1", text.strip())
    if _NESTED.fullmatch(name):
        return name
    name = _ALIASES.get(name.lower(), name.lower())
    if name in _NAMES:
        return name
    raise ValueError(
        f"{text!r} is not the type of a column; write one of {', '.join((*_ALIASES, *_NAMES))}, or "
        "`array<…>` and `struct<name:type>` as Dagster shows them"
    )


ColumnType = Annotated[str, AfterValidator(_check_type)]


class Contract(ConfigModel):
    """Names and types of columns that a stream must have.

    With `fail`, the connection is not loaded, and a sync stops before it writes, if a column is lost or has
    another type; with `warn`, the check `contract` of the asset fails as a warning.
    """

    columns: dict[str, ColumnType] = Field(min_length=1)
    """Type of each column by its name, as `bigint`; nested ones as `address.city`."""
    others: Literal["allow", "refuse"] = "allow"
    """Whether the stream may have further columns."""
    on_violation: Literal["fail", "warn"] = "fail"
    """`fail`: the connection is not loaded, and a sync stops before it writes; `warn`: the check
    `contract` fails as a warning."""


OF_NULL = ("is null", "is not null")
"""Operators without a value."""
OF_LIST = ("in", "not in")
"""Operators whose value is a list."""
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", *OF_LIST, *OF_NULL)


def _check_operator(operator: Any) -> Any:
    if operator not in OPERATORS:
        names = ", ".join(f'"{name}"' for name in OPERATORS)
        raise ValueError(f"write one of {names}, in quotes")
    return operator


Operator = Annotated[
    str,
    BeforeValidator(_check_operator),
    WithJsonSchema({"type": "string", "enum": list(OPERATORS)}),
]
Scalar = str | bool | int | float


class Condition(ConfigModel):
    """A condition that a record must meet to be stored."""

    field: DottedPath
    """Path of the field, by its name in the source."""
    operator: Operator
    """How the field is compared: as SQL does, so a null meets only `is null`."""
    value: Any = None
    """What it is compared with; a list for `in` and `not in`."""

    @model_validator(mode="after")
    def _check_value(self) -> Condition:
        if self.operator in OF_NULL:
            if "value" in self.model_fields_set:
                raise ValueError(f"value: `{self.operator}` has none; leave it out")
            return self
        is_list = isinstance(self.value, list)
        has_value = "value" in self.model_fields_set and bool(self.values)
        if not has_value or is_list is not (self.operator in OF_LIST):
            form = "a list of values" if self.operator in OF_LIST else "one value"
            raise ValueError(f"value: `{self.operator}` needs {form}")
        if any(not isinstance(value, get_args(Scalar)) for value in self.values):
            raise ValueError(
                "value: write a text, a number, true or false; for null write the operator `is null`"
            )
        return self

    @property
    def values(self) -> list[Any]:
        """The values that the field is compared with."""
        return self.value if isinstance(self.value, list) else [self.value]

    @classmethod
    def label(cls) -> str:
        return "filter"


Renaming = Annotated[dict[FieldName, FieldName], Field(min_length=1)]
"""The new name of each renamed field, by its name in the source."""
Conditions = Annotated[list[Condition], Field(min_length=1)]


_MODES = [name for name in find_modes() if name != SOFT_DELETE]


def _check_sync_mode(name: str) -> str:
    if name == SOFT_DELETE:
        raise ValueError(f"write `{APPEND_DEDUP}`, and `deletes: keep`")
    if name not in _MODES:
        raise ValueError(f"write one of {', '.join(_MODES)}")
    return name


SyncModeName = Annotated[
    str,
    AfterValidator(_check_sync_mode),
    WithJsonSchema({"enum": _MODES, "type": "string"}),
]


DeadLetter = Literal["table", "asset"]
Unchanged = Literal["skip", "rewrite"]
OnUndeclared = Literal["ignore", "warn", "keep", "add", "stop"]


class Fields(ConfigModel):
    """The fields of a stream that are stored, and those that are stored only as a hash."""

    include: DottedPaths | None = None
    """Paths of the fields that are stored; all others are removed."""
    exclude: DottedPaths | None = None
    """Paths of the fields that are removed before anything is written."""
    hash: DottedPaths | None = None
    """Paths of the fields of which a keyed hash is stored instead of the value."""

    @model_validator(mode="after")
    def _check_keys(self) -> Fields:
        if self.include and self.exclude:
            raise ValueError(
                "`include` excludes all other fields; write `include` or `exclude`, not both"
            )
        if not (self.include or self.exclude or self.hash):
            raise ValueError("it is empty; write `include`, `exclude` or `hash`, or leave it out")
        return self


class Deletes(ConfigModel):
    """What happens to rows that the source has deleted, and to those that it deletes without a word."""

    rows: Literal["remove", "keep"] = "remove"
    """Rows that the source has deleted are removed from the table, or stay with the time of the delete in the
    column `_deleted_at`."""
    sweep: str | None = None
    """Cron schedule on which keys that the source no longer has are looked for: their rows are deleted."""
    at_most: float = Field(default=0.1, ge=0, le=1)
    """Largest share of the table's rows that a sweep deletes; one that would delete more is refused."""


def _name_deletes(value: Any) -> Any:
    return {"rows": value} if isinstance(value, str) else value


DeleteSettings = Annotated[
    Deletes, BeforeValidator(_name_deletes), OtherForm(enum=["remove", "keep"])
]

PartitionColumns = Annotated[list[DottedPath], Field(max_length=4)]


class Stream(RunControls):
    """Settings of one stream."""

    name: str
    """Name of the stream in the catalog."""
    namespace: str | None = None
    """Namespace of the stream in the catalog."""
    table: FieldName | None = None
    """Whole name of the table, without the `prefix`; default: that of the stream after it."""
    sync_mode: Literal["full_refresh", "incremental"] = "full_refresh"
    """How the source is read: completely, or what is new since the last state."""
    destination_sync_mode: SyncModeName = APPEND
    """How the records change the table."""
    cursor_field: FieldPath | None = None
    """Path of the cursor; default: the cursor of the source."""
    replication_method: Literal["LOG_BASED"] | None = None
    """A Singer tap reads the stream from the log of its database."""
    primary_key: Annotated[list[FieldPath], Field(min_length=1)] | None = None
    """Paths of the fields of the primary key; default: the key of the source."""
    history: bool = False
    """Also keep every version of each row, in the table `<table>_history`."""
    on_schema_change: OnSchemaChange = "evolve"
    """What a changed schema does: the table follows, it keeps its columns, or the sync fails."""
    on_undeclared: OnUndeclared = "warn"
    """What happens to fields that the catalog does not declare: they are counted (`ignore`, `warn`), stored
    in the column `_extra` (`keep`), or in columns of their own (`add`); or the sync stops before the first
    record that has one (`stop`)."""
    dead_letter: DeadLetter | None = None
    """Whether the dead letter is only a table, or an asset too; default: as the connection."""
    unchanged: Unchanged | None = None
    """What a row does that comes again with the values that the table has: nothing, or it replaces the
    former one; default: as the connection."""
    include_files: bool | None = None
    """Whether the documents of a stream of files are stored, in `_files/` below the table; default: they
    are, if the catalog has the stream as one of files (`is_file_based`)."""
    fields: Fields | None = None
    """Which fields are stored, and which of them only as a hash."""
    rename: Renaming | None = None
    """New names of fields, by their names in the source; over those of the connection."""
    filter: Conditions | None = None
    """Conditions that a record must meet to be stored, besides those of the connection."""
    deletes: DeleteSettings | None = None
    """What happens to rows that the source has deleted; in place of that of the connection."""
    partitions: Partitions | None = None
    """Windows of time or keys, each of which is read by itself."""
    window: Window | None = None
    """Config fields that the `window` of a run sets."""
    checks: Checks = Field(default_factory=Checks)
    """Checks after each sync; over those of the connection."""
    cluster_by: Annotated[DottedPaths, Field(max_length=4)] | None = None
    """Fields by which maintenance sorts the rows of the table, up to 4."""
    partition_by: PartitionColumns | None = None
    """Fields that are Delta's partition columns of the table, in place of those of the connection; `[]`
    for none."""
    iceberg: bool | None = None
    """Whether the stream's tables are published in Iceberg; default: as the connection, or the project's
    settings."""
    contract: Contract | None = None
    """Names and types of columns that consumers rely on."""
    automation: Automation = None
    """Condition by which Dagster syncs the stream, `eager` or `on_cron` with a cron schedule, in place
    of that of the connection."""
    schedule: str | None = None
    """Cron schedule of the stream, in place of that of the connection."""
    freshness: Freshness | None = None
    """When the stream counts as out of date, in place of the connection's."""
    description: str | None = None
    """Description of the asset; default: that of the schema."""
    owners: list[str] | None = None
    """Owners of the asset, in place of those of the connection."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Tags of the asset, beside those of the connection."""

    @model_validator(mode="after")
    def _check_combinations(self) -> Stream:
        if self.partitions is not None and self.window is not None:
            raise ValueError("`window` is for a stream without `partitions`; leave out one of them")
        if self.partitions is not None and self.history:
            raise ValueError(
                "a stream with `partitions` cannot have `history`; leave out one of them"
            )
        if self.on_undeclared == "add" and self.on_schema_change != "evolve":
            raise ValueError(
                "`on_undeclared: add` changes the table, which `on_schema_change: "
                f"{self.on_schema_change}` does not allow; write `on_schema_change: evolve`, or "
                "`on_undeclared: keep`"
            )
        if self.on_undeclared == "add" and self.contract is not None:
            contract = self.contract
            if contract.others == "refuse" and contract.on_violation == "fail":
                raise ValueError(
                    "`on_undeclared: add` adds columns, which the `contract` refuses (`others: refuse`); "
                    "write `on_undeclared: stop`, or `others: allow`"
                )
        if self.replication_method is not None and self.sync_mode != "incremental":
            raise ValueError("`replication_method` needs `sync_mode: incremental`; write both")
        if self.unchanged is not None and not self.deduplicates:
            raise ValueError(
                f"`unchanged` is about rows with the same key, which {self.destination_sync_mode} stores "
                "all; leave it out, or write `destination_sync_mode: append_dedup`"
            )
        return self

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)

    @property
    def deduplicates(self) -> bool:
        return find_modes()[self.destination_sync_mode].deduplicates
