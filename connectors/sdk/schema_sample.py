"""Check of the first records of a stream against its JSON schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from jsonschema import ValidationError

from connectors.sdk.encoding import encode
from connectors.sdk.items import Record
from elt_assets.protocol.config_check import make_validator


class SchemaSample:
    """Finds the fields of records that do not fit the declared schema; null fits every type."""

    limit = 100
    """Number of records that are checked: to check each one would take most of the time of a read."""

    def __init__(self, schema: Mapping[str, Any]):
        self._validator = make_validator(schema)
        self._reported: set[str] = set()
        self.remaining = self.limit

    def check(self, record: Record) -> Iterator[str]:
        """Yield a line for each field that does not fit, unless it was reported before."""
        self.remaining -= 1
        try:
            decoded = msgspec.json.decode(encode(record))
            errors = list(self._validator.iter_errors(decoded))
        except (msgspec.DecodeError, RecursionError):
            return  # a number is too large for Python's floats, or the record is nested too deeply
        for error in errors:
            line = _violation(error)
            if error.instance is not None and line not in self._reported:
                self._reported.add(line)
                yield line


def _violation(error: ValidationError) -> str:
    path = ".".join("[]" if isinstance(step, int) else step for step in error.absolute_path)
    if error.validator == "required":
        return f"{path or 'record'}: {error.message}"  # names a field, no value
    rule = msgspec.json.encode(error.validator_value, order="sorted").decode()
    return f"{path or 'record'}: violates `{error.validator}: {rule[:200]}`"
