"""Rules about records: their schema, their fields, their key and their stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from jsonschema import FormatChecker, ValidationError
from jsonschema.protocols import Validator

from connectors.testing.comparison import canonical, parse_time, value_at
from connectors.testing.connector import Run
from connectors.testing.findings import Finding, NotApplicable, Note
from connectors.testing.observations import READ, REFRESH, SINGLE, Observations
from connectors.testing.protocols.protocol import SeenRecord
from connectors.testing.rules.rule import MAX_SHOWN, Results, rule
from elt_assets.protocol.catalog import AirbyteStream, StreamId
from elt_assets.protocol.config_check import make_validator

_FORMATS = FormatChecker(formats=())


@_FORMATS.checks("date-time")
@_FORMATS.checks("date")
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or parse_time(value) is not None


@rule(READ)
def records_fit_their_schema(seen: Observations) -> Results:
    """Each record is valid for the JSON schema of its stream, dates and times included."""
    records = _group_by_stream(seen.first_read.records)
    _require_records(records)
    for stream in seen.streams:
        schema = seen.protocol.record_schema(stream)
        validator = make_validator(schema, {"multipleOf": _multiple_of}, _FORMATS)
        if stream.id not in records:
            yield Note(f"stream {stream.id} has no records")
        yield from _describe_flaws(
            seen.first_read,
            records.get(stream.id, ()),
            partial(_violation, validator),
            "a record that fits the schema of its stream",
            "correct the schema that `discover` prints, or the values",
        )


def _multiple_of(
    validator: Any, divisor: float, value: Any, _: object
) -> Iterator[ValidationError]:
    """Check `multipleOf` by decimals: as binary fractions, 1.1 is no multiple of 0.01."""
    if validator.is_type(value, "number"):
        quotient = Fraction(repr(value)) / Fraction(repr(divisor))
        if quotient.denominator != 1:
            yield ValidationError(f"{value!r} is not a multiple of {divisor!r}")


def _violation(validator: Validator, record: SeenRecord) -> str | None:
    """Return the first violation of a schema by a record; None if there is none."""
    for error in validator.iter_errors(record.data):
        field = ".".join(map(str, error.absolute_path)) or "the record"
        return f"{field}: {error.message}"
    return None


@rule(READ)
def fields_are_declared(seen: Observations) -> Results:
    """Records have only fields that the JSON schema of their stream declares."""
    records = _group_by_stream(seen.first_read.records)
    _require_records(records)
    later = _later_fields(seen.first_read)
    for stream in seen.streams:
        declared = _list_declared(seen.protocol.record_schema(stream))
        if declared is None:
            yield Note(f"stream {stream.id}: its schema allows any field")
            continue
        yield from _describe_flaws(
            seen.first_read,
            records.get(stream.id, ()),
            partial(_find_undeclared, declared | later.get(stream.id, frozenset())),
            "only fields that the schema of the stream declares",
            "declare the field in the schema, or leave it out of the records",
        )


def _list_declared(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the fields that a schema declares; None if it allows any field."""
    properties = schema.get("properties")
    has_rules = schema.get("additionalProperties") or schema.get("patternProperties")
    return None if has_rules or not isinstance(properties, Mapping) else frozenset(properties)


def _later_fields(run: Run) -> Mapping[StreamId, frozenset[str]]:
    """Return the fields in the SCHEMA messages of a tap by stream."""
    later: dict[StreamId, frozenset[str]] = {}
    for catalog in run.transcript.catalogs:
        for stream in catalog.streams:
            fields = frozenset(stream.json_schema.get("properties") or ())
            later[stream.id] = later.get(stream.id, frozenset()) | fields
    return later


def _find_undeclared(declared: Collection[str], record: SeenRecord) -> str | None:
    names = [name for name in record.data if name not in declared]
    return f"the undeclared fields {', '.join(map(repr, names))}" if names else None


@rule(REFRESH)
def primary_key_is_present_and_unique(seen: Observations) -> Results:
    """Each record of a full refresh has a primary key, which no other record has."""
    keyed = [stream for stream in seen.streams if stream.source_defined_primary_key]
    if not keyed:
        raise NotApplicable("no stream has a primary key")
    records = _group_by_stream(seen.refresh.records)
    for stream in keyed:
        rows = records.get(stream.id, [])
        yield from _describe_flaws(
            seen.refresh,
            rows,
            partial(_null_key, stream),
            "a value in each field of the primary key",
            "leave out the field of the stream's primary key, or fill it in each record",
        )
        count = Counter(_key(stream, row) for row in rows if _null_key(stream, row) is None)
        yield from _describe_flaws(
            seen.refresh,
            rows,
            partial(_find_repeated_key, stream, count),
            "one record for each value of the primary key",
            "send the newest version of each record only, or choose another primary key",
        )


def _key(stream: AirbyteStream, record: SeenRecord) -> str:
    path = stream.source_defined_primary_key or []
    return canonical({".".join(field): value_at(record.data, field) for field in path})


def _null_key(stream: AirbyteStream, record: SeenRecord) -> str | None:
    path = stream.source_defined_primary_key or []
    missing = [".".join(field) for field in path if value_at(record.data, field) is None]
    return f"no value of {', '.join(map(repr, missing))}" if missing else None


def _find_repeated_key(
    stream: AirbyteStream, count: Mapping[str, int], record: SeenRecord
) -> str | None:
    key = _key(stream, record)
    times = count.get(key, 0)
    return f"{times} records with the key {key}" if times > 1 else None


@rule(READ)
def records_are_of_configured_streams(seen: Observations) -> Results:
    """Each record is of a stream of the configured catalog; a tap sends the stream's SCHEMA before it."""
    run = seen.first_read
    configured = {stream.id for stream in run.streams}
    for stream, span in run.transcript.spans.items():
        if stream not in configured:
            yield Finding(
                "only records of streams in the configured catalog",
                f"{span.count:,} records of a stream that is not in it",
                "send records of configured streams only, with the same name and namespace as in the catalog",
                stream=str(stream),
                run=run.purpose,
                line=span.first,
            )
        elif seen.protocol.has_schema_messages and not _has_schema(run, stream, span.first):
            yield Finding(
                "a SCHEMA message before the first record of a stream",
                "a record before it",
                "send the SCHEMA message of a stream before its records",
                stream=str(stream),
                run=run.purpose,
                line=span.first,
            )


@rule(READ, SINGLE)
def only_selected_data_is_read(seen: Observations) -> Results:
    """A read of one stream has no record of another one, and a tap sends no field that is not selected."""
    single = seen.single_stream
    if single is None:
        raise NotApplicable("there is only one stream, and it has no field that can be left out")
    run = single.read
    if not run.succeeded:
        yield Note(f"{run.purpose} {run.ended.text}: its selection was not checked")
        return
    offered = {stream.id for stream in seen.offered}
    for stream, span in run.transcript.spans.items():
        if stream != single.stream.id and stream in offered:
            yield Finding(
                f"only records of stream {single.stream.id}, the only one that is selected",
                f"{span.count:,} records of another stream",
                "read the streams that the catalog selects",
                stream=str(stream),
                run=run.purpose,
                line=span.first,
            )
    if single.field is not None:
        yield from _describe_flaws(
            run,
            single.read.records,
            lambda record: f"the field {single.field!r}" if single.field in record.data else None,
            f"no field {single.field!r}, which has `selected: false` in its metadata",
            "leave out the fields that are not selected, or declare them as `inclusion: automatic`",
        )


@rule(READ)
def states_are_of_configured_streams(seen: Observations) -> Results:
    """Each state of a stream names a stream of the configured catalog, with its namespace."""
    reads = [run for run in seen.runs() if run.verb == "read"]
    for run in reads:
        configured = {stream.id for stream in run.streams}
        states = [
            (s.stream.stream_descriptor.id, line) for s, line in run.transcript.states if s.stream
        ]
        for stream, line in states:
            if stream not in configured:
                yield Finding(
                    "only states of streams in the configured catalog",
                    "a state of a stream that is not in it",
                    "name the stream as the catalog does, with its namespace",
                    stream=str(stream),
                    run=run.purpose,
                    line=line,
                )


def _has_schema(run: Run, stream: StreamId, line: int) -> bool:
    """Return whether a tap has sent the schema of a stream before a line."""
    return any(
        seen.line < line and seen.message.catalog.find(stream) is not None
        for seen in run.transcript.messages
        if seen.message.catalog is not None
    )


def _group_by_stream(records: Sequence[SeenRecord]) -> dict[StreamId, list[SeenRecord]]:
    by_stream: dict[StreamId, list[SeenRecord]] = {}
    for record in records:
        by_stream.setdefault(record.stream, []).append(record)
    return by_stream


def _require_records(records: Mapping[StreamId, object]) -> None:
    if not records:
        raise NotApplicable("no stream has records")


def _describe_flaws(
    run: Run,
    records: Sequence[SeenRecord],
    flaw: Callable[[SeenRecord], str | None],
    expected: str,
    advice: str,
) -> Iterator[Finding]:
    """Yield a finding for each of the first records with a flaw; the last one counts the others."""
    flawed = [(record, text) for record in records for text in [flaw(record)] if text is not None]
    for number, (record, text) in enumerate(flawed[:MAX_SHOWN], 1):
        rest = len(flawed) - MAX_SHOWN
        more = f" (and {rest:,} more records)" if number == MAX_SHOWN and rest > 0 else ""
        yield Finding(
            expected, f"{text}{more}", advice, str(record.stream), run.purpose, record.line
        )
