"""Requests and responses, and the import of httpx without its command line, which takes half of the import
time where rich is installed."""

import sys
from importlib import import_module

if "httpx" not in sys.modules:
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
    import_module("httpx")
    del sys.modules["httpx._main"]

# isort: split
from httpx import URL, Request, Response

__all__ = ["URL", "Request", "Response"]
