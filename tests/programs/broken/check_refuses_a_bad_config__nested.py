"""A source whose specification requires an inner field that its check ignores."""

from __future__ import annotations

from typing import ClassVar

from tests.programs.broken.base import CONFIG, Json, Source, main


class Broken(Source):
    specification: ClassVar[Json] = {
        "type": "object",
        "required": ["token", "login"],
        "properties": {
            **Source.specification["properties"],
            "login": {
                "type": "object",
                "required": ["user"],
                "properties": {"user": {"type": "string"}},
            },
        },
    }
    config_: ClassVar[Json] = {**CONFIG, "login": {"user": "elt"}}

    def is_valid(self) -> bool:
        return super().is_valid() and isinstance(self.config.get("login"), dict)


if __name__ == "__main__":
    main(Broken())
