"""Extraction: the records in the values of a response.

Spec: DpathExtractor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.declarative.manifest import components
from connectors.declarative.requests.failures.policy import may_lack_records
from connectors.declarative.requests.records import paths
from connectors.sdk.http import Response
from connectors.sdk.http.body import kind
from connectors.sdk.http.failures import excerpt, place
from elt_assets.errors import SystemFailure

_ERRORS = ("error", "errors")
"""Fields whose presence says that a body explains an error."""


class Extractor:
    """Finds the records at a path of the values of a response.

    Args:
        component: the component.
        config: the config of the source.

    Attributes:
        place: the place of the path in the manifest, for errors.
    """

    def __init__(self, component: components.DpathExtractor, config: Mapping[str, Any]):
        self._path = tuple(part.text_of({"config": config}) for part in component.field_path)
        self._is_plain = not any(map(paths.is_glob, self._path))
        self.place = f"{component.place}.field_path"

    def values(self, values: list[Any], response: Response) -> list[Any]:
        """Return what is found in some values of a response, whether or not it is an object.

        Raises:
            SystemFailure: the response explains an error in its place.
        """
        records = self._find(values)
        if records is not None:
            return records
        is_error = any(isinstance(body, dict) and any(map(body.get, _ERRORS)) for body in values)
        if is_error and not may_lack_records(response):
            raise SystemFailure(
                f"{place(response.request)} answered with an error in place of records "
                f"({response.status_code}): {excerpt(response)}",
                guidance="see what the API says; if it means that there are no records, add an "
                "HttpResponseFilter with the action IGNORE to the manifest",
            )
        return []

    def records(self, values: list[Any], response: Response) -> list[Any]:
        """Return the records in some values of a response.

        Raises:
            SystemFailure: a record is not an object, or the response explains an error in their place.
        """
        records = self.values(values, response)
        for record in records:
            if type(record) is not dict:
                raise SystemFailure(
                    f"a record of {place(response.request)} is not an object but {kind(record)}",
                    guidance=f"correct {self.place}",
                )
        return records

    def _find(self, values: list[Any]) -> list[Any] | None:
        """Return the records in some values of a response; None if the place of the records is missing."""
        if len(values) == 1 and self._is_plain and type(values[0]) is dict:
            return self._find_in_object(values[0])
        if not self._path and not any(type(value) is list for value in values):
            return [value for value in values if value]
        return [record for value in values for record in self._of(value)]

    def _find_in_object(self, body: dict[str, Any]) -> list[Any] | None:
        """Return the records in a JSON object, which is what most responses are."""
        content = paths.value_at_names(body, self._path)
        if type(content) is list:
            return list(content)
        if content is paths.MISSING or content is None:
            return None
        return [content] if content else []

    def _of(self, value: Any) -> list[Any]:
        if not self._path:
            values = value
        elif paths.ANY in self._path:
            values = paths.values_at(value, self._path)
        else:
            values = self._single(value)
        if isinstance(values, list):
            return values
        return [values] if values else []

    def _single(self, value: Any) -> Any:
        try:
            return paths.value_at(value, self._path)
        except paths.AmbiguousPath:
            raise SystemFailure(
                f"the path {'.'.join(self._path)!r} of the records matches several values",
                guidance=f"correct {self.place}; the part '*' alone may match several",
            ) from None
