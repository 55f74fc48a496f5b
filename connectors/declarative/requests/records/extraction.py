"""Extraction: the records in the values of a response.

Spec: DpathExtractor, RecordExpander.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from connectors.declarative.manifest import components
from connectors.declarative.requests.failures.policy import may_lack_records
from connectors.declarative.requests.records import paths
from connectors.sdk.http import Response
from connectors.sdk.http.body import kind
from connectors.sdk.http.failures import excerpt, place
from connectors.sdk.items import Record
from elt_assets.errors import ConfigError, SystemFailure

Expand = Callable[[Any], Iterator[Any]]
"""Yields the records that one record becomes."""

_ERRORS = ("error", "errors")
"""Fields whose presence says that a body explains an error."""


class Extractor:
    """Finds the records at a path.

    Args:
        component: a DpathExtractor.
        config: the config of the source.

    Raises:
        ConfigError: the component is not an extractor that is supported.
    """

    def __init__(self, component: Any, config: Mapping[str, Any]):
        if not isinstance(component, components.DpathExtractor):
            raise ConfigError(
                f"{getattr(component, 'place', 'the extractor')}: {type(component).__name__} is not "
                "supported here",
                guidance="use DpathExtractor",
            )
        variables = {"config": config}
        self._path = tuple(str(part.evaluate(variables)) for part in component.field_path)
        self._is_plain = not any(map(paths.is_glob, self._path))
        self._place = component.place
        self._expand: Expand | None = None
        if component.record_expander is not None:
            self._expand = _expander(component.record_expander, variables)

    def records(self, values: list[Any], response: Response) -> list[Record]:
        """Return the records in some values of a response.

        Raises:
            SystemFailure: a record is not an object, or the response explains an error in their place.
        """
        return objects(self.values(values, response), response, f"{self._place}.field_path")

    def values(self, values: list[Any], response: Response) -> list[Any]:
        """Return what is at the path in some values of a response, whether or not it is an object.

        Raises:
            SystemFailure: the response explains an error in its place.
        """
        if len(values) == 1 and self._is_plain and type(values[0]) is dict:
            found = self._of_object(values[0], response)
        elif not self._path and not any(type(each) is list for each in values):
            found = [each for each in values if each]
        else:
            found = [record for value in values for record in self._of(value)]
        if self._expand is not None:
            found = [record for each in found for record in self._expand(each)]
        return found

    def _of_object(self, body: dict[str, Any], response: Response) -> list[Any]:
        """Return the records in a JSON object, which is what most responses are."""
        found = paths.value_at_names(body, self._path)
        if type(found) is list:
            return list(found)
        if found is paths.MISSING or found is None:
            if any(body.get(name) for name in _ERRORS) and not may_lack_records(response):
                raise SystemFailure(
                    f"{place(response.request)} answered with an error in place of records "
                    f"({response.status_code}): {excerpt(response)}",
                    guidance="see what the API says; if it means that there are no records, add an "
                    "HttpResponseFilter with the action IGNORE to the manifest",
                )
            return []
        return [found] if found else []

    def _of(self, value: Any) -> list[Any]:
        if not self._path:
            found = value
        elif paths.ANY in self._path:
            found = paths.values_at(value, self._path)
        else:
            found = self._single(value)
        if isinstance(found, list):
            return found
        return [found] if found else []

    def _single(self, value: Any) -> Any:
        try:
            return paths.value_at(value, self._path)
        except paths.AmbiguousPath:
            raise SystemFailure(
                f"the path {'.'.join(self._path)!r} of the records matches several values",
                guidance=f"correct {self._place}.field_path; the part '*' alone may match several",
            ) from None


def objects(found: list[Any], response: Response, at: str) -> list[Record]:
    """Return records, after a check that they are objects.

    Args:
        found: the records.
        response: the response that has them.
        at: the place in the manifest that finds them, for the error.

    Raises:
        SystemFailure: a record is not an object.
    """
    if not all(type(each) is dict for each in found):
        wrong = next(each for each in found if type(each) is not dict)
        raise SystemFailure(
            f"a record of {place(response.request)} is not an object but {kind(wrong)}",
            guidance=f"correct {at}",
        )
    return found


def _expander(component: components.RecordExpander, variables: Mapping[str, Any]) -> Expand:
    """Return the function that makes records of the elements of a list in a record."""
    path = tuple(str(part.evaluate(variables)) for part in component.expand_records_from_field)
    keeps = component.remain_original_record

    def expand(record: Any) -> Iterator[Any]:
        if not isinstance(record, dict) or not path:
            yield record
            return
        lists = [each for each in paths.values_at(record, path) if isinstance(each, list)]
        elements = [element for each in lists for element in each]
        for element in elements:
            yield _with_original(element, record) if keeps else element
        if not elements and component.on_no_records == "emit_parent":
            yield record

    return expand


def _with_original(element: Any, record: Record) -> Record:
    fields = element if isinstance(element, dict) else {"value": element}
    return {**fields, "original_record": deepcopy(record)}
