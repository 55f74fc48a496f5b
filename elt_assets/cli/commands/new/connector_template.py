"""The files of a new connector: a source that works, with comments on what to replace."""

from __future__ import annotations

_SOURCE = '''"""The source {name}. `python -m {module} spec|check|discover|read …`; also a Singer tap."""

import sys
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, Field, SecretStr

from connectors.sdk import Source, Stream, Window, run

# For an API over HTTP: `from connectors.sdk.http import Bearer, HttpClient, HttpStream`.


class Config(BaseModel):
    """The config of the source. Its specification is made from these fields."""

    api_key: SecretStr = Field(description="The key of the API; a SecretStr is masked everywhere.")
    start_date: str | None = Field(None, description="The first sync reads from this time on.")


class Items(Stream):
    """A stream. Replace the name, the schema, the keys, and what `records` yields."""

    name = "items"
    primary_key = ("id",)
    replication_key = "updated_at"  # None: the stream can only be read in full
    order = "ascending"  # the records come in the order of the replication key
    json_schema = {{
        "type": "object",
        "properties": {{
            "id": {{"type": "integer"}},
            "name": {{"type": "string"}},
            "updated_at": {{"type": "string", "format": "date-time"}},
        }},
    }}

    def __init__(self, config: Config):
        self.config = config

    def records(self, window: Window) -> Iterable[dict]:
        """Yield the records whose `updated_at` is the start or later; the start is None at first."""
        for number in (1, 2, 3):
            updated_at = f"2026-01-0{{number}}T00:00:00Z"
            if window.start is None or updated_at >= window.start:
                yield {{"id": number, "name": f"item {{number}}", "updated_at": updated_at}}


class {title}Source(Source):
    name = "{name}"
    config_type = Config

    # `check` reads the first record; override it, and raise a ConfigError, to check more.

    def streams(self, config: Config) -> Sequence[Stream]:
        return [Items(config)]


if __name__ == "__main__":
    sys.exit(run({title}Source(), sys.argv[1:]))
'''

_TEST = '''"""The source {name} follows the rules of the Airbyte Protocol: a test for each rule."""

import sys

from connectors.testing import connector_tests

Test{title} = connector_tests([sys.executable, "-m", "{module}"], config={{"api_key": "a-test-key"}})
'''


def source_text(name: str, module: str) -> str:
    """Return the text of the module of a source."""
    return _SOURCE.format(name=name, module=module, title=_title(name))


def test_text(name: str, module: str) -> str:
    """Return the text of its test."""
    return _TEST.format(name=name, module=module, title=_title(name))


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
