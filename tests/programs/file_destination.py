"""A destination that appends records to a file: `python -m tests.programs.file_destination VERB …`.

Its config: `file` (and `<file>.catalogs`, the catalog of each write); `dies_after`: records after which
it is killed, if it gets as far; `takes`: it takes the documents, whose contents it appends; `forgets`: sends
no state back; `hangs`: never ends once its input has;
`reports`: an error that it reports at its end, with exit code 0.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

SPEC = {
    "connectionSpecification": {
        "type": "object",
        "required": ["file"],
        "properties": {
            "file": {"type": "string"},
            "password": {"type": "string", "airbyte_secret": True},
        },
    },
    "supported_destination_sync_modes": ["append", "overwrite", "append_dedup"],
}


def _say(kind: str, **body: Any) -> None:
    print(json.dumps({"type": kind, **body}), flush=True)


def _write(config: dict[str, Any], catalog: dict[str, Any]) -> None:
    with Path(config["file"] + ".catalogs").open("a") as catalogs:
        catalogs.write(json.dumps(catalog) + "\n")
    sent = since = 0
    with Path(config["file"]).open("a") as file:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if message["type"] == "RECORD":
                record = message["record"]
                if config.get("takes") and "file_reference" in record:
                    _take(record)
                file.write(json.dumps(record) + "\n")
                sent, since = sent + 1, since + 1
                if sent == config.get("dies_after"):
                    file.flush()
                    os.kill(os.getpid(), signal.SIGKILL)
            elif message["type"] == "STATE" and not config.get("forgets"):
                file.flush()
                stats = {"recordCount": float(since)}
                _say("STATE", state={**message["state"], "destinationStats": stats})
                since = 0
    if config.get("reports"):
        error = {"message": config["reports"], "failure_type": "system_error"}
        _say("TRACE", trace={"type": "ERROR", "emitted_at": 1.0, "error": error})
    if config.get("hangs"):
        time.sleep(600)
    _say("LOG", log={"level": "INFO", "message": f"wrote with {config.get('password')}"})


def _take(record: dict[str, Any]) -> None:
    """Remove the document of a record from the staging folder, and add its content to the record."""
    document = Path(record["file_reference"]["staging_file_url"])
    assert document.is_relative_to(os.environ["AIRBYTE_STAGING_DIRECTORY"])
    record["content"] = document.read_text()
    document.unlink()


def main() -> None:
    verb, files = sys.argv[1], dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    content = {name[2:]: json.loads(Path(path).read_text()) for name, path in files.items()}
    if verb == "spec":
        _say("SPEC", spec=SPEC)
    elif verb == "check":
        _say("CONNECTION_STATUS", connectionStatus={"status": "SUCCEEDED"})
    else:
        _write(content["config"], content["catalog"])


if __name__ == "__main__":
    main()
