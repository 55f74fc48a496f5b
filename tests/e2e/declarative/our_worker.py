"""The worker of connectors.declarative: it runs the commands of a manifest's source within the process."""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import nullcontext
from datetime import datetime
from importlib import import_module
from pathlib import Path

from tests.e2e.declarative.jobs import Engine, Json, serve

MESSAGE_TYPES = {"RECORD", "STATE", "TRACE", "CONTROL", "CATALOG", "CONNECTION_STATUS"}


def import_engine() -> Engine:
    import_module("connectors.declarative.source")
    return do


def do(job: Json) -> list[Json]:
    """Return the messages of a job."""
    source_type = import_module("connectors.declarative.source").ManifestSource
    clock = import_module("connectors.declarative.manifest.clock")
    run = import_module("connectors.sdk.cli").run
    output = io.BytesIO()
    frozen = clock.frozen(datetime.fromisoformat(job["now"]))
    with tempfile.TemporaryDirectory() as folder, nullcontext() if job.get("real_time") else frozen:
        manifest = _write(Path(folder), "manifest", job["manifest"])
        arguments = [job["verb"], "--config", str(_write(Path(folder), "config", job["config"]))]
        if job["verb"] == "read":
            arguments += ["--catalog", str(_write(Path(folder), "catalog", job["catalog"]))]
            arguments += ["--state", str(_write(Path(folder), "state", job["state"]))]
        run(source_type(manifest), arguments, output)
    messages = (json.loads(line) for line in output.getvalue().splitlines())
    return [message for message in messages if message["type"] in MESSAGE_TYPES]


def _write(folder: Path, name: str, content: object) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content))
    return path


if __name__ == "__main__":
    serve(import_engine)
