"""Extraction: elements of lists with fields of their record, retrieved lists, combined extractors."""

from __future__ import annotations

from typing import Any

import pytest

from elt_assets.errors import ConfigError, SystemFailure
from tests.connectors.declarative.requests.support import Reading, together
from tests.connectors.declarative.requests.test_records import extractor, selected
from tests.programs.recording_api import in_turn, routes

PARENT = {"id": 1, "meta": {"url": "u"}, "lines": {"data": [{"id": 7}, "x"], "more": False}}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            "parent_fields: [{parent_path: [meta, url], record_path: [from, url]}]",
            [{"id": 7, "from": {"url": "u"}}, {"value": "x", "from": {"url": "u"}}],
        ),
        (
            "parent_fields: [{parent_path: [none], record_path: [none]}]",
            [{"id": 7, "none": None}, {"value": "x", "none": None}],
        ),
        (
            "merge_parent: true",
            [
                {"id": 7, "meta": {"url": "u"}, "lines": {"more": False}},
                {"id": 1, "meta": {"url": "u"}, "lines": {"more": False}, "value": "x"},
            ],
        ),
    ],
)
def test_the_elements_of_a_list_get_fields_of_their_record(
    reading: Reading, more: str, expected: Any
) -> None:
    expander = f", record_expander: {{expand_records_from_field: [lines, data], {more}}}"
    assert selected(reading, {"data": [PARENT]}, extractor("data", expander)) == expected


def test_a_field_of_the_record_cannot_go_into_a_text(reading: Reading) -> None:
    copies = "parent_fields: [{parent_path: [id], record_path: [id, of]}]"
    expander = f", record_expander: {{expand_records_from_field: [lines, data], {copies}}}"
    reading.answer({"data": [PARENT]})
    error = reading.error(f"record_selector: {{{extractor('data', expander)}}}")
    assert isinstance(error, ConfigError) and "parent_fields[0].record_path" in error.message


PARTIAL = """, record_expander: {
    expand_records_from_field: [lines, data],
    truncation_indicator_path: [lines, more],
    truncated_list_retriever: {
        type: SimpleRetriever,
        requester: {
            type: HttpRequester,
            url_base: "{{ config['url'] }}",
            path: "lines/{{ stream_slice['parent_record']['id'] }}"},
        record_selector: {extractor: {field_path: [all]}}}}"""


def test_a_list_that_a_record_has_in_part_is_retrieved(reading: Reading) -> None:
    whole = {"id": 1, "lines": {"data": [{"x": 1}], "more": False}}
    part = {"id": 2, "lines": {"data": [{"x": 2}], "more": True, "total_count": 2}}
    reading.answer(
        routes(
            {
                "/orders": {"data": [whole, part]},
                "/lines/2": ({"all": [{"x": 2}, {"x": 3}]}, {"all": [{"x": 2}]}),
            }
        )
    )
    selector = f"record_selector: {{{extractor('data', PARTIAL)}}}"
    assert reading.records(selector) == [{"x": 1}, {"x": 2}, {"x": 3}]
    error = reading.error(selector)
    assert isinstance(error, SystemFailure) and "has 1 records, and" in error.message


def test_a_list_in_part_needs_a_retriever(reading: Reading) -> None:
    expander = ", record_expander: {expand_records_from_field: [a], truncation_indicator_path: [b]}"
    error = reading.error(f"record_selector: {{{extractor('data', expander)}}}")
    assert isinstance(error, ConfigError) and "truncated_list_retriever" in str(error)


def combine(more: str = "", *paths: str) -> str:
    parts = ", ".join(
        f"{{type: DpathExtractor, field_path: [{path}]}}" for path in paths or ("a", "b")
    )
    return f"extractor: {{type: CombinedExtractor, extractors: [{parts}]{more}}}"


@pytest.mark.parametrize(
    ("more", "body", "expected"),
    [
        ("", {"a": [{"x": 1}], "b": [{"x": 2}]}, [{"x": 1}, {"x": 2}]),
        ("", {"b": [{"x": 2}]}, [{"x": 2}]),
        (", mode: first_match", {"a": [{"x": 1}], "b": [{"x": 2}]}, [{"x": 1}]),
        (", mode: first_match", {"a": [], "b": [{"x": 2}]}, [{"x": 2}]),
        (", mode: first_match", {"errors": ["partly"], "b": [{"x": 2}]}, [{"x": 2}]),
        (", skip_empty_records: true", {"a": [None, {"x": 1}], "b": [{}]}, [{"x": 1}]),
        (
            ", mode: first_match, skip_empty_records: true",
            {"a": [None], "b": [{"x": 2}, None]},
            [{"x": 2}],
        ),
    ],
)
def test_the_records_of_several_extractors_are_combined(
    reading: Reading, more: str, body: Any, expected: Any
) -> None:
    assert selected(reading, body, combine(more)) == expected


def test_an_error_in_place_of_the_records_of_all_extractors_is_an_error(reading: Reading) -> None:
    reading.answer({"errors": ["all"]})
    error = reading.error(f"record_selector: {{{combine()}}}")
    assert isinstance(error, SystemFailure) and "an error in place of records" in error.message


def test_records_that_are_left_out_count_for_the_size_of_the_page(reading: Reading) -> None:
    reading.answer(in_turn({"a": [None, {"x": 1}]}, {"a": [{"x": 2}]}))
    paginator = """
        paginator:
          type: DefaultPaginator
          page_token_option: {type: RequestOption, inject_into: request_parameter, field_name: offset}
          pagination_strategy: {type: OffsetIncrement, page_size: 2}
        """
    more = ", mode: first_match, skip_empty_records: true"
    selector = f"record_selector: {{{combine(more)}}}"
    assert reading.records(together(selector, paginator)) == [{"x": 1}, {"x": 2}]
    assert [request.params.get("offset") for request in reading.api.requests] == [None, "2"]
    error = reading.error(together(f"record_selector: {{{combine()}}}", paginator))
    assert isinstance(error, ConfigError) and "cannot count the records of a union" in error.message
