"""The manifest of docs/manifests.md, and the API that it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.programs.json_api import JsonApi, serving

DOCUMENT = Path(__file__).parents[2] / "docs" / "manifests.md"
START, END = "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"


def manifest_text(*streams: str) -> str:
    """Return the manifest of the document, with these streams only if they are named."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    (text,) = (block for block in blocks if "DeclarativeSource" in block)
    if not streams:
        return str(text)
    document = yaml.safe_load(text)
    document["streams"] = [{"$ref": f"#/definitions/{name}"} for name in streams]
    document["check"]["stream_names"] = list(streams)
    return yaml.safe_dump(document)


def settings(api: JsonApi) -> dict[str, Any]:
    """Return a config with which the data of the API does not depend on the time."""
    return {"url": api.url, "api_key": "a-test-key", "start_date": START, "end_date": END}


@contextmanager
def shop_api() -> Iterator[JsonApi]:
    """Serve three stores with three, four and five orders, and two visits in each of three days."""
    stores = [{"id": name, "city": f"city of {name}"} for name in ("a", "b", "c")]
    found: dict[str, list[dict[str, Any]]] = {"stores": stores}
    for number, store in enumerate(stores, 3):
        found[f"stores/{store['id']}/orders"] = [order(n) for n in range(number)]
    found["visits"] = [visit(day, hour) for day in (1, 2, 3) for hour in (0, 23)]
    with serving(JsonApi(found)) as served:
        yield served


def order(number: int) -> dict[str, Any]:
    return {"id": number, "updated_at": f"2026-01-{number + 1:02}T00:00:00Z"}


def visit(day: int, hour: int) -> dict[str, Any]:
    return {"id": 100 * day + hour, "updated_at": f"2026-01-{day:02}T{hour:02}:59:59Z"}
