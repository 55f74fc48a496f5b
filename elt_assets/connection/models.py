"""The attributes of a connection, as people write them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from elt_assets.protocol.catalog import StreamId

SOURCE_KINDS = ("connector", "command", "package", "image", "manifest", "tap")
_NAME = r"^[A-Za-z0-9_]+$"

FieldName = Annotated[str, Field(min_length=1)]
FieldPath = Annotated[list[FieldName], Field(min_length=1)]


def _steps(path: Any) -> Any:
    """`address.city` as [address, city]. A name that holds a dot, or is empty, needs the list."""
    if not isinstance(path, str):
        return path
    if "" in (steps := path.split(".")):
        raise ValueError("a path is written `a.b`, or as the list of its names, `[a, b]`")
    return steps


DottedPath = Annotated[
    list[str],
    Field(min_length=1),
    BeforeValidator(_steps),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
DottedPaths = Annotated[list[DottedPath], Field(min_length=1)]


class Written(BaseModel):
    """Base of everything written by hand: an unknown key is refused, with the nearest known one."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            known = set(cls.model_fields)
            unknown = [key for key in value if key not in known]
            if unknown:
                label = f" of {value['name']!r}" if "name" in value else ""
                hints = "; ".join(_suggest(str(key), known) for key in unknown)
                raise ValueError(f"{cls.label()}{label}: {hints}")
        return value

    @classmethod
    def label(cls) -> str:
        return cls.__name__.lower()


def _suggest(key: str, known: set[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    meant = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(sorted(known))}"
    return f"unknown key {key!r}; {meant}"


class Source(Written):
    """Where records come from: exactly one kind of connector, and its config."""

    connector: str | None = None
    command: list[str] | None = Field(default=None, min_length=1)
    package: str | None = None
    image: str | None = None
    manifest: str | None = None
    tap: list[str] | None = Field(default=None, min_length=1)
    config: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one_kind(self) -> Source:
        given = [kind for kind in SOURCE_KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(
                f"source: exactly one of {', '.join(SOURCE_KINDS)} is wanted, "
                f"{' and '.join(given) or 'none'} is given"
            )
        return self

    @property
    def kind(self) -> str:
        return next(kind for kind in SOURCE_KINDS if getattr(self, kind) is not None)


class Fields(Written):
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


class Stream(Written):
    """One stream that is wanted, and how."""

    name: str
    namespace: str | None = None
    sync_mode: Literal["full_refresh", "incremental"] = "full_refresh"
    destination_sync_mode: Literal["append", "overwrite", "append_dedup", "overwrite_dedup"] = (
        "append"
    )
    cursor_field: FieldPath | None = None
    primary_key: Annotated[list[FieldPath], Field(min_length=1)] | None = None
    history: bool = False
    on_schema_change: Literal["evolve", "freeze", "fail"] = "evolve"
    fields: Fields | None = None

    @property
    def id(self) -> StreamId:
        return StreamId(self.name, self.namespace)


class Checkpoint(Written):
    """When a commit is due: at the first state after any of these is reached."""

    rows: int = Field(default=1_000_000, gt=0)
    megabytes: int = Field(default=256, gt=0)
    seconds: float = Field(default=300, gt=0)


class Connection(Written):
    """The attributes of a `ConnectionComponent`."""

    name: str = Field(pattern=_NAME)
    namespace: str | None = Field(default=None, pattern=_NAME)
    source: Source
    streams: list[Stream] = Field(min_length=1)
    schedule: str | None = None
    read_together: bool = False
    checkpoint: Checkpoint = Checkpoint()

    @property
    def lake_namespace(self) -> str:
        """The first level under the lake's root."""
        return self.namespace or self.name
