"""Rules about `spec`, `check` and `discover`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from jsonschema import FormatChecker

from connectors.testing.comparison import canonical
from connectors.testing.connector import Run
from connectors.testing.findings import Finding, NotApplicable
from connectors.testing.observations import (
    BAD_CHECKS,
    CHECK,
    DISCOVER,
    DISCOVER_AGAIN,
    SPEC,
    Observations,
)
from connectors.testing.rules.rule import (
    MAX_SHOWN,
    Results,
    require_check,
    require_spec,
    rule,
)
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, AirbyteStream
from elt_assets.protocol.config_check import InvalidSpecification, find_flaws, violations
from elt_assets.protocol.json_schema import broken_references, compose_schema
from elt_assets.protocol.message_rules import check_version
from elt_assets.protocol.messages import Specification

_SPEC_ADVICE = "correct the `connectionSpecification`"
_MAX_MESSAGE = 300
"""Maximum number of characters of what is said about a keyword."""
_PATTERNS = FormatChecker(formats=["regex"])


@rule(SPEC)
def spec_is_valid(seen: Observations) -> Results:
    """`spec` prints one specification with a valid JSON schema of the config."""
    require_spec(seen)
    run = seen.spec
    specifications = run.transcript.specifications
    if len(specifications) != 1:
        yield Finding(
            "one SPEC message",
            f"{len(specifications)} SPEC messages; the process {run.ended.text}",
            "print exactly one SPEC message for the command `spec`",
            run=run.purpose,
        )
    for specification in specifications:
        for flaw in _spec_flaws(specification):
            yield Finding("a valid specification", flaw, _SPEC_ADVICE, run=run.purpose)


def _spec_flaws(specification: Specification) -> Iterator[str]:
    schema = specification.connectionSpecification
    kind = schema.get("type", "object")
    if "object" not in (kind if isinstance(kind, list) else [kind]):
        yield f"the type {kind!r}, but a config is an object"
    yield from _schema_flaws(schema)
    for name in _find_undescribed(schema):
        yield f"the field {name!r} is required, but not described"
    try:
        check_version(specification, "under test")
    except ConfigError as error:
        yield error.message


def _schema_flaws(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is not valid JSON Schema in a schema, and the references that lead nowhere."""
    for error in find_flaws(schema, _PATTERNS):
        place = ".".join(map(str, error.absolute_path))
        yield f"a schema that is not valid at {place!r}: {error.message[:_MAX_MESSAGE]}"
    for field, reference in broken_references(compose_schema(dict(schema))):
        yield f"the field {field!r}, whose reference {reference!r} leads to nothing"


def _find_undescribed(schema: Mapping[str, Any]) -> list[str]:
    """Return the required fields that a schema does not describe."""
    properties, required = schema.get("properties"), schema.get("required")
    has_branches = any(branch in schema for branch in ("oneOf", "anyOf", "allOf"))
    if has_branches or not isinstance(properties, Mapping) or not isinstance(required, list):
        return []
    return [str(name) for name in required if name not in properties]


@rule(SPEC)
def spec_allows_the_config(seen: Observations) -> Results:
    """The config that is tested is valid for the specification."""
    require_spec(seen)
    schema = seen.specification.connectionSpecification
    try:
        lines = violations(seen.connector.config, schema)
    except InvalidSpecification as error:
        raise NotApplicable(f"the specification is not valid: {error}") from None
    for violation in lines[:MAX_SHOWN]:
        yield Finding(
            "a specification that allows the config of this test",
            violation,
            "correct the config of this test, or the specification: a config that violates it is not used",
            run=seen.spec.purpose,
        )


@rule(CHECK)
def check_accepts_the_config(seen: Observations) -> Results:
    """`check` answers SUCCEEDED for the config."""
    require_check(seen)
    run = seen.check
    listed = run.transcript.connection_statuses
    if len(listed) != 1 or not listed[0].succeeded:
        answers = (
            ", ".join(_answer(answer.status, answer.message) for answer in listed) or "no answer"
        )
        yield Finding(
            "one CONNECTION_STATUS with status SUCCEEDED",
            f"{answers}; the process {run.ended.text}{_first_error(run)}",
            "correct the config of this test, or `check`",
            run=run.purpose,
        )


@rule(BAD_CHECKS)
def check_refuses_a_bad_config(seen: Observations) -> Results:
    """`check` of a config that is not valid answers FAILED, or fails with an error."""
    require_check(seen)
    if not seen.bad_checks:
        raise NotApplicable(
            "the specification has no required field and no typed field, so each config is valid"
        )
    for run in seen.bad_checks:
        flaw = _acceptance(run)
        if flaw is not None:
            yield Finding(
                "status FAILED, or an ERROR trace and another exit code than 0",
                flaw,
                "validate the config by the specification in each command; print what is wrong in "
                "CONNECTION_STATUS, without the values of secrets",
                run=run.purpose,
            )


def _acceptance(run: Run) -> str | None:
    """Return how a check failed to refuse a config; None if it did refuse it."""
    answers = run.transcript.connection_statuses
    if any(answer.succeeded for answer in answers):
        return "status SUCCEEDED"
    if answers or (run.transcript.errors and not run.succeeded):
        return None
    return f"no CONNECTION_STATUS and no ERROR trace; the process {run.ended.text}"


@rule(DISCOVER)
def discover_lists_streams(seen: Observations) -> Results:
    """`discover` prints one catalog, with at least one stream and no stream twice."""
    run = seen.discover
    catalogs = run.transcript.catalogs
    if len(catalogs) != 1 or not catalogs[0].streams:
        streams = sum(len(catalog.streams) for catalog in catalogs)
        yield Finding(
            "one catalog with at least one stream",
            f"{len(catalogs)} catalogs with {streams} streams; the process {run.ended.text}"
            f"{_first_error(run)}",
            "print exactly one catalog with all streams that this config gives access to",
            run=run.purpose,
        )
    count = Counter(stream.id for catalog in catalogs for stream in catalog.streams)
    for stream, times in count.items():
        if times > 1:
            yield Finding(
                "each stream once",
                f"{times} times",
                "give each stream a name of its own, or a namespace",
                stream=str(stream),
                run=run.purpose,
            )


@rule(DISCOVER, DISCOVER_AGAIN)
def discover_is_stable(seen: Observations) -> Results:
    """A second `discover` with the same config prints the same catalog, in any order."""
    first, second = (
        {
            stream.id: _sort_lists(msgspec.json.decode(stream.to_json()))
            for catalog in run.transcript.catalogs
            for stream in catalog.streams
        }
        for run in (seen.discover, seen.second_discovery)
    )
    for stream in {**first, **second}:
        if first.get(stream) != second.get(stream):
            both = stream in first and stream in second
            yield Finding(
                "the same description of the stream as in the first one",
                "another description" if both else "a stream that only one of them has",
                "describe a stream by the source alone; put names that are in a set in order",
                stream=str(stream),
                run=seen.second_discovery.purpose,
            )


def _sort_lists(value: Any) -> Any:
    """Return a JSON value whose lists are sorted: their order has no meaning in a catalog."""
    if isinstance(value, dict):
        return {name: _sort_lists(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return sorted(map(_sort_lists, value), key=canonical)
    return value


@rule(DISCOVER)
def streams_are_well_described(seen: Observations) -> Results:
    """Each stream has a valid JSON schema, known sync modes, and a cursor and a key that the schema has."""
    for stream in seen.streams:
        for flaw in _stream_flaws(stream, seen.protocol.record_schema(stream)):
            yield Finding(
                "a stream whose description is valid and complete",
                flaw,
                "correct the stream in the catalog",
                stream=str(stream.id),
                run=seen.discover.purpose,
            )


def _stream_flaws(stream: AirbyteStream, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from _schema_flaws(schema)
    if not isinstance(schema.get("properties"), Mapping):
        yield "a schema without `properties`"
    if not stream.supported_sync_modes:
        yield "no `supported_sync_modes`"
    for mode in stream.supported_sync_modes or ():
        if mode not in (FULL_REFRESH, INCREMENTAL):
            yield f"the unknown sync mode {mode!r}"
    cursor = stream.default_cursor_field
    if cursor and not _declares(schema, cursor):
        yield f"the cursor {'.'.join(cursor)!r}, which the schema does not have"
    for path in stream.source_defined_primary_key or ():
        if not _declares(schema, path):
            yield f"the key field {'.'.join(path)!r}, which the schema does not have"


def _declares(schema: Any, path: Sequence[str]) -> bool:
    """Return whether a schema has a field. A schema without `properties` has any field."""
    for name in path:
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        if not isinstance(properties, Mapping):
            return True
        if name not in properties:
            return False
        schema = properties[name]
    return True


def _answer(status: str, message: str | None) -> str:
    return f"{status} ({message})" if message else status


def _first_error(run: Run) -> str:
    """Return the first error that a process reported, to be added to a sentence."""
    errors = run.transcript.errors
    return f"; its first error: {errors[0].text}" if errors else ""
