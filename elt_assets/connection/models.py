"""The attributes of a connection, as people write them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping, Sequence
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
from elt_assets.connection.config_model import ConfigModel, DottedPaths, FieldPath, known_keys
from elt_assets.connection.partitions import Partitions, Window
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.protocol.airbyte.sync_modes import APPEND, MODES
from elt_assets.runner.kinds.registry import KINDS
from elt_assets.runner.kinds.source_kind import Installed, SourceKind
from elt_assets.runner.packages import Installation
from elt_assets.runner.process.container import ContainerOptions
from elt_assets.sync.selection.schema_changes import OnSchemaChange

FOLDER = "folder"
"""In the context of validation: where the YAML lies."""
_NAME = re.compile(r"[A-Za-z0-9_]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEMPLATE = re.compile(r"\{\{-?\s*env\b")
"""Dagster's `{{ env.NAME }}`, or `{{ env('NAME') }}`."""


def plain_name(written: str) -> str:
    """Return a name as it is, if it can name a folder, a table's namespace and a group alike.

    Raises:
        ValueError: says what to write instead.
    """
    if _NAME.fullmatch(written):
        return written
    better = re.sub(r"[^A-Za-z0-9_]+", "_", written).strip("_")
    hint = f"; write {better!r}" if better else ""
    raise ValueError(
        f"{written!r} may hold only letters (A to Z, a to z), digits and underscores{hint}"
    )


PlainName = Annotated[
    str,
    AfterValidator(plain_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"}),
]


def _variables(written: Any) -> Any:
    """An environment: values by name, or a list of names."""
    if not isinstance(written, (Mapping, list)):
        raise ValueError(  # noqa: TRY004 - what pydantic reports
            "write `NAME: value` for each variable, or a list of those to pass on"
        )
    for name in written:
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} cannot name an environment variable")
    for name, value in written.items() if isinstance(written, Mapping) else ():
        reference = isinstance(value, Mapping) and set(value) == {"env"}
        plain = not isinstance(value, bool) and isinstance(value, (str, int, float))
        if not (isinstance(value["env"], str) if reference else plain):
            raise ValueError(
                f"{name}: write a text (true in quotes), a number, or `{{env: OTHER}}`"
            )
    return written


def _no_templates(written: Any) -> Any:
    """A config without Dagster's templates of environment variables, which nothing would fill in."""
    if (place := _template(written)) is not None:
        raise ValueError(
            f"{place[1:] or 'it'}: templates as `{{{{ env.NAME }}}}` are not filled in here; write "
            "`{env: NAME}`, or `{literal: …}` around a text that is meant as it stands"
        )
    return written


def _template(value: Any) -> str | None:
    """The place of the first text that holds a template of an environment variable."""
    if isinstance(value, str):
        return "" if _TEMPLATE.search(value) else None
    inner: Any = ()
    if isinstance(value, Mapping) and set(value) != {"literal"}:
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    found = ((name, _template(each)) for name, each in inner)
    return next((f".{name}{place}" for name, place in found if place is not None), None)


Variables = Annotated[
    dict[str, Any] | list[str], BeforeValidator(_variables), BeforeValidator(_no_templates)
]


def _sync_mode(written: str) -> str:
    if written not in MODES:
        raise ValueError(f"write one of {', '.join(MODES)}")
    return written


SyncModeName = Annotated[
    str, AfterValidator(_sync_mode), WithJsonSchema({"enum": list(MODES), "type": "string"})
]


class _Connector(ConfigModel):
    """Exactly one kind of connector, and its config."""

    kinds: ClassVar[Sequence[SourceKind]]

    config: Annotated[dict[str, Any], BeforeValidator(_no_templates)] = Field(default_factory=dict)
    environment: Variables | None = None
    install: Annotated[Installation, BeforeValidator(known_keys(Installation))] | None = None
    container: Annotated[ContainerOptions, BeforeValidator(known_keys(ContainerOptions))] | None = (
        None
    )
    user: str | None = None

    @field_validator("install")
    @classmethod
    def _beside_the_yaml(
        cls, written: Installation | None, info: ValidationInfo
    ) -> Installation | None:
        """A relative path of a lock file starts at the folder of the YAML."""
        folder = (info.context or {}).get(FOLDER)
        if written is None or written.lock_file is None or folder is None:
            return written
        path = Path(folder) / written.lock_file
        if not path.is_file():
            raise ValueError(f"lock_file: there is no file {path}")
        return dataclasses.replace(written, lock_file=path)

    @model_validator(mode="after")
    def _one_kind(self) -> _Connector:
        keys = [kind.key for kind in self.kinds]
        given = [key for key in keys if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                f"{self.label()}: exactly one of {', '.join(keys)} is wanted, "
                f"{' and '.join(given) or 'none'} is given"
            )
        _no_templates({self.kind: self.value})
        return self

    @model_validator(mode="after")
    def _can_be_run(self) -> _Connector:
        kind = KINDS[self.kind]
        try:
            kind.command(self.value, Installed(Path()))
        except ConfigError as error:
            raise ValueError(f"{kind.key}: {error.message}; {error.guidance}") from None
        beside = ("install", "container", "user")
        given = {option for option in beside if getattr(self, option) is not None}
        if misplaced := kind.misplaced(self.value, given):
            raise ValueError(misplaced)
        return self

    @property
    def kind(self) -> str:
        """The key of its kind."""
        return next(kind.key for kind in self.kinds if getattr(self, kind.key) is not None)

    @property
    def value(self) -> Any:
        """What is written under that key."""
        return getattr(self, self.kind)


def _with_keys(model: type[_Connector]) -> type[_Connector]:
    """The model with a field for each of its kinds, by the kind's key."""
    fields: dict[str, Any] = {kind.key: (kind.value_type | None, None) for kind in model.kinds}
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


@_with_keys
class Source(_Connector):
    """Where records come from: exactly one kind of connector, and its config."""

    kinds = tuple(KINDS.values())


@_with_keys
class Destination(_Connector):
    """Where records go instead of the lake: exactly one kind of connector, and its config."""

    kinds = tuple(kind for kind in KINDS.values() if kind.is_destination)


class Fields(ConfigModel):
    """Which fields of a stream are stored, and which of them as a hash alone."""

    include: DottedPaths | None = None
    exclude: DottedPaths | None = None
    hash: DottedPaths | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Fields:
        if self.include and self.exclude:
            raise ValueError("`include` leaves out all else; keep it, or `exclude`, not both")
        if not (self.include or self.exclude or self.hash):
            raise ValueError(
                "it says nothing; write `include`, `exclude` or `hash`, or leave it out"
            )
        return self


class Stream(ConfigModel):
    """One stream that is wanted, and how."""

    name: str
    namespace: str | None = None
    sync_mode: Literal["full_refresh", "incremental"] = "full_refresh"
    destination_sync_mode: SyncModeName = APPEND
    cursor_field: FieldPath | None = None
    replication_method: Literal["LOG_BASED"] | None = None
    primary_key: Annotated[list[FieldPath], Field(min_length=1)] | None = None
    history: bool = False
    on_schema_change: OnSchemaChange = "evolve"
    on_undeclared: Literal["ignore", "keep"] = "ignore"
    fields: Fields | None = None
    partitions: Partitions | None = None
    window: Window | None = None
    checks: Checks = Checks()
    automation: Automation = None
    schedule: str | None = None
    freshness: Freshness | None = None
    description: str | None = None
    owners: list[str] | None = None
    tags: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _goes_together(self) -> Stream:
        if self.partitions is not None and self.window is not None:
            raise ValueError("`window` is for a stream without `partitions`; leave out one of them")
        if self.partitions is not None and self.history:
            raise ValueError("a stream with `partitions` keeps no `history`; leave out one of them")
        if self.replication_method is not None and self.sync_mode != "incremental":
            raise ValueError("`replication_method` is for `sync_mode: incremental`; write it too")
        return self

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)

    @property
    def deduplicates(self) -> bool:
        return MODES[self.destination_sync_mode].deduplicates


class Deadlines(ConfigModel):
    """How long each of a connector's short commands may take before it is ended."""

    spec: Duration = dt.timedelta(minutes=15)
    check: Duration = dt.timedelta(minutes=15)
    discover: Duration = dt.timedelta(hours=1)

    def seconds(self) -> dict[str, float]:
        """By the name of the command."""
        return {name: value.total_seconds() for name, value in self}


class Checkpoint(ConfigModel):
    """When a commit is due: at the first state after any of these is reached."""

    rows: int = Field(default=1_000_000, gt=0)
    megabytes: int = Field(default=256, gt=0)
    seconds: float = Field(default=300, gt=0)


class Connection(ConfigModel):
    """The attributes of a `ConnectionComponent`."""

    name: PlainName
    namespace: PlainName | None = None
    source: Source
    destination: Destination | None = None
    streams: list[Stream] = Field(min_length=1)
    schedule: str | None = None
    automation: Automation = None
    checks: Checks = Checks()
    freshness: Freshness | None = None
    drift: Drift | None = None
    new_data: NewData | None = None
    group: PlainName | None = None
    owners: list[str] = Field(default_factory=list)
    tags: dict[str, str] = Field(default_factory=dict)
    translation: dict[str, Any] | str | None = None
    retry: Retry = Retry()
    heartbeat: Duration = dt.timedelta(hours=1)
    deadlines: Deadlines = Deadlines()
    read_together: bool = False
    checkpoint: Checkpoint = Checkpoint()

    @model_validator(mode="after")
    def _can_be_asked(self) -> Connection:
        if self.new_data is not None and not KINDS[self.source.kind].tells_news:
            raise ValueError(
                "new_data: only a built-in connector (`source.connector`) can be asked for news; "
                f"`source.{self.source.kind}` cannot; write a `schedule`"
            )
        return self

    def wanted(self, stream: StreamId) -> Stream:
        """What it says of one of its streams."""
        return next(one for one in self.streams if one.id == stream)

    @property
    def lake_namespace(self) -> str:
        """The first level under the lake's root."""
        return self.namespace or self.name
