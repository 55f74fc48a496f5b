from __future__ import annotations

from pathlib import Path

import pytest

from tests.sync.doubles import MemorySink, Sync


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


@pytest.fixture
def sync(tmp_path: Path, sink: MemorySink) -> Sync:
    return Sync(tmp_path, {"a": sink})
