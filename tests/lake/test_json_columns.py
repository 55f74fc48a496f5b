"""Columns of JSON texts get the same texts as each value alone, whatever their objects look like."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elt_assets.lake.worker import values as number_values
from elt_assets.lake.worker.json_texts import JsonColumn, JsonTexts
from elt_assets.lake.worker.kinds import DECODING_ERRORS
from elt_assets.lake.worker.values import shortest_text

NUMBERS = [
    "1.0",
    "1e2",
    "-0",
    "-0.0",
    "0.000001",
    "0.0000001",
    "1E400",
    "12345678901234567890123",
    "1.50",
]
numbers_as_written = st.sampled_from(NUMBERS) | st.floats(
    allow_nan=False, allow_infinity=False
).map(repr)
names = st.sampled_from(
    ["a", "b", "B", "", "é", 'a"', "\n", "\U0001f600", "\uffff", "aa"]
) | st.text(st.characters(codec="utf-8"), max_size=3)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=6,
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A value as some source writes it."""
    value = draw(values | st.dictionaries(st.sampled_from("abc"), st.integers(), max_size=3))
    text = json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        separators=draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,\t", " : ")])),
        indent=draw(st.sampled_from([None, None, 1])),
    )
    if isinstance(value, dict) and value and draw(st.booleans()):
        name = json.dumps(draw(st.sampled_from(list(value))))
        text = f"{text[:-1]}, {name}: {draw(numbers_as_written)}}}"  # the name is there twice
    return draw(st.sampled_from([text, text, f" {text}", f"{text}\n"]))


def normalize_alone(text: str | None) -> str | None:
    if text is None:
        return None
    normal = JsonTexts().normalize([text.encode()])[0]
    return None if normal == "null" else normal


@example([['{"a": 1}'], ['{"a": 1, "b": 2}', None, "[]"], ['{"b": 1}', "null"]], 1)
@given(st.lists(st.lists(st.none() | texts(), max_size=5), max_size=6), st.integers(0, 2))
def test_a_column_has_the_texts_of_its_values(
    batches: Sequence[Sequence[str | None]], skipped: int
) -> None:
    column = JsonColumn()
    for batch in batches:
        part = pa.array(batch, pa.string())[skipped:]
        expected = [normalize_alone(text) for text in batch[skipped:]]
        assert column.normalize(part).to_pylist() == expected


@example(["[1", "2]", "[3],[4]"])
@example(['{"a":[{}', "{}]}", "{},{}"])
@example(["1 2"])
@given(st.lists(st.sampled_from(["[1", "2]", "1,2", "[1]", "", " ", '"a', 'b"', "{}", "x"])))
def test_a_text_that_is_not_one_value_is_an_error(batch: Sequence[str]) -> None:
    """Such texts together may be as many values as there are texts."""
    try:
        expected = [json.loads(text) for text in batch]
    except ValueError:
        with pytest.raises(DECODING_ERRORS):
            JsonColumn().normalize(pa.array(batch, pa.string()))
        return
    made = JsonColumn().normalize(pa.array(batch, pa.string()))
    assert [json.loads(text) for text in made.to_pylist()] == expected


def test_the_type_of_objects_is_learned_again_when_they_change() -> None:
    column = JsonColumn()
    for name in "abcdefgh":
        batch = pa.array([json.dumps({name: {"z": 1, "y": 2}})] * 3)
        assert column.normalize(batch).to_pylist() == [f'{{"{name}":{{"y":2,"z":1}}}}'] * 3


@given(numbers_as_written | st.from_regex(r"-?(0|[1-9][0-9]{0,45})\.[0-9]{1,12}", fullmatch=True))
def test_a_number_with_a_point_has_the_text_of_its_decimal(text: str) -> None:
    made = shortest_text(text)
    assert Decimal(made) == Decimal(text)
    exact: Any = Decimal(text).normalize(number_values._ALL_DIGITS)
    if "." in text:
        plain = exact.adjusted() in number_values._PLAIN
        assert made == ("0" if not exact else f"{exact:f}" if plain else f"{exact:e}")
