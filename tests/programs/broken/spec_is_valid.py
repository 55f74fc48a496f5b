"""A source whose specification is not a valid JSON schema."""

from __future__ import annotations

from typing import ClassVar

from tests.programs.broken.base import Json, Source, main


class Broken(Source):
    specification: ClassVar[Json] = {
        **Source.specification,
        "properties": {**Source.specification["properties"], "note": {"type": "text"}},
    }


if __name__ == "__main__":
    main(Broken())
