from __future__ import annotations

import pytest

from tests.cli.running import Elt
from tests.orchestration.conftest import own

__all__ = ["elt", "own"]


@pytest.fixture
def elt(capsys: pytest.CaptureFixture[str]) -> Elt:
    return Elt(capsys)
