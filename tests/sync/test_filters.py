"""Records through a selection: what is left of them, byte for byte."""

from __future__ import annotations

import hashlib
import hmac
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.protocol.messages import NULL, RawRecord
from elt_assets.sync.field_selection import FieldSelection, Path
from elt_assets.sync.record_filter import WITHHELD, RecordFilter, canonical_text, hash_value

SALT = b"pepper"


def paths(*written: str) -> tuple[Path, ...]:
    return tuple(tuple(path.split(".")) for path in written)


def passed(fields: FieldSelection, data: str | bytes, meta: Any = None) -> RawRecord:
    encoded = data.encode() if isinstance(data, str) else data
    own = NULL if meta is None else Raw(json.dumps(meta).encode())
    record = RecordFilter(fields, SALT)(RawRecord("a", Raw(encoded), 1.0, meta=own))
    assert record is not None
    return record


def left(fields: FieldSelection, data: str) -> str:
    return bytes(passed(fields, data).data).decode()


def changes(record: RawRecord) -> Any:
    return json.loads(bytes(record.meta))["changes"] if record.meta is not NULL else []


def hash_of(text: str) -> str:
    return hmac.new(SALT, text.encode(), hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    ("fields", "data", "expected"),
    [
        (FieldSelection(exclude=paths("b")), '{"a":  1.50, "b": {"x": 1}}', '{"a":1.50}'),
        (FieldSelection(exclude=paths("a.b")), '{"a": {"b": 1, "c": [ 1 ]}}', '{"a":{"c":[ 1 ]}}'),
        (FieldSelection(exclude=paths("a.b")), '{"a": [{"b": 1}, null, [{"b": 2, "c": 3}]]}',
            '{"a":[{},null,[{"c":3}]]}'),
        (FieldSelection(exclude=paths("ssn")), '{"ssn":1,"s\\u0073n":2,"x":1,"ssn":3}', '{"x":1}'),
        (FieldSelection(exclude=paths("ssn")), '{"SSN":1,"x":{"ssn":2},"Ssn":3}', '{"x":{"ssn":2}}'),
        (FieldSelection(exclude=paths("a.b")), '{"A":{"B":1,"c":2}}', '{"A":{"c":2}}'),
        (FieldSelection(include=paths("a")), '{"A":1,"b":2}', '{"A":1}'),
        (FieldSelection(exclude=paths("a"), key=paths("A")), '{"a":1,"A":2}', '{"A":2}'),
        (FieldSelection(exclude=paths("a"), distinct=paths("A")), '{"a":1,"A":2}', '{"A":2}'),
        (FieldSelection(exclude=paths("a.b")), '{"a":{"b":1},"a":{"c":1}}', '{"a":{"c":1}}'),
        (FieldSelection(exclude=(("a.b",),)), '{"a.b":1,"a":{"b":2}}', '{"a":{"b":2}}'),
        (FieldSelection(exclude=(("", "é"),)), '{"":{"\\u00e9":1,"b":"\\u00e9"}}', '{"":{"b":"\\u00e9"}}'),
        (FieldSelection(exclude=paths("a"), key=paths("a.id")), '{"a":{"id":1,"x":2},"b":3}',
            '{"a":{"id":1},"b":3}'),
        (FieldSelection(exclude=paths("id"), key=paths("id")), '{"id":1}', '{"id":1}'),
        (FieldSelection(include=paths("a.b")), '{"c":1,"a":{"b":2,"c":3}}', '{"a":{"b":2}}'),
        (FieldSelection(include=paths("a"), cursor=("at",)), '{"at":1,"b":2,"a":3}', '{"at":1,"a":3}'),
        (FieldSelection(include=paths("a")), '{"b":1}', "{}"),
        (FieldSelection(exclude=paths("a")), "{}", "{}"),
        (FieldSelection(hashed=paths("a")), '{"a":null}', '{"a":null}'),
    ],
)  # fmt: skip
def test_only_selected_fields_of_a_record_are_kept(
    fields: FieldSelection, data: str, expected: str
) -> None:
    assert left(fields, data) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('"a@b.c"', "a@b.c"),
        ('"\\u00e9\\/"', "é/"),
        ('""', ""),
        ("5", "5"),
        ("5.0", "5"),
        ("-0.0", "0"),
        ("1e400", "1e+400"),
        ("0.10", "0.1"),
        ("12345678901234567890123.0", "1.2345678901234567890123e+22"),
        ("9007199254740993", "9007199254740993"),
        ("true", "true"),
        ('{"b": 1.0, "a": ["x", null, {}]}', '{"a":["x",null,{}],"b":1}'),
        ('{"a": 1, "\\u0061": 2}', '{"a":2}'),
    ],
)
def test_the_text_or_the_canonical_json_is_hashed(value: str, text: str) -> None:
    fields = FieldSelection(hashed=paths("a", "b.c"))
    found = json.loads(left(fields, f'{{"a": {value}, "b": [{{"c": {value}}}]}}'))
    assert found == {"a": hash_of(text), "b": [{"c": hash_of(text)}]}


def test_another_salt_gives_other_hashes() -> None:
    assert bytes(hash_value(Raw(b'"x"'), b"one")) != bytes(hash_value(Raw(b'"x"'), b"two"))


@given(st.integers(-(10**25), 10**25), st.integers(-40, 40))
def test_a_number_is_hashed_by_its_value(digits: int, exponent: int) -> None:
    spelled = [f"{digits}e{exponent}", f"{digits}00E{exponent - 2}", f"{digits}.000e+{exponent}"]
    plain = f"{Decimal(f'{digits}e{exponent}'):f}"
    forms = [canonical_text(Raw(text.replace("+-", "-").encode())) for text in [*spelled, plain]]
    assert len(set(forms)) == 1
    assert Decimal(forms[0]) == Decimal(plain)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(JSON, st.booleans())
def test_the_canonical_form_keeps_the_value_and_is_idempotent(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1)
    form = canonical_text(Raw(text.encode()))
    assert exact(form) == exact(text)
    assert canonical_text(Raw(form.encode())) == form


def exact(text: str) -> Any:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


@pytest.mark.parametrize("value", ["5", '"text"', "true", '"{\\"b\\": 1}"'])
@pytest.mark.parametrize(
    "fields", [FieldSelection(exclude=paths("a.b")), FieldSelection(hashed=paths("a.b")),
               FieldSelection(include=paths("a.b"))],
)  # fmt: skip
def test_a_value_of_another_type_than_expected_is_withheld(
    fields: FieldSelection, value: str
) -> None:
    nulled = {"field": "a", "change": "NULLED", "reason": "DESTINATION_TYPECAST_ERROR"}
    record = passed(fields, f'{{"a": {value}}}')
    assert (bytes(record.data), changes(record)) == (b'{"a":null}', [nulled])
    record = passed(fields, f'{{"a": [{value}, {{"b": null}}, {value}]}}')
    assert json.loads(bytes(record.data))["a"][0] is None
    assert changes(record) == [nulled]


def test_changes_of_a_record_are_kept_except_for_excluded_fields() -> None:
    own = [{"field": name, "change": "NULLED", "reason": "r"} for name in ("a", "b", "c.d", "c.e")]
    fields = FieldSelection(exclude=paths("a", "c.d", "x.y"))
    record = passed(fields, '{"x": 1}', {"changes": [*own, {"change": "TRUNCATED"}]})
    recorded = [(one.get("field"), one["change"]) for one in changes(record)]
    assert recorded == [("b", "NULLED"), ("c.e", "NULLED"), (None, "TRUNCATED"), ("x", "NULLED")]
    record = passed(FieldSelection(include=paths("c")), "{}", {"changes": own})
    assert [one["field"] for one in changes(record)] == ["c.d", "c.e"]


@pytest.mark.parametrize(
    "meta", [{"S3CRET": 1}, {"changes": [{"S3CRET": 1}]}, {"changes": "S3CRET"}, [1]]
)
def test_other_metadata_of_a_record_is_removed(meta: Any) -> None:
    assert b"S3CRET" not in bytes(passed(FieldSelection(exclude=paths("a")), "{}", meta).meta)


@pytest.mark.parametrize(
    "data",
    [b'"S3CRET"', b"5", b"[1]", b"null", b'{"S3CRET', b'{"a":"S3CRET}', b'{"a":S3CRET}',
     b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"],
)  # fmt: skip
@pytest.mark.parametrize("rule", ["exclude", "hashed"])
def test_a_record_that_is_not_an_object_is_replaced_by_a_marker(data: bytes, rule: str) -> None:
    fields = FieldSelection(**{rule: paths("a", "b")})  # type: ignore[arg-type]
    assert bytes(passed(fields, data).data) == bytes(WITHHELD)
