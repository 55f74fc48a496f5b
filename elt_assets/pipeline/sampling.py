"""The types that the first records of a stream show, for sources whose schema is empty or wrong.

Used by `elt discover --sample`. Records are read, and never stored or shown: what is kept of them are the
names of their fields and the types of their values.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import EltError
from elt_assets.lake.columns import from_json_schema
from elt_assets.lake.columns.logical_types import (
    JSONS,
    Scalar,
    Struct,
    core,
    is_narrower,
    to_stored,
)
from elt_assets.lake.worker import inference
from elt_assets.protocol.catalog import (
    APPEND,
    FULL_REFRESH,
    AirbyteStream,
    ConfiguredCatalog,
    ConfiguredStream,
)
from elt_assets.protocol.messages import UNDECLARED_COLUMNS, RawRecord
from elt_assets.runner.connector import Connector


@dataclass(frozen=True)
class Sample:
    """What records of a stream show."""

    records: int
    fields: Mapping[str, inference.Schema]
    """The schema of each field that had a value."""
    failure: EltError | None = None
    """Why no further records could be read."""


def read_sample(connector: Connector, stream: AirbyteStream, count: int) -> Sample:
    """Read the first records of a stream from the beginning. The connector ends after them."""
    fields: dict[str, inference.Schema] = {}
    records, failure = 0, None
    try:
        with (
            connector.stage_documents(),
            contextlib.closing(
                connector.read(ConfiguredCatalog(streams=[_request(stream)]), withhold=True)
            ) as messages,
        ):
            own = (m for m in messages if isinstance(m, RawRecord) and _is_of(m, stream))
            for record in itertools.islice(own, count):
                records += 1
                fields = inference.merge_fields(fields, _infer(record.data))
    except EltError as error:
        failure = error
    return Sample(records, inference.declare(fields), failure)


def _request(stream: AirbyteStream) -> ConfiguredStream:
    modes = stream.sync_modes
    configured = ConfiguredStream(
        stream=stream,
        sync_mode=FULL_REFRESH if FULL_REFRESH in modes else modes[0],
        destination_sync_mode=APPEND,
        cursor_field=stream.default_cursor_field,
        primary_key=stream.source_defined_primary_key,
        include_files=False if stream.is_file_based else None,
    )
    configured.generation_id, configured.minimum_generation_id, configured.sync_id = 1, 0, 1
    configured.extra = {UNDECLARED_COLUMNS: Raw(b"[]")}
    return configured


def _is_of(record: RawRecord, stream: AirbyteStream) -> bool:
    return (record.stream, record.namespace) == stream.id


def _infer(data: Raw) -> Mapping[str, inference.Schema]:
    try:
        values = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {name: inference.infer(value, by_form=True) for name, value in values.items()}


def propose(stream: AirbyteStream, sample: Sample) -> AirbyteStream:
    """Return a stream whose schema declares what records show.

    A field that no record has stays, and so does a declared type that holds the values of the records: they
    are a few of many. A type that holds any value is replaced by the one that the values have.
    """
    schema = stream.json_schema
    fields = _propose_fields(schema.get("properties") or {}, sample.fields)
    proposed = copy.copy(stream)
    proposed.json_schema = {"type": "object", **schema, "properties": fields}
    return proposed


def _propose_fields(declared: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
    names = {name.lower(): name for name in declared}
    fields = dict(declared)
    for name, schema in seen.items():
        own = name if name in declared else names.get(name.lower(), name)
        fields[own] = _propose_field(declared[own], schema) if own in declared else schema
    return fields


def _propose_field(declared: Any, seen: Mapping[str, Any]) -> Any:
    kind, seen_kind = from_json_schema.kind_of(declared), from_json_schema.kind_of(seen)
    if isinstance(kind, Struct) and isinstance(seen_kind, Struct):
        fields = _propose_fields(declared.get("properties") or {}, seen["properties"])
        return {**declared, "properties": fields}
    if kind is Scalar.JSON:
        return seen
    own, needed = to_stored(kind), to_stored(seen_kind)
    holds = own == needed or is_narrower(needed, own) or core(kind) in JSONS
    return declared if holds else {**seen, **_describe(declared)}


def _describe(declared: Any) -> dict[str, Any]:
    """Return what a declaration says for people."""
    return {key: declared[key] for key in ("title", "description") if key in declared}
