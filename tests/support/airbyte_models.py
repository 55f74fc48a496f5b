"""Reads what a program prints with the models that Airbyte publishes, as its platform and PyAirbyte do."""

from __future__ import annotations

from typing import Any

from airbyte_protocol.models import AirbyteMessage


def parsed(output: bytes) -> list[Any]:
    """Return the messages of an output, one a line; a message that the models refuse fails the test."""
    messages = [AirbyteMessage.model_validate_json(line) for line in output.splitlines()]
    assert [message.model_extra for message in messages] == [{}] * len(messages)
    return messages


def kinds(output: bytes) -> list[str]:
    """Return the type of each message, in order; of a TRACE the trace's own."""
    return [
        message.trace.type.value if message.trace else message.type.value
        for message in parsed(output)
    ]
