"""The worker of the oracle: it runs in an environment with airbyte-cdk, and reads manifests as
`source-declarative-manifest` does."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tests.e2e.declarative.jobs import Engine, Json, serve

MESSAGE_TYPES = {"RECORD", "STATE", "TRACE", "CONTROL", "CATALOG", "CONNECTION_STATUS"}


def import_engine() -> Engine:
    logging.disable(logging.CRITICAL)
    import_module("airbyte_cdk.entrypoint")
    return do


def do(job: Json) -> Iterator[Json]:
    """Yield the messages of a job; those that the engine prints come last."""
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as cache, _clock(job):
        os.environ["REQUEST_CACHE_PATH"] = cache
        try:
            with contextlib.redirect_stdout(printed):
                for message in _messages(job, cache):
                    if message.type.value in MESSAGE_TYPES:
                        yield _as_json(message)
        finally:
            lines = printed.getvalue().splitlines()
            yield from (json.loads(line) for line in lines if line[:1] == "{")


def _clock(job: Json) -> contextlib.AbstractContextManager[Any]:
    if job.get("real_time"):
        return contextlib.nullcontext()
    traveller: contextlib.AbstractContextManager[Any] = import_module("time_machine").travel(
        job["now"], tick=False
    )
    return traveller


def _messages(job: Json, folder: str) -> Iterator[Any]:
    models = import_module("airbyte_cdk.models")
    declarative = import_module("airbyte_cdk.sources.declarative.concurrent_declarative_source")
    catalog = models.ConfiguredAirbyteCatalogSerializer.load(job["catalog"])
    state = [models.AirbyteStateMessageSerializer.load(entry) for entry in job["state"]]
    source = declarative.ConcurrentDeclarativeSource(
        catalog=catalog, config=job["config"], state=state, source_config=job["manifest"]
    )
    entrypoint = import_module("airbyte_cdk.entrypoint").AirbyteEntrypoint(source)
    config = source.configure(job["config"], folder)
    spec = source.spec(logging.getLogger("oracle"))
    if job["verb"] == "read":
        yield from entrypoint.read(spec, config, catalog, state)
    else:
        yield from getattr(entrypoint, job["verb"])(spec, config)


def _as_json(message: Any) -> Json:
    """Return a message as JSON has it. A record is what the engine made: it prints records without nulls,
    which is no matter of the manifest."""
    if message.record is not None:
        return {
            "type": "RECORD",
            "record": {"stream": message.record.stream, "data": message.record.data},
        }
    dump = import_module("airbyte_cdk.models").AirbyteMessageSerializer.dump
    document: Json = json.loads(json.dumps(dump(message), default=_plain))
    return document


def _plain(value: Any) -> Any:
    """Return what JSON has for a value of a message: the blob of a state is an object with attributes."""
    return value.__dict__ if hasattr(value, "__dict__") else str(value)


if __name__ == "__main__":
    serve(import_engine)
