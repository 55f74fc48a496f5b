from __future__ import annotations

from tests.orchestration.conftest import own

__all__ = ["own"]
