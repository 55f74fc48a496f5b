"""What a stream may say of a schema that has changed."""

from __future__ import annotations

from typing import Literal

OnSchemaChange = Literal["evolve", "freeze", "fail"]
"""Whether the table follows, keeps its columns, or the sync fails (`on_schema_change`)."""
