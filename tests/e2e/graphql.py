"""Queries and mutations to Dagster's webserver."""

from __future__ import annotations

import json
import urllib.request
from typing import Any


def ask(url: str, query: str, **variables: Any) -> Any:
    """Return the value of the only field of a query or a mutation to the webserver at a URL."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        document = json.load(answer)
    assert "errors" not in document, document["errors"]
    (value,) = document["data"].values()
    assert value.get("__typename") != "PythonError", value
    return value
