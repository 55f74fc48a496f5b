"""The choices of a stream's setting `on_schema_change`."""

from __future__ import annotations

from typing import Literal

OnSchemaChange = Literal["evolve", "freeze", "fail"]
"""The reaction to a changed schema: the table follows it, the table keeps its columns, or the sync fails."""
