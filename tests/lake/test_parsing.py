"""The parse of any bytes: one record gives one row or one dead letter, whatever stands beside it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elt_assets.lake.worker import lines as line_tasks
from elt_assets.protocol.messages import Form
from tests.lake.conforming import Conformer, Row
from tests.lake.lines import airbyte, segment, singer
from tests.lake.test_conform_any import FIELDS, ODD_NAMES, schemas

DIGITS = st.text("0123456789", min_size=1, max_size=40)
NUMBERS = st.one_of(
    st.sampled_from(["0", "-0", "-0.0", "5.0", "1e3", "1E-400", "1e400", "0.1", "1" * 700]),
    st.builds(
        lambda sign, whole, fraction, exponent: (
            sign + (whole.lstrip("0") or "0") + fraction + exponent
        ),
        st.sampled_from(["", "-"]),
        DIGITS,
        st.just("") | DIGITS.map(lambda digits: f".{digits}"),
        st.just("")
        | st.builds("{}{}".format, st.sampled_from(["e", "E+", "e-"]), st.integers(0, 330)),
    ),
).map(str.encode)
PIECES = st.sampled_from(
    [
        *rb"a 7 1.5 NaN \u00e9 \" \\ \n \/ \ud83d\ude00 \ud83d \ude00 aGk= true {}".split(),
        *b"2024-02-29 T10:30:00Z +01:00 20240115T1030".split(),
        *("ü\u2028\ufdd0".encode(), b" 10:30"),
        *(b"\xff", b"\xed\xa0\xbd", b"\xc0\x80", b"\x01", b"\t"),
    ]
)
TEXTS = st.lists(PIECES, max_size=3).map(lambda pieces: b'"%b"' % b"".join(pieces))
NAMES = st.sampled_from([*ODD_NAMES, "b"]).map(lambda name: json.dumps(name).encode())
SPACES = st.sampled_from([b"", b"", b" "])
SCALARS = st.sampled_from([b"null", b"true", b"false"]) | NUMBERS | TEXTS


def compound(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    fields = st.builds(
        lambda name, space, value: b"%b:%b%b" % (name, space, value), NAMES, SPACES, inner
    )
    return st.lists(inner, max_size=3).map(lambda items: b"[%b]" % b", ".join(items)) | st.lists(
        fields, max_size=3
    ).map(lambda each: b"{%b}" % b",".join(each))


VALUES = st.recursive(SCALARS, compound, max_leaves=4)
FIELD = st.builds(
    lambda number, value: b'"f%d":%b' % (number, value), st.integers(0, FIELDS), VALUES
)
RECORDS = st.lists(FIELD, max_size=6).map(lambda fields: b"{%b}" % b",".join(fields))
SCHEMAS = st.lists(schemas, min_size=FIELDS, max_size=FIELDS)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(SCHEMAS, st.lists(RECORDS, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_a_row_does_not_depend_on_its_neighbours(
    conformer: Conformer, schemas_: list[Any], records: list[bytes], chance: random.Random
) -> None:
    properties = {f"f{number}": schema for number, schema in enumerate(schemas_)}
    alone = [parsed(conformer, properties, [record]) for record in records]
    assert all(len(rows) + len(dead) == 1 for rows, dead in alone)
    clean = [b'{"f0":null}'] * 40
    order = [*records, *records, *clean]
    chance.shuffle(order)
    for form in (Form.AIRBYTE, Form.SINGER, Form.ROWS):
        rows, dead = parsed(conformer, properties, order, form)
        expected = dict(zip(records, alone, strict=True))
        expected[clean[0]] = parsed(conformer, properties, clean[:1])
        assert rows == [row for record in order for row in expected[record][0]], form
        assert dead == [row for record in order for row in expected[record][1]], form


@pytest.fixture(params=[line_tasks.BLOCK, 300], autouse=True)
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of many lines, and of few."""
    monkeypatch.setattr(line_tasks, "BLOCK", request.param)


def parsed(
    conformer: Conformer, properties: Any, records: list[bytes], form: Form = Form.AIRBYTE
) -> tuple[list[Row], list[Row]]:
    """The rows and the rejected records without what depends on their place, and times of the form."""
    envelope = {Form.AIRBYTE: airbyte, Form.SINGER: singer, Form.ROWS: row}[form]
    lines = [envelope(record) for record in records]
    rows, dead = conformer.parse(segment(conformer.folder, form, lines), properties)
    for each in rows:
        del each["_airbyte_raw_id"], each["_airbyte_extracted_at"]
    for each in dead:
        del each["place"], each["row_id"], each["extracted_at"], each["rejected_at"]
    return [_shown(each) for each in rows], [_shown(each) for each in dead]


def _shown(row: Row) -> Row:
    """A row whose numbers that are not a number are equal to themselves."""
    return {name: repr(value) for name, value in row.items()}


def row(data: bytes) -> bytes:
    return b'{"data":%b,"emitted_at":1700000000123}' % data
