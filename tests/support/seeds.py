"""The seeds of a long test, from an environment variable: so that one that was interrupted goes on."""

from __future__ import annotations

import os


def list_seeds(variable: str, count: int) -> list[int]:
    """Return the seeds of a long form: those of an environment variable, such as `5-9`, or all."""
    first, _, last = os.environ.get(variable, f"0-{count - 1}").partition("-")
    return list(range(int(first), int(last or first) + 1))
