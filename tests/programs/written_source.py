"""The source of docs/writing-a-connector.md, and the API that it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.programs.json_api import JsonApi, Tokens, serving

DOCUMENT = Path(__file__).parents[2] / "docs" / "writing-a-connector.md"
SECRETS = {"client_id": "client", "client_secret": "client-secret"}


def program() -> str:
    """Return the first Python program of the document."""
    return programs()[0]


def programs() -> list[str]:
    """Return all Python programs of the document."""
    return re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


@contextmanager
def store_api() -> Iterator[JsonApi]:
    """Serve three stores with three, four and five orders, to clients with a token."""
    stores = [{"id": name, "city": f"city of {name}"} for name in ("a", "b", "c")]
    found: dict[str, list[dict[str, Any]]] = {"stores": stores}
    for number, store in enumerate(stores, 3):
        found[f"stores/{store['id']}/orders"] = [order(n) for n in range(number)]
    with serving(JsonApi(found, tokens=Tokens())) as served:
        yield served


def order(number: int) -> dict[str, Any]:
    return {"id": number, "updated_at": f"2026-01-{number + 1:02}T00:00:00Z"}
