"""Syncs of manifests through the whole engine, in this process, against a server on the loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import msgspec

from connectors.declarative.source import ManifestSource
from connectors.declarative.stream import ManifestStream
from connectors.sdk.items import Checkpoint, Context, Page, Record, Warn
from elt_assets.errors import EltError
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredStream
from tests.connectors.declarative.cursors.support import at

Json = dict[str, Any]


@dataclass
class Sync:
    """The output of one sync of a stream: its records, its states with the number of records before each, and
    the error with which it ended."""

    records: list[Record] = field(default_factory=list)
    states: list[tuple[int, Json]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: EltError | None = None

    @property
    def state(self) -> Json:
        """The last state; an empty one if there is none."""
        return self.states[-1][1] if self.states else {}

    @property
    def committed(self) -> list[Record]:
        """The records before the last state."""
        return self.records[: self.states[-1][0] if self.states else 0]

    def values(self, name: str) -> list[Any]:
        return [record.get(name) for record in self.records]


def manifest(*streams: Mapping[str, Any], **fields: Any) -> str:
    """Return the text of a manifest."""
    document = {
        "version": "6.0.0",
        "type": "DeclarativeSource",
        "check": {"type": "CheckStream", "stream_names": [streams[0]["name"]]},
        "streams": list(streams),
        "spec": {
            "type": "Spec",
            "connection_specification": {"type": "object", "additionalProperties": True},
        },
        **fields,
    }
    return json.dumps(document, indent=1)


def stream(sync: Mapping[str, Any] | None = None, name: str = "orders", **changes: Any) -> Json:
    """Return a stream that reads `{url}/NAME`, with the records at `data`.

    Args:
        sync: its DatetimeBasedCursor, without the type.
        name: its name.
        changes: fields of its retriever; `requester` is added to the usual one, and what begins with
            `stream_` is a field of the stream.
    """
    requester = {"type": "HttpRequester", "url_base": "{{ config['url'] }}", "path": f"/{name}"}
    requester |= changes.pop("requester", {})
    extractor = {"type": "DpathExtractor", "field_path": ["data"]}
    retriever = {
        "type": "SimpleRetriever",
        "requester": requester,
        "record_selector": {"type": "RecordSelector", "extractor": extractor},
    }
    fields = {key: changes.pop(key) for key in list(changes) if key.startswith("stream_")}
    return {
        "type": "DeclarativeStream",
        "name": name,
        "primary_key": [],
        "retriever": {**retriever, **changes},
        "schema_loader": {"type": "InlineSchemaLoader", "schema": {"type": "object"}},
        **({"incremental_sync": {"type": "DatetimeBasedCursor", **sync}} if sync else {}),
        **{key.removeprefix("stream_"): value for key, value in fields.items()},
    }


def option(name: str, inject_into: str = "request_parameter") -> Json:
    return {"type": "RequestOption", "inject_into": inject_into, "field_name": name}


@contextmanager
def opened(written: str, config: Mapping[str, Any]) -> Iterator[ManifestStream]:
    """The first stream of a manifest while the context is open."""
    (found, *_) = ManifestSource(written).open(config)
    assert isinstance(found, ManifestStream)
    try:
        yield found
    finally:
        found._readers.environment.close()


def sync(
    written: str, config: Mapping[str, Any], state: Mapping[str, Any] | None = None, **settings: Any
) -> Sync:
    """Read the first stream of a manifest as `synced` does."""
    with opened(written, config) as found:
        return synced(found, state, **settings)


def synced(
    found: ManifestStream,
    state: Mapping[str, Any] | None = None,
    *,
    now: Any,
    mode: str = INCREMENTAL,
    partitions: Sequence[Context] | None = None,
    items: int | None = None,
) -> Sync:
    """Read a stream with a stopped clock.

    Args:
        found: the stream.
        state: its state.
        now: the time.
        mode: the sync mode.
        partitions: the partitions to read alone; None for all.
        items: the number of items (records, states, warnings) after which the sync is cut; None for no cut.
    """
    done = Sync()
    configured = ConfiguredStream(stream=found.describe(), sync_mode=mode)
    if partitions is not None:
        configured.extra["partitions"] = msgspec.Raw(msgspec.json.encode(partitions))
    with at(now):
        reading = found.read(configured, None if state is None else deepcopy(dict(state)))
        try:
            for number, item in enumerate(reading, start=1):
                _add(done, item)
                if number == items:
                    break
        except EltError as error:
            done.error = error
        finally:
            reading.close()  # type: ignore[attr-defined]
    return done


def _add(done: Sync, item: Any) -> None:
    if isinstance(item, Checkpoint):
        encoded = msgspec.json.encode(item.state)
        done.states.append((len(done.records), msgspec.json.decode(encoded)))
    elif isinstance(item, Warn):
        done.warnings.append(item.text)
    elif isinstance(item, Page):
        done.records.extend(map(dict, item.records))
    else:
        done.records.append(dict(item))
