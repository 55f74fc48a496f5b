"""Models of a connection's attributes in `defs.yaml`."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)

from elt_assets.connection.automation import (
    Automation,
    Drift,
    Duration,
    Freshness,
    NewData,
    Retry,
)
from elt_assets.connection.checks import Checks
from elt_assets.connection.config_model import (
    ConfigModel,
    DottedPath,
    DottedPaths,
    FieldName,
    FieldPath,
    reject_unknown_keys,
)
from elt_assets.connection.contract import Contract
from elt_assets.connection.controls import RunControls
from elt_assets.connection.partitions import Partitions, SourcePartitions, Window
from elt_assets.connection.rows import Conditions, Renaming
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.protocol.airbyte.sync_modes import APPEND, MODES
from elt_assets.runner.config.references import (
    has_other_template,
    keep_file_field,
    resolve_paths,
    walk_references,
)
from elt_assets.runner.config.secrets import is_reference
from elt_assets.runner.kinds.registry import KINDS, check_references
from elt_assets.runner.kinds.source_kind import Installed, SourceKind
from elt_assets.runner.packages import Installation
from elt_assets.runner.process.container import ContainerOptions
from elt_assets.runner.python_versions import check_python
from elt_assets.sync.selection.schema_changes import OnSchemaChange

FOLDER = "folder"
"""Key of the validation context: the folder of `defs.yaml`."""
_NAME = re.compile(r"[A-Za-z0-9_]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TRUSTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*|https?://[^\s/?#@]+")
"""Pattern of what a manifest may use: the name of a Python module, or the URL of an origin."""


def check_plain_name(name: str) -> str:
    """Return a name unchanged, if it is valid for a folder, a namespace of tables and an asset group.

    Raises:
        ValueError: the name has characters other than letters, digits and underscores.
    """
    if _NAME.fullmatch(name):
        return name
    better = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
    hint = f"; write {better!r}" if better else ""
    raise ValueError(
        f"{name!r} may hold only letters (A to Z, a to z), digits and underscores{hint}"
    )


PlainName = Annotated[
    str,
    AfterValidator(check_plain_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"}),
]


def check_trusted_name(name: str) -> str:
    """Return a name of `trust` unchanged, if it is valid.

    Raises:
        ValueError: it is neither the name of a module nor the URL of an origin.
    """
    if not _TRUSTED.fullmatch(name):
        raise ValueError(
            f"{name!r} is neither the name of a Python module, as source_x.components, nor the URL of an "
            "origin, as https://files.example.com"
        )
    return name


TrustedName = Annotated[str, AfterValidator(check_trusted_name)]


def _check_variables(variables: Any) -> Any:
    """Check an environment, which is a mapping of names to values or a list of names, and return it."""
    if not isinstance(variables, (Mapping, list)):
        raise ValueError(  # noqa: TRY004 - pydantic reports ValueError
            "write `NAME: value` for each variable, or a list of the variables to pass on"
        )
    for name in variables:
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid name of an environment variable")
    for name, value in variables.items() if isinstance(variables, Mapping) else ():
        is_plain = not isinstance(value, bool) and isinstance(value, (str, int, float))
        if not (is_plain or is_reference(value)):
            raise ValueError(
                f"{name} must be a text, a number, or a reference: `{{env: OTHER}}`, `{{file: PATH}}`, "
                "`{secret: NAME}`; write true and false in quotes"
            )
    return variables


def _reject_templates(config: Any) -> Any:
    """Reject templates of environment variables that nothing replaces, because they have another form."""
    if (place := _find_template(config)) is not None:
        raise ValueError(
            f"{place[1:] or 'the value'}: write the template of a variable as `{{{{ env.NAME }}}}` or "
            "`{{ env('NAME', 'default') }}`; write `{literal: …}` for a text that is used unchanged"
        )
    return config


def _find_template(value: Any) -> str | None:
    """Return the path of the first text with such a template; None if there is none."""
    if isinstance(value, str):
        return "" if has_other_template(value) else None
    inner: Any = ()
    if isinstance(value, Mapping) and set(value) != {"literal"}:
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    paths = ((name, _find_template(content)) for name, content in inner)
    return next((f".{name}{place}" for name, place in paths if place is not None), None)


Variables = Annotated[
    dict[str, Any] | list[str],
    BeforeValidator(_check_variables),
    BeforeValidator(_reject_templates),
]


def _check_sync_mode(name: str) -> str:
    if name not in MODES:
        raise ValueError(f"write one of {', '.join(MODES)}")
    return name


SyncModeName = Annotated[
    str, AfterValidator(_check_sync_mode), WithJsonSchema({"enum": list(MODES), "type": "string"})
]


class _Connector(ConfigModel):
    """A connector of exactly one kind, with its config and the settings of its process."""

    kinds: ClassVar[Sequence[SourceKind]]

    config: Annotated[dict[str, Any], BeforeValidator(_reject_templates)] = Field(
        default_factory=dict,
        description="Config of the connector, which its own specification describes. A secret is written as "
        "`{env: NAME}`.",
    )
    environment: Variables | None = Field(
        default=None,
        description="Environment variables of the connector's process: values by their names, or a list of "
        "names to pass on.",
    )
    install: (
        Annotated[
            Installation,
            BeforeValidator(
                reject_unknown_keys(
                    Installation, python="write it beside the package, not in `install`"
                )
            ),
        ]
        | None
    ) = Field(default=None, description="How pip installs the package of the connector.")
    python: Annotated[str, BeforeValidator(check_python)] | None = Field(
        default=None,
        description='Python of the environment of a `package` or `tap`: a version, as `"3.12"`, or the path '
        "of an interpreter; default: the Python that runs Dagster.",
    )
    container: (
        Annotated[ContainerOptions, BeforeValidator(reject_unknown_keys(ContainerOptions))] | None
    ) = Field(default=None, description="How the container of an `image` is run.")
    user: str | None = Field(
        default=None,
        description="User of this machine that runs the connector's process; Dagster must run as root.",
    )
    trust: Annotated[list[TrustedName], Field(min_length=1)] | None = Field(
        default=None, description="Python modules, and origins of URLs, that a `manifest` may use."
    )
    engine: Literal["airbyte", "ours"] | None = Field(
        default=None,
        description="What runs a `manifest`; default: `ours`, unless it needs the other.",
    )

    @field_validator("install")
    @classmethod
    def _resolve_lock_file(
        cls, installation: Installation | None, info: ValidationInfo
    ) -> Installation | None:
        """Resolve a relative path of a lock file from the folder of `defs.yaml`."""
        folder = (info.context or {}).get(FOLDER)
        if installation is None or installation.lock_file is None or folder is None:
            return installation
        path = Path(folder) / installation.lock_file
        if not path.is_file():
            raise ValueError(f"lock_file: there is no file {path}")
        return dataclasses.replace(installation, lock_file=path)

    @model_validator(mode="after")
    def _check_one_kind(self) -> _Connector:
        keys = [kind.key for kind in self.kinds]
        present = [key for key in keys if getattr(self, key) is not None]
        if len(present) != 1:
            raise ValueError(
                f"{self.label()}: write exactly one of {', '.join(keys)}; "
                f"given: {', '.join(present) or 'none'}"
            )
        for place, _ in walk_references(self.value, self.kind):
            raise ValueError(
                f"{place}: a template of a variable is replaced only in `config` and `environment`"
            )
        return self

    @model_validator(mode="after")
    def _check_kind(self, info: ValidationInfo) -> _Connector:
        """Resolve a relative path of the kind from the folder of `defs.yaml`, and refuse now what would be
        refused when the connector starts."""
        kind, folder = KINDS[self.kind], (info.context or {}).get(FOLDER)
        self.config = dict(keep_file_field(self.config))
        if folder is not None:
            setattr(self, self.kind, kind.resolve(self.value, Path(folder)))
            if self.python is not None and "/" in self.python:
                self.python = str(Path(folder) / Path(self.python).expanduser())
            self.config = resolve_paths(self.config, Path(folder))
            if isinstance(self.environment, dict):
                self.environment = {
                    name: resolve_paths(value, Path(folder))
                    for name, value in self.environment.items()
                }
        try:
            kind.command(self.value, Installed(Path(), trusted=self.trust or ()))
        except ConfigError as error:
            raise ValueError(f"{kind.key}: {error.message}; {error.guidance}") from None
        options = ("install", "python", "container", "user", "trust", "engine")
        present = {option for option in options if getattr(self, option) is not None}
        if misplaced := kind.find_misplaced(self.value, present):
            raise ValueError(misplaced)
        try:
            check_references(self.config, self.environment)
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.guidance}") from None
        return self

    @property
    def installation(self) -> Installation | None:
        """The options for installing the package of the connector, with its Python; None for the defaults."""
        if self.python is None:
            return self.install
        return dataclasses.replace(self.install or Installation(), python=self.python)

    @property
    def kind(self) -> str:
        """Key of the connector's kind."""
        return next(kind.key for kind in self.kinds if getattr(self, kind.key) is not None)

    @property
    def value(self) -> Any:
        """Value under the key of the kind."""
        return getattr(self, self.kind)


def _describe(kind: SourceKind) -> str:
    """Return what the values of a kind name, from its examples."""
    text = "; or ".join(meaning for _, meaning in kind.examples)
    return f"{text[:1].upper()}{text[1:]}."


def _add_kind_fields(model: type[_Connector]) -> type[_Connector]:
    """Return the model with an optional field for the key of each of its kinds."""
    fields: dict[str, Any] = {
        kind.key: (kind.value_type | None, Field(default=None, description=_describe(kind)))
        for kind in model.kinds
    }
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


@_add_kind_fields
class Source(_Connector):
    """The source of the records: exactly one kind of connector, and its config."""

    kinds = tuple(KINDS.values())


@_add_kind_fields
class Destination(_Connector):
    """The destination of the records instead of the lake: exactly one kind of connector, and its config."""

    kinds = tuple(kind for kind in KINDS.values() if kind.is_destination)


class Fields(ConfigModel):
    """The fields of a stream that are stored, and those that are stored only as a hash."""

    include: DottedPaths | None = Field(
        default=None, description="Paths of the fields that are stored; all others are removed."
    )
    exclude: DottedPaths | None = Field(
        default=None, description="Paths of the fields that are removed before anything is written."
    )
    hash: DottedPaths | None = Field(
        default=None,
        description="Paths of the fields of which a keyed hash is stored instead of the value.",
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Fields:
        if self.include and self.exclude:
            raise ValueError(
                "`include` excludes all other fields; write `include` or `exclude`, not both"
            )
        if not (self.include or self.exclude or self.hash):
            raise ValueError("it is empty; write `include`, `exclude` or `hash`, or leave it out")
        return self


PartitionColumns = Annotated[list[DottedPath], Field(max_length=4)]


class Stream(RunControls):
    """Settings of one stream."""

    name: str = Field(description="Name of the stream in the catalog.")
    namespace: str | None = Field(
        default=None, description="Namespace of the stream in the catalog."
    )
    table: FieldName | None = Field(
        default=None,
        description="Whole name of the table, without the `prefix`; default: that of the stream after it.",
    )
    sync_mode: Literal["full_refresh", "incremental"] = Field(
        default="full_refresh",
        description="How the source is read: completely, or what is new since the last state.",
    )
    destination_sync_mode: SyncModeName = Field(
        default=APPEND, description="How the records change the table."
    )
    cursor_field: FieldPath | None = Field(
        default=None, description="Path of the cursor; default: the cursor of the source."
    )
    replication_method: Literal["LOG_BASED"] | None = Field(
        default=None, description="A Singer tap reads the stream from the log of its database."
    )
    primary_key: Annotated[list[FieldPath], Field(min_length=1)] | None = Field(
        default=None,
        description="Paths of the fields of the primary key; default: the key of the source.",
    )
    history: bool = Field(
        default=False,
        description="Also keep every version of each row, in the table `<table>_history`.",
    )
    on_schema_change: OnSchemaChange = Field(
        default="evolve",
        description="What a changed schema does: the table follows, it keeps its columns, or the sync fails.",
    )
    on_undeclared: Literal["ignore", "keep"] = Field(
        default="ignore",
        description="What happens to fields that the catalog does not declare: they are only counted, or "
        "stored in the column `_extra`.",
    )
    fields: Fields | None = Field(
        default=None, description="Which fields are stored, and which of them only as a hash."
    )
    rename: Renaming | None = Field(
        default=None,
        description="New names of fields, by their names in the source; over those of the connection.",
    )
    filter: Conditions | None = Field(
        default=None,
        description="Conditions that a record must meet to be stored, besides those of the connection.",
    )
    partitions: Partitions | None = Field(
        default=None, description="Windows of time or keys, each of which is read by itself."
    )
    window: Window | None = Field(
        default=None, description="Config fields that the `window` of a run sets."
    )
    checks: Checks = Field(
        default=Checks(), description="Checks after each sync; over those of the connection."
    )
    cluster_by: Annotated[DottedPaths, Field(max_length=4)] | None = Field(
        default=None,
        description="Fields by which maintenance sorts the rows of the table, up to 4.",
    )
    partition_by: PartitionColumns | None = Field(
        default=None,
        description="Fields that are Delta's partition columns of the table, in place of those of the "
        "connection; `[]` for none.",
    )
    contract: Contract | None = Field(
        default=None, description="Names and types of columns that consumers rely on."
    )
    automation: Automation = Field(
        default=None,
        description="Condition by which Dagster syncs the stream, `eager` or `on_cron` with a cron schedule, "
        "in place of that of the connection.",
    )
    schedule: str | None = Field(
        default=None, description="Cron schedule of the stream, in place of that of the connection."
    )
    freshness: Freshness | None = Field(
        default=None,
        description="When the stream counts as out of date, in place of the connection's.",
    )
    description: str | None = Field(
        default=None, description="Description of the asset; default: that of the schema."
    )
    owners: list[str] | None = Field(
        default=None, description="Owners of the asset, in place of those of the connection."
    )
    tags: dict[str, str] = Field(
        default_factory=dict, description="Tags of the asset, beside those of the connection."
    )

    @model_validator(mode="after")
    def _check_combinations(self) -> Stream:
        if self.partitions is not None and self.window is not None:
            raise ValueError("`window` is for a stream without `partitions`; leave out one of them")
        if self.partitions is not None and self.history:
            raise ValueError(
                "a stream with `partitions` cannot have `history`; leave out one of them"
            )
        if self.replication_method is not None and self.sync_mode != "incremental":
            raise ValueError("`replication_method` needs `sync_mode: incremental`; write both")
        return self

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)

    @property
    def deduplicates(self) -> bool:
        return MODES[self.destination_sync_mode].deduplicates


class Deadlines(ConfigModel):
    """Time limits of a connector's short commands. A command that takes longer is ended."""

    spec: Duration = Field(
        default=dt.timedelta(minutes=15),
        description="Time in which the connector must print its specification.",
    )
    check: Duration = Field(
        default=dt.timedelta(minutes=15),
        description="Time in which the connector must have checked its config.",
    )
    discover: Duration = Field(
        default=dt.timedelta(hours=1),
        description="Time in which the connector must have listed its streams.",
    )
    partitions: Duration = Field(
        default=dt.timedelta(hours=1),
        description="Time in which the connector must have listed the partitions of a stream.",
    )

    def seconds(self) -> dict[str, float]:
        """Return the time limits in seconds, by the name of the command."""
        return {name: value.total_seconds() for name, value in self}


class Checkpoint(ConfigModel):
    """Thresholds of a commit, which is due at the first state after any of them is reached."""

    rows: int = Field(default=1_000_000, gt=0, description="Number of records.")
    megabytes: int = Field(
        default=256, gt=0, description="Size of the staged records, in megabytes."
    )
    seconds: float = Field(default=300, gt=0, description="Time since the last commit, in seconds.")


class Connection(RunControls):
    """The attributes of a `ConnectionComponent`."""

    name: PlainName = Field(
        description="Name of the connection, the first part of the keys of its assets."
    )
    namespace: PlainName | None = Field(
        default=None, description="First level of its tables under the lake; default: the name."
    )
    prefix: FieldName | None = Field(
        default=None, description="Text before the name of each stream's table."
    )
    rename: Renaming | None = Field(
        default=None, description="New names of fields, in each stream that has the field."
    )
    filter: Conditions | None = Field(
        default=None,
        description="Conditions that the records of each stream with the field must meet to be stored.",
    )
    partition_by: PartitionColumns | None = Field(
        default=None,
        description="Fields whose values are Delta's partition columns of each table, up to 4.",
    )
    source: Source = Field(description="Connector that is read, and its config.")
    destination: Destination | None = Field(
        default=None, description="Connector that gets the records instead of the lake."
    )
    streams: list[Stream] = Field(
        min_length=1, description="Streams that are synced; each is an asset."
    )
    schedule: str | None = Field(
        default=None, description="Cron schedule of the syncs, as `0 6 * * *`."
    )
    automation: Automation = Field(
        default=None,
        description="Condition by which Dagster syncs the streams: `eager`, or `on_cron` with a cron "
        "schedule.",
    )
    checks: Checks = Field(default=Checks(), description="Checks of each stream after each sync.")
    freshness: Freshness | None = Field(
        default=None, description="When a stream counts as out of date."
    )
    drift: Drift | None = Field(
        default=None, description="Regular comparison of the source with `catalog.json`."
    )
    new_data: NewData | None = Field(
        default=None, description="Sensor that syncs the streams for which the source has new data."
    )
    group: PlainName | None = Field(
        default=None, description="Asset group; default: the name of the connection."
    )
    owners: list[str] = Field(
        default_factory=list,
        description="Owners of the assets, as `team:data` or an e-mail address.",
    )
    tags: dict[str, str] = Field(default_factory=dict, description="Tags of the assets.")
    translation: dict[str, Any] | str | None = Field(
        default=None,
        description="Changes of the assets, with the keys of Dagster's integrations: `key`, `group_name` …",
    )
    retry: Retry = Field(
        default=Retry(), description="Retries of a sync that failed with a transient error."
    )
    heartbeat: Duration = Field(
        default=dt.timedelta(hours=1),
        description="Time after which a connector that sends nothing is ended.",
    )
    deadlines: Deadlines = Field(
        default=Deadlines(), description="Time limits of the connector's short commands."
    )
    read_together: bool = Field(
        default=False,
        description="One process reads all streams, because the source keeps one state for them.",
    )
    checkpoint: Checkpoint = Field(
        default=Checkpoint(),
        description="When a commit is due: at the first state after one of the limits.",
    )

    @model_validator(mode="after")
    def _check_new_data(self) -> Connection:
        if self.new_data is None:
            return self
        if not (KINDS[self.source.kind].reports_new_data or self.new_data.read):
            raise ValueError(
                "new_data: only a built-in connector (`source.connector`) can be asked for new data; "
                f"`source.{self.source.kind}` cannot; write `read: true`, or a `schedule` instead"
            )
        if self.new_data.read and self.read_together:
            raise ValueError(
                "new_data: `read` starts a separate read of each stream, and the streams of this connection "
                "are read together; leave out `read`, or write a `schedule` instead"
            )
        return self

    @model_validator(mode="after")
    def _check_source_partitions(self) -> Connection:
        listed = [
            stream for stream in self.streams if isinstance(stream.partitions, SourcePartitions)
        ]
        if listed and not KINDS[self.source.kind].lists_partitions:
            raise ValueError(
                f"stream {str(listed[0].id)!r}: partitions: `source.{self.source.kind}` cannot list its "
                "partitions; write `type: static` or `type: dynamic`, or use an Airbyte connector that "
                "has the command `partitions`"
            )
        return self

    @cached_property
    def settings_by_stream(self) -> Mapping[StreamId, Stream]:
        """The settings of the connection's streams, of which there may be thousands."""
        return {settings.id: settings for settings in reversed(self.streams)}

    @cached_property
    def table_settings(self) -> tuple[tuple[str, str | None, bool, str | None], ...]:
        """What decides the tables' names: of each stream its name, namespace, `history` and `table`."""
        return tuple(
            (stream.name, stream.namespace, stream.history, stream.table) for stream in self.streams
        )

    def settings_of(self, stream: StreamId) -> Stream:
        """Return the settings of one of the connection's streams."""
        return self.settings_by_stream[stream]

    def controls_of(self, stream: StreamId) -> RunControls:
        """Return the run controls of one of the connection's streams, with those of the connection."""
        return self.settings_of(stream).over(self)

    def partition_fields(self, stream: Stream) -> Sequence[Sequence[str]]:
        """Return the fields that the table of a stream is partitioned by."""
        own = stream.partition_by
        return (self.partition_by if own is None else own) or []

    @property
    def lake_namespace(self) -> str:
        """First level of the table paths under the lake's root."""
        return self.namespace or self.name
