"""The interface of a protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from connectors.testing.protocols.transcript import SeenRecord, Transcript
from elt_assets.protocol.airbyte.catalog import AirbyteStream, ConfiguredStream
from elt_assets.protocol.airbyte.messages import State

Output = tuple[Transcript, list[SeenRecord]]


class Protocol(ABC):
    """A protocol of connectors.

    Attributes:
        name: the name, as the report has it.
        subject: the kind of program, for messages: "Singer taps".
        has_spec: whether a connector must print a specification.
        has_check: whether a connector must check its config on request.
        has_schema_messages: whether a read must send the schema of a stream before its records.
        has_help: whether the verb `help` tells how the arguments are given, where there is no specification.
    """

    name: ClassVar[str]
    subject: ClassVar[str]
    has_spec: ClassVar[bool]
    has_check: ClassVar[bool]
    has_schema_messages: ClassVar[bool]
    has_help: ClassVar[bool]

    @abstractmethod
    def arguments(self, verb: str, files: Mapping[str, Path]) -> list[str]:
        """Return the arguments of a command. `files`: the files that are arguments, by name."""

    @abstractmethod
    def catalog(self, streams: Sequence[ConfiguredStream]) -> bytes:
        """Return the contents of the catalog file that selects these streams.

        Raises:
            ConfigError: a stream cannot be selected.
        """

    def selectable_fields(self, stream: AirbyteStream) -> Sequence[str]:
        """Return the fields of a stream that the user may leave out, and the connector must then not send."""
        del stream
        return ()

    @abstractmethod
    def state(self, states: Sequence[State]) -> bytes | None:
        """Return the contents of the state file; None if there is no state."""

    @abstractmethod
    def output(self, verb: str, stdout: Path, streams: Sequence[ConfiguredStream]) -> Output:
        """Return the messages and the records that a command printed. `streams`: those that it read."""

    @abstractmethod
    def record_schema(self, stream: AirbyteStream) -> Mapping[str, Any]:
        """Return the JSON schema that the records of a stream must fit, as the connector declares it."""
