"""Cursors, by which streams are read incrementally."""

from __future__ import annotations

from connectors.declarative.manifest.components.base import Component, Json
from connectors.declarative.manifest.components.requests import RequestOption
from connectors.declarative.manifest.template import Template


class MinMaxDatetime(Component):
    """A date-time, and bounds for it."""

    datetime: Template
    datetime_format: str = ""
    max_datetime: Template | None = None
    min_datetime: Template | None = None


class Clamping(Component, tag=False):
    """The period, such as WEEK. The slices begin and end where a period does."""

    target: Template
    target_details: Json | None = None


class DatetimeBasedCursor(Component):
    """A cursor that is a date-time."""

    cursor_field: Template
    datetime_format: str
    start_datetime: MinMaxDatetime | Template
    clamping: Clamping | None = None
    allow_catalog_defined_cursor_field: bool | None = None
    cursor_datetime_formats: tuple[str, ...] | None = None
    start_time_option: RequestOption | None = None
    end_datetime: MinMaxDatetime | Template | None = None
    end_time_option: RequestOption | None = None
    cursor_granularity: str | None = None
    is_data_feed: bool | None = None
    is_client_side_incremental: bool | None = None
    is_compare_strictly: bool = False
    global_substream_cursor: bool = False
    lookback_window: Template | None = None
    partition_field_end: Template | None = None
    partition_field_start: Template | None = None
    step: Template | None = None


class IncrementingCountCursor(Component):
    """A cursor that is a number."""

    cursor_field: Template
    allow_catalog_defined_cursor_field: bool | None = None
    start_value: int | Template | None = None
    start_value_option: RequestOption | None = None


class LegacyToPerPartitionStateMigration(Component):
    """Changes a state whose keys are partitions into one with a list of partitions."""
