"""The names under which another destination knows the streams of a sync.

The source, the states in our tables and the events have the names of the catalog. Messages get the names of
the destination when they are sent, and the catalog's names again when they come back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

from elt_assets.protocol.catalog import ConfiguredStream, StreamDescriptor, StreamId
from elt_assets.protocol.messages import Message, State

_Rename = Callable[[StreamDescriptor], StreamDescriptor]


class DestinationNames:
    """The names of streams at a destination.

    Args:
        names: the name of each stream whose name there is another one.
    """

    def __init__(self, names: Mapping[StreamId, str]):
        self._names = names
        self._sources = {
            StreamId(name, stream.namespace): stream.name for stream, name in names.items()
        }

    def rename_stream(self, stream: ConfiguredStream) -> ConfiguredStream:
        """Return a configured stream as the destination gets it."""
        if stream.id not in self._names:
            return stream
        renamed = copy.copy(stream)
        renamed.stream = copy.copy(stream.stream)
        renamed.stream.name = self._names[stream.id]
        return renamed

    def to_destination(self, message: Message) -> Message:
        """Return a message with the destination's names; the state of a message stays as it is."""
        if not self._names:
            return message
        if message.record is not None:
            stream = StreamId(message.record.stream, message.record.namespace)
            message.record.stream = self._names.get(stream, stream.name)
        return _rename_descriptors(message, lambda s: _replace_name(s, self._names.get(s.id)))

    def from_destination(self, message: Message) -> Message:
        """Return a message of the destination with the names of the catalog."""
        return _rename_descriptors(message, self._to_source) if self._names else message

    def _to_source(self, stream: StreamDescriptor) -> StreamDescriptor:
        name = self._sources.get(stream.id)
        if name is None:  # a destination may add the namespace that it writes to
            names = {old for new, old in self._sources.items() if new.name == stream.name}
            name = names.pop() if len(names) == 1 else None
        return _replace_name(stream, name)


def _replace_name(stream: StreamDescriptor, name: str | None) -> StreamDescriptor:
    renamed = copy.copy(stream)
    renamed.name = stream.name if name is None else name
    return renamed


def _rename_descriptors(message: Message, rename: _Rename) -> Message:
    """Return a message in which the streams of its state, status or error have other names."""
    renamed = copy.copy(message)
    if message.state is not None:
        renamed.state = _rename_state(message.state, rename)
    elif message.trace is not None:
        renamed.trace = trace = copy.copy(message.trace)
        if trace.stream_status is not None:
            trace.stream_status = copy.copy(trace.stream_status)
            trace.stream_status.stream_descriptor = rename(trace.stream_status.stream_descriptor)
        stream = None if trace.error is None else trace.error.stream_descriptor
        if trace.error is not None and stream is not None:
            trace.error = copy.copy(trace.error)
            trace.error.stream_descriptor = rename(stream)
    return renamed


def _rename_state(state: State, rename: _Rename) -> State:
    renamed = copy.copy(state)
    if state.stream is not None:
        renamed.stream = copy.copy(state.stream)
        renamed.stream.stream_descriptor = rename(state.stream.stream_descriptor)
    if state.global_ is not None:
        renamed.global_ = copy.copy(state.global_)
        renamed.global_.stream_states = [copy.copy(s) for s in state.global_.stream_states]
        for entry in renamed.global_.stream_states:
            entry.stream_descriptor = rename(entry.stream_descriptor)
    return renamed
