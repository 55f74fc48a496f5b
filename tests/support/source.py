"""A source that is read as a process: what a test asks for, and what the source sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elt_assets.errors import EltError
from elt_assets.protocol.catalog import AirbyteStream, ConfiguredCatalog, ConfiguredStream
from elt_assets.protocol.messages import Log, Message, RawRecord, Received, State
from elt_assets.runner.connector import Connector


def configure_streams(*names: str, **settings: Any) -> ConfiguredCatalog:
    """Return a catalog of streams without fields; `settings`: as of `ConfiguredStream`."""
    streams = [AirbyteStream(name=name, json_schema={}) for name in names]
    return ConfiguredCatalog([ConfiguredStream(stream, **settings) for stream in streams])


USERS = configure_streams("users")


class SourceOutput(list[Received]):
    """What a source sent, in its order."""

    @property
    def kinds(self) -> list[str]:
        """The type of each message; of a record its stream."""
        return [sent.type if isinstance(sent, Message) else sent.stream for sent in self]

    @property
    def records(self) -> list[Any]:
        return [json.loads(bytes(sent.data)) for sent in self if isinstance(sent, RawRecord)]

    @property
    def states(self) -> list[State]:
        return [message.state for message in self.messages if message.state is not None]

    @property
    def logs(self) -> list[Log]:
        return [message.log for message in self.messages if message.log is not None]

    @property
    def messages(self) -> list[Message]:
        return [sent for sent in self if isinstance(sent, Message)]


def read_source(
    connector: Connector, *states: State, catalog: ConfiguredCatalog = USERS, **options: Any
) -> SourceOutput:
    """Read to the end; `options`: as of `Connector.read`."""
    return SourceOutput(connector.read(catalog, states, **options))


def fail_to_read(
    connector: Connector, catalog: ConfiguredCatalog = USERS, **options: Any
) -> tuple[SourceOutput, EltError]:
    """Read up to an error, which must come; return what came before, and the error."""
    output = SourceOutput()
    with pytest.raises(EltError) as failure:
        output.extend(connector.read(catalog, **options))
    return output, failure.value
