"""The source, and the check of its connection."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import field

from connectors.declarative.manifest.components.base import Component, Json, Usual
from connectors.declarative.manifest.components.dynamic import DynamicDeclarativeStream
from connectors.declarative.manifest.components.requests import HTTPAPIBudget
from connectors.declarative.manifest.components.specification import Spec
from connectors.declarative.manifest.components.streams import AnyStream
from connectors.declarative.manifest.template import Template


class DynamicStreamCheckConfig(Component):
    """The number of streams of a template that are checked; all without a number."""

    dynamic_stream_name: str
    stream_count: int | None = None


class CheckStream(Component):
    """A check that reads a record of each of some streams."""

    stream_names: tuple[str, ...] | None = None
    dynamic_streams_check_configs: tuple[DynamicStreamCheckConfig, ...] | None = None
    config_overrides: Json | None = None


class CheckDynamicStream(Component):
    """A check that lists dynamic streams and reads some of them."""

    stream_count: int
    use_check_availability: bool = True
    config_overrides: Json | None = None


class ConcurrencyLevel(Component):
    """The number of slices that are read at the same time."""

    default_concurrency: int | Template
    max_concurrency: int | None = None


class DeclarativeSource(Component):
    """A manifest.

    Attributes:
        schemas: JSON schemas by stream name.
        definitions: what references point to; not checked.
    """

    check: Usual[CheckStream] | CheckDynamicStream
    version: str = ""
    streams: tuple[Annotated[AnyStream, "ConditionalStreams"], ...] = ()
    dynamic_streams: tuple[DynamicDeclarativeStream, ...] = ()
    schemas: Json = field(default_factory=dict)
    definitions: Any = None
    spec: Spec | None = None
    concurrency_level: ConcurrencyLevel | None = None
    api_budget: HTTPAPIBudget | None = None
    stream_groups: Json | None = None  # without effect
    max_concurrent_async_job_count: int | Template | None = None
    metadata: Json | None = None
    description: str | None = None
