"""Records: extraction, filter, transformations and schema normalization, in the order of the CDK."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.declarative.cursors.slices import Slice
from connectors.declarative.manifest import clock
from connectors.declarative.requests.records.normalization import normalizer
from connectors.declarative.requests.records.transformations import flattening, snake_case
from elt_assets.errors import SystemFailure
from tests.connectors.declarative.requests.support import NOON, Reading, together


def selected(reading: Reading, body: Any, selector: str, *more: str, **settings: Any) -> list[Any]:
    reading.answer(body)
    return reading.records(together(f"record_selector: {{{selector}}}", *more), **settings)


def extractor(path: str, more: str = "") -> str:
    return f"extractor: {{type: DpathExtractor, field_path: [{path}]{more}}}"


@pytest.mark.parametrize(
    ("path", "body", "found"),
    [
        ("data", {"data": [{"a": 1}, {"a": 2}]}, [{"a": 1}, {"a": 2}]),
        ("data", {"data": {"a": 1}}, [{"a": 1}]),
        ("data", {"data": {}}, []),
        ("data", {"other": 1}, []),
        ("data, items", {"data": {"items": [{"a": 1}]}}, [{"a": 1}]),
        ('data, "0"', {"data": [{"a": 1}, {"a": 2}]}, [{"a": 1}]),
        ('"{{ config.field }}"', {"x": [{"a": 1}]}, [{"a": 1}]),
        ("", [{"a": 1}, {}, {"a": 2}], [{"a": 1}, {"a": 2}]),
        ("", {"a": 1}, [{"a": 1}]),
        ("", [], []),
        ("", [[{"a": 1}], [{"a": 2}]], [{"a": 1}, {"a": 2}]),
        ("a", [{"a": [{"b": 1}]}, {"a": {"b": 2}}, {}], [{"b": 1}, {"b": 2}]),
        ('data, "*"', {"data": {"x": {"a": 1}, "y": {"a": 2}}}, [{"a": 1}, {"a": 2}]),
        (
            'data, "*", node',
            {"data": [{"node": {"a": 1}}, {"node": {"a": 2}}, {}]},
            [{"a": 1}, {"a": 2}],
        ),
        ('"da*"', {"data": [{"a": 1}]}, [{"a": 1}]),
    ],
)
def test_records_are_found_at_a_path(reading: Reading, path: str, body: Any, found: Any) -> None:
    reading.configure(field="x")
    assert selected(reading, body, extractor(path)) == found


def test_a_path_that_matches_several_values_is_an_error(reading: Reading) -> None:
    reading.answer({"data": 1, "date": 2})
    error = reading.error(f"record_selector: {{{extractor(chr(34) + 'da*' + chr(34))}}}")
    assert isinstance(error, SystemFailure)
    assert "matches several values" in error.message


TWO = {"data": [{"id": 1, "kind": "a"}, {"id": 2, "kind": "b"}]}


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("{{ record.kind == 'a' }}", [1]),
        ("{{ record['id'] > stream_partition.least }}", [2]),
        ("{{ record.missing }}", []),
        ("{{ record.kind }}", [1, 2]),
        ("{{ config.keep }}", [1, 2]),
        ("{{ not config.keep }}", []),
        ("", [1, 2]),
    ],
)
def test_records_for_which_the_condition_holds_are_kept(
    reading: Reading, condition: str, ids: list[int]
) -> None:
    reading.configure(keep="yes")
    reading.answer(TWO)
    written = f'record_selector: {{record_filter: {{condition: "{condition}"}}}}'
    assert [record["id"] for record in reading.records(written, Slice({"least": 1}))] == ids


@pytest.mark.parametrize(
    ("selector", "is_client_side", "ids"),
    [
        ("", False, [1]),
        ("transform_before_filtering: true, ", False, [2]),
        ("", True, [2]),
        ("transform_before_filtering: false, ", True, [1]),
    ],
)
def test_the_filter_precedes_the_transformations_unless_the_manifest_says_otherwise(
    reading: Reading, selector: str, is_client_side: bool, ids: list[int]
) -> None:
    swapped = """
        transformations:
          - type: AddFields
            fields: [{path: [kind], value: "{{ 'b' if record.kind == 'a' else 'a' }}"}]
        """
    found = selected(
        reading,
        TWO,
        f"""{selector}record_filter: {{condition: "{{{{ record.kind == 'a' }}}}"}}""",
        swapped,
        is_client_side=is_client_side,
    )
    assert [record["id"] for record in found] == ids


# --- transformations ------------------------------------------------------------------------------


def transformed(reading: Reading, record: Any, *texts: str, each: Slice | None = None) -> Any:
    reading.answer({"data": [record]})
    (found,) = reading.records(f"transformations: [{', '.join(texts)}]", each)
    return found


def added(path: str, value: str, more: str = "") -> str:
    return f"{{type: AddFields, fields: [{{path: [{path}], value: {value}{more}}}]}}"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("static", "static"),
        ('"{{ config.shop }}"', "acme"),
        ('"{{ stream_partition.store }}/{{ stream_interval.start_time }}"', "7/2024-01-01"),
        ('"{{ record.nested.field }}"', "deep"),
        ("\"{{ record['id'] }}\"", 5),
        ('"{{ record.id * 2 }}"', 10),
        ('"{{ record.price * 0.5 }}"', 0.55),
        ('"{{ record.text }}"', "007"),
        ('"{{ record.digits }}"', "42"),
        ('"{{ record.version }}"', "1.10"),
        ('"{{ record.none }}"', "None"),
        ('"{{ record.quoted }}"', "'x'"),
        ('"{{ record.digits }}{{ record.id }}"', "425"),
        ('"[{{ record.digits }}, {{ record.id }}]"', [42, 5]),
        ('"{% if record.id %}{{ record.digits }}{% endif %}"', "42"),
        ('"{% if record.id %} {{ record.id }} {% else %}x{% endif %}"', 5),
        ('"{% if record.missing %}{{ record.id }}{% else %}0{% endif %}"', 0),
        ('"{% if record.missing %}{{ record.id }}{% else %}1.10{% endif %}"', "1.10"),
        ('"{% set both = [record.digits, record.id] %}{{ both }}"', ["42", 5]),
        ('"{% for i in [1, 2] %}{{ record.digits }}{% endfor %}"', "4242"),
        ("'478'", "478"),
        ('"True"', "True"),
        ("\"'1'\"", "1"),
        ('"[1]"', "[1]"),
        ("478", 478),
        ("true", True),
        ("1.5", 1.5),
        ('"{{ record.nothing }}"', None),
        ('"{{ record.missing }}"', ""),
        ('"{{ record.nested }}"', {"field": "deep"}),
        ('"{{ [1, record.id] }}"', [1, 5]),
        ('"{{ record.id == 5 }}"', True),
        ("\"{{ now_utc().strftime('%Y-%m-%d') }}\"", "2024-05-17"),
    ],
)
def test_a_field_is_added_with_a_native_value(reading: Reading, value: str, found: Any) -> None:
    reading.configure(shop="acme")
    record = {
        "id": 5,
        "price": 1.1,
        "text": "007",
        "digits": "42",
        "version": "1.10",
        "none": "None",
        "quoted": "'x'",
        "nothing": None,
        "nested": {"field": "deep"},
    }
    each = Slice({"store": 7}, {"start_time": "2024-01-01"})
    with clock.frozen(NOON):
        assert transformed(reading, record, added("new", value), each=each)["new"] == found


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("string", '"{{ record.digits }}"', "42"),
        ("string", '"{{ record.id }}"', "5"),
        ("integer", '"{{ record.digits }}"', 42),
        ("number", '"{{ record.id / 2 }}"', 2.5),
        ("number", '"{{ record.id }}"', 5),
        ("boolean", '"{{ record.id == 5 }}"', True),
        ("integer", '"{{ record.word }}"', "x"),
    ],
)
def test_a_field_may_have_a_type(reading: Reading, kind: str, value: str, found: Any) -> None:
    record = {"id": 5, "digits": "42", "word": "x"}
    assert (
        transformed(reading, record, added("new", value, f", value_type: {kind}"))["new"] == found
    )


def test_fields_are_added_one_after_another_at_any_depth(reading: Reading) -> None:
    texts = [
        added("a, b", "1"),
        added('list, "2"', "x"),
        added("c", '"{{ record.a.b + 1 }}"'),
        added("gone, b", "2"),
    ]
    assert transformed(reading, {"id": 5, "gone": None}, *texts) == {
        "id": 5,
        "a": {"b": 1},
        "list": [None, None, "x"],
        "c": 2,
        "gone": {"b": 2},
    }


def test_a_value_that_is_the_same_for_all_records_is_not_shared_between_them(
    reading: Reading,
) -> None:
    reading.configure(tags=[1])
    reading.answer({"data": [{"id": 1}, {"id": 2}]})
    found = reading.records(
        f"transformations: [{added('tags', chr(34) + '{{ config.tags }}' + chr(34))}]"
    )
    assert [record["tags"] for record in found] == [[1], [1]]
    assert found[0]["tags"] is not found[1]["tags"]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("{{ record.id == 5 }}", {"id": 5, "new": "x"}),
        ("{{ record.id == 6 }}", {"id": 5}),
        ("{{ value == 'x' }}", {"id": 5, "new": "x"}),
        ("{{ path[0] == 'old' }}", {"id": 5}),
    ],
)
def test_a_field_is_added_if_a_condition_holds(
    reading: Reading, condition: str, found: Any
) -> None:
    text = f'{{type: AddFields, fields: [{{path: [new], value: x}}], condition: "{condition}"}}'
    assert transformed(reading, {"id": 5}, text) == found


@pytest.mark.parametrize(
    "value", ["{{ record.price * 2 }}", "{{ record.price + 'x' }}", "{{ config.none + 1 }}"]
)
def test_a_field_is_null_where_a_record_has_a_value_of_the_wrong_type(
    reading: Reading, value: str
) -> None:
    reading.configure(none=None)
    reading.answer({"data": [{"id": 1, "price": None}, {"id": 2, "price": None}]})
    found = reading.records(f"transformations: [{added('new', chr(34) + value + chr(34))}]")
    assert [(record["id"], record["new"]) for record in found] == [(1, None), (2, None)]


def test_a_field_within_a_plain_value_is_a_clear_error(reading: Reading) -> None:
    reading.answer({"data": [{"id": 5}]})
    error = reading.error(f"transformations: [{added('id, new', 'x')}]")
    assert "the field 'id.new' cannot be added" in error.message
    assert "transformations[0].fields[0].path" in str(error.guidance)
    error = reading.error(
        f"transformations: [{added('new', chr(34) + '{{ record.a.b.c }}' + chr(34))}]"
    )
    assert "cannot be evaluated" in error.message


@pytest.mark.parametrize(
    ("texts", "record", "found"),
    [
        (
            ["{type: RemoveFields, field_pointers: [[a], [b, c], [x, y]]}"],
            {"a": 1, "b": {"c": 2, "d": 3}},
            {"b": {"d": 3}},
        ),
        (
            ['{type: RemoveFields, field_pointers: [["*_at"], [l, "*", a]]}'],
            {"x_at": 1, "l": [{"a": 1, "b": 2}]},
            {"l": [{"b": 2}]},
        ),
        (
            [
                '{type: RemoveFields, field_pointers: [["**"]], condition: "{{ property|string == \'\' }}"}'
            ],
            {"a": "", "b": {"c": "", "d": None}, "e": 0},
            {"b": {"d": None}, "e": 0},
        ),
        (["{type: KeysToLower}"], {"A": {"B": 1}, "cD": 2}, {"a": {"B": 1}, "cd": 2}),
        (
            ["{type: KeysToSnakeCase}"],
            {"OrderID": {"LineItems": [{"A B": 1}]}},
            {"order_id": {"line_items": [{"A B": 1}]}},
        ),
        (['{type: KeysReplace, old: " ", new: "_"}'], {"a b": {"c d": 1}}, {"a_b": {"c_d": 1}}),
        (
            ['{type: KeysReplace, old: "{{ record.x }}", new: "{{ config.url[:4] }}"}'],
            {"x": "x"},
            {"http": "x"},
        ),
        (
            ["{type: FlattenFields}"],
            {"a": {"b": 1, "a": 2}, "c": [{"d": 3}, {"d": 4}]},
            {"c.1.d": 4, "c.0.d": 3, "a.a": 2, "a.b": 1},
        ),
        (["{type: KeysToLower}"], {"A": 1, "a": 1, "B": None, "b": 2}, {"a": 1, "b": 2}),
        (["{type: FlattenFields}"], {"id": 1, "a": {"id": 2}}, {"id": 1, "a.id": 2}),
        (
            ["{type: FlattenFields}"],
            {"a": {"id": 1, "b": {"id": 2}}},
            {"id": 2, "a.id": 1},
        ),
        (
            ["{type: FlattenFields, flatten_lists: false}"],
            {"a": {"b": 1}, "c": [1, {"d": 2}]},
            {"b": 1, "c": [1, {"d": 2}]},
        ),
        (
            ["{type: DpathFlattenFields, field_path: [a]}"],
            {"a": {"b": 1}, "c": 2},
            {"a": {"b": 1}, "c": 2, "b": 1},
        ),
        (
            ["{type: DpathFlattenFields, field_path: [a], delete_origin_value: true}"],
            {"a": {"b": 1}, "c": 2},
            {"c": 2, "b": 1},
        ),
        (
            ["{type: DpathFlattenFields, field_path: [a], delete_origin_value: true}"],
            {"a": {"c": 1}, "c": 2},
            {"a": {"c": 1}, "c": 2},
        ),
        (
            ["{type: DpathFlattenFields, field_path: [a], replace_record: true}"],
            {"a": {"b": 1}, "c": 2},
            {"b": 1},
        ),
        (
            ['{type: DpathFlattenFields, field_path: [l, "*", a]}'],
            {"l": [{"a": {"b": 1}}]},
            {"l": [{"a": {"b": 1}}], "b": 1},
        ),
        (["{type: DpathFlattenFields, field_path: [c]}"], {"c": 2}, {"c": 2}),
        (
            [
                (
                    "{type: DpathFlattenFields, field_path: [a], replace_record: true, key_transformation: "
                    "{type: KeyTransformation, prefix: p_, suffix: _s}}"
                )
            ],
            {"a": {"b": 1}},
            {"p_b_s": 1},
        ),
        (
            [
                added("b", '"{{ record.a }}"'),
                "{type: RemoveFields, field_pointers: [[a]]}",
                "{type: KeysReplace, old: b, new: c}",
            ],
            {"a": 1},
            {"c": 1},
        ),
    ],
)
def test_records_are_transformed(
    reading: Reading, texts: list[str], record: Any, found: Any
) -> None:
    assert transformed(reading, record, *texts) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("OrderID", "order_id"),
        ("orderId", "order_id"),
        ("order id", "order_id"),
        ("_id", "_id"),
        ("id_", "id_"),
        ("a__b", "a_b"),
        ("ID2Name", "id_2_name"),
        ("2nd", "_2_nd"),
        ("Größe", "grosse"),
        ("Prénom", "prenom"),
        ("HTTPServer", "httpserver"),
        ("a-b.c", "a_b_c"),
        ("", ""),
        ("名前", "名前"),
    ],
)
def test_names_in_snake_case(name: str, found: str) -> None:
    assert snake_case(name) == found


@given(st.text(max_size=20))
def test_snake_case_has_no_capitals_and_is_the_same_when_it_is_repeated(name: str) -> None:
    found = snake_case(name)
    assert not any("A" <= each <= "Z" for each in found)
    assert snake_case(found) == found


@given(
    st.recursive(
        st.integers() | st.none(),
        lambda inner: (
            st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, min_size=1, max_size=3)
            | st.lists(inner, min_size=1, max_size=3)
        ),
        max_leaves=10,
    ).filter(lambda value: isinstance(value, dict))
)
def test_flattened_records_have_only_plain_values(record: Any) -> None:
    found = flattening(flatten_lists=True)(record)
    assert not any(isinstance(value, dict | list) for value in found.values())
    assert sorted(map(str, found.values())) == sorted(map(str, _plain_values(record)))


def _plain_values(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [plain for part in inner for plain in _plain_values(part)]
    return [value]


@pytest.mark.parametrize(
    ("step", "record", "names"),
    [
        ("type: KeysToLower", {"ID": 1, "id": 2}, "'ID' and 'id'"),
        (
            "type: KeysToSnakeCase",
            {"x": {"orderId": 1, "order_id": "1"}},
            "'orderId' and 'order_id'",
        ),
        ("type: KeysReplace, old: ' ', new: _", {"a b": 0, "a_b": False}, "'a b' and 'a_b'"),
    ],
)
def test_fields_that_would_get_one_name_are_an_error(
    reading: Reading, step: str, record: Any, names: str
) -> None:
    reading.answer({"data": [record]})
    error = reading.error(f"transformations: [{{{step}}}]")
    assert names in str(error) and "transformations[0]" in str(error)
    # What the error says to do: copy one under another name, and remove it.
    first = names.split("'")[1]
    path = ["x", first] if "x" in record else [first]
    copied = "{{ " + "".join(f"[{name!r}]" for name in path).join(("record", "")) + " }}"
    before = [
        f"{{type: AddFields, fields: [{{path: [other], value: {json.dumps(copied)}}}]}}",
        f"{{type: RemoveFields, field_pointers: [{json.dumps(path)}]}}",
    ]
    changed = transformed(reading, record, *before, f"{{{step}}}")
    inner = record.get("x", record)
    assert changed["other"] == inner[first]


# --- schema normalization -------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": ["null", "string"]},
        "number": {"type": "number"},
        "whole": {"type": ["integer", "null"]},
        "flag": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": ["string", "null"]}},
        "texts": {"type": "array", "items": {"type": "string"}},
        "either": {"type": ["string", "integer"]},
        "inner": {"type": "object", "properties": {"whole": {"type": "integer"}}},
        "tree": {"$ref": "#/definitions/tree"},
    },
    "definitions": {
        "tree": {
            "type": "object",
            "properties": {"n": {"type": "string"}, "next": {"$ref": "#/definitions/tree"}},
        }
    },
}


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ({"text": 5}, {"text": "5"}),
        ({"text": True}, {"text": "True"}),
        ({"text": 1.5}, {"text": "1.5"}),
        ({"text": Decimal("0.12345678901234567890")}, {"text": "0.12345678901234567890"}),
        ({"text": {"a": [1]}}, {"text": '{"a":[1]}'}),
        ({"text": None}, {"text": None}),
        ({"number": "1.50"}, {"number": 1.5}),
        ({"number": "0.12345678901234567890"}, {"number": Decimal("0.12345678901234567890")}),
        ({"number": "many"}, {"number": "many"}),
        ({"number": "nan"}, {"number": "nan"}),
        ({"number": 5}, {"number": 5}),
        ({"number": True}, {"number": 1.0}),
        ({"number": None}, {"number": None}),
        ({"whole": "5"}, {"whole": 5}),
        ({"whole": 5.7}, {"whole": 5}),
        ({"whole": "5.0"}, {"whole": "5.0"}),
        ({"whole": {}}, {"whole": {}}),
        ({"flag": "Yes"}, {"flag": True}),
        ({"flag": "0"}, {"flag": False}),
        ({"flag": "maybe"}, {"flag": "maybe"}),
        ({"flag": 1}, {"flag": True}),
        ({"list": 5}, {"list": ["5"]}),
        ({"list": [5, None]}, {"list": ["5", None]}),
        ({"texts": 5}, {"texts": 5}),
        ({"texts": [5]}, {"texts": ["5"]}),
        ({"either": 5}, {"either": 5}),
        ({"inner": {"whole": "7", "other": "8"}}, {"inner": {"whole": 7, "other": "8"}}),
        ({"inner": "x"}, {"inner": "x"}),
        (
            {"tree": {"n": 1, "next": {"n": 2, "next": {"n": 3}}}},
            {"tree": {"n": "1", "next": {"n": "2", "next": {"n": "3"}}}},
        ),
        ({"unknown": "5"}, {"unknown": "5"}),
    ],
)
def test_values_are_cast_to_the_types_of_the_schema(record: Any, found: Any) -> None:
    assert normalizer(SCHEMA)(record) == found


def test_records_are_normalized_after_the_transformations_if_the_manifest_says_so(
    reading: Reading,
) -> None:
    body = {"data": [{"whole": "5"}]}
    texts = f"transformations: [{added('text', chr(34) + '{{ record.whole }}' + chr(34))}]"
    found = selected(reading, body, "schema_normalization: Default", texts, schema=lambda: SCHEMA)
    assert found == [{"whole": 5, "text": "5"}]
    assert selected(reading, body, "schema_normalization: None", schema=lambda: SCHEMA) == [
        {"whole": "5"}
    ]
