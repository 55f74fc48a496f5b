"""Malformed traces: a failure that cannot be read is a failure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.protocol.codec import decode
from elt_assets.protocol.messages import (
    COMPLETE,
    INCOMPLETE,
    Message,
    Trace,
    UndecodedLine,
    UnreadableError,
)

NAMED = {"stream_descriptor": {"name": "a"}}


def decode_trace(trace: Any) -> Trace:
    message = decode(json.dumps({"type": "TRACE", "trace": trace}).encode())
    assert isinstance(message, Message) and message.trace is not None
    return message.trace


def error(body: Any) -> dict[str, Any]:
    return {"type": "ERROR", "emitted_at": 1, "error": body}


def status(body: Any) -> dict[str, Any]:
    return {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": body}


@pytest.mark.parametrize(
    "trace",
    [
        error({"message": 5, **NAMED}),
        error({"message": "x", "failure_type": ["config_error"], **NAMED}),
        error({"message": "x", "stack_trace": {}, **NAMED}),
        {**error({"message": "x", **NAMED}), "emitted_at": "now"},
        {**error({"message": "x", **NAMED}), "type": 5},
    ],
)
def test_a_malformed_error_of_a_stream_is_its_error(trace: Any) -> None:
    error = decode_trace(trace).error
    assert error is not None and error.stream_descriptor is not None
    assert error.stream_descriptor.name == "a"
    assert error.text in ("x", "the source reported a failure that cannot be read")


@pytest.mark.parametrize(
    "trace",
    [
        status({"status": INCOMPLETE, "reasons": "limit", **NAMED}),
        status({"status": "incomplete", **NAMED}),
        status({"status": 5, **NAMED}),
        status({"status": None, **NAMED}),
        status(NAMED),
        {**status({"status": INCOMPLETE, **NAMED}), "emitted_at": []},
        {**status({"status": INCOMPLETE, **NAMED}), "type": None},
    ],
)
def test_a_malformed_status_of_a_failure_is_incomplete(trace: Any) -> None:
    status = decode_trace(trace).stream_status
    assert status is not None
    assert (status.stream_descriptor.name, status.status) == ("a", INCOMPLETE)


@pytest.mark.spec("protocol.143")
@pytest.mark.parametrize(
    "trace",
    [
        error("boom"),
        error(["boom"]),
        error({"message": "x", "stream_descriptor": "a"}),
        error({"message": "x", "stream_descriptor": {"name": ["a"]}}),
        error({"message": "x", "stream_descriptor": {"namespace": "a"}}),
        {"type": "error", "emitted_at": 1},
        status(None),
        status({"status": INCOMPLETE}),
        status({"status": "FAILED", "stream_descriptor": {"name": "a", "namespace": 5}}),
        {"type": "STREAM_STATUS"},
        {"type": 5},
        {},
        None,
        "ERROR",
    ],
)
def test_a_failure_whose_stream_cannot_be_read_is_of_any_stream(trace: Any) -> None:
    assert isinstance(decode_trace(trace).error, UnreadableError)


@pytest.mark.parametrize(
    "trace",
    [
        status({"status": COMPLETE, "reasons": 5, **NAMED}),
        status({"status": "RUNNING", "stream_descriptor": 5}),
        {"type": "ESTIMATE", "estimate": 5},
        {"type": "ANALYTICS", "analytics": {"type": 5}},
        {"type": "NEWER", "emitted_at": "now"},
    ],
)
def test_another_malformed_trace_is_a_warning(trace: Any) -> None:
    message = decode(json.dumps({"type": "TRACE", "trace": trace}).encode())
    assert isinstance(message, UndecodedLine) and message.log is not None
    assert message.log.level == "WARN"


@pytest.mark.parametrize(
    "trace", [error({"message": "x", **NAMED}), status({"status": INCOMPLETE})]
)
@given(cut=st.integers(18, 200))
def test_a_truncated_failure_is_a_failure(trace: Any, cut: int) -> None:
    line = json.dumps({"type": "TRACE", "trace": trace}).encode()
    message = decode(line[: min(cut, len(line) - 1)])
    assert isinstance(message, Message) and message.reported_error is not None
