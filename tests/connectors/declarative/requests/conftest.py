"""A server on the loopback, and retrievers that read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.declarative.requests.support import Reading
from tests.programs.recording_api import RecordingApi, serving


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Reading]:
    with serving(RecordingApi()) as api:
        found = Reading(api, tmp_path)
        yield found
        found.environment.close()


@pytest.fixture
def other() -> Iterator[RecordingApi]:
    """Another origin."""
    with serving(RecordingApi()) as api:
        yield api
