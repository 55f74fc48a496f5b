"""Bodies of responses: JSON without loss, and the other formats."""

from __future__ import annotations

import gzip
import io
import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.declarative.requests.decoding import parsers
from connectors.declarative.requests.decoding.decoders import CHUNK
from connectors.declarative.requests.decoding.json_body import decode, number
from connectors.declarative.requests.decoding.parsers import (
    BadFile,
    BadXml,
    gunzipped,
    json_lines,
    xml_value,
)
from connectors.sdk.encoding import encode
from connectors.sdk.limits import ResponseLimits
from elt_assets.errors import ConfigError, SystemFailure, TransientError
from tests.connectors.declarative.requests.support import Reading, together
from tests.programs.json_api import Answer

WHOLE = "record_selector: {extractor: {type: DpathExtractor, field_path: []}}"
_encode = msgspec.json.Encoder(decimal_format="number").encode


def decoded(reading: Reading, decoder: str, body: bytes, **headers: str) -> list[Any]:
    shown = {name.replace("_", "-"): value for name, value in headers.items()}
    reading.answer(Answer(body=body, headers=shown))
    return reading.records(together(WHOLE, f"decoder: {decoder}"))


@given(st.decimals(allow_nan=False, allow_infinity=False, places=None))
def test_a_number_keeps_its_value(value: Decimal) -> None:
    text = f"{value:f}" if "." in f"{value:f}" else f"{value:E}"
    assert Decimal(str(number(text))) == Decimal(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("45.5", 45.5),
        ("0.1", 0.1),
        ("1.10", 1.1),
        ("0.0", 0.0),
        ("-0.25", -0.25),
        ("1e5", 100000.0),
        ("0.12345678901234567890", Decimal("0.12345678901234567890")),
        ("1e400", Decimal("1e400")),
        ("12345678901234567.1", Decimal("12345678901234567.1")),
    ],
)
def test_a_number_is_a_float_where_that_loses_nothing(text: str, found: Any) -> None:
    value = decode(text.encode())
    assert value == found and type(value) is type(found)
    assert Decimal(encode(value).decode()) == Decimal(text)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_json_is_decoded_as_python_decodes_it(value: Any) -> None:
    content = json.dumps(value).encode()
    assert json.loads(encode(decode(content))) == json.loads(content)


def test_numbers_that_are_none_in_json_become_null(reading: Reading) -> None:
    assert decoded(reading, "{type: JsonDecoder}", b'[{"a": NaN, "b": -Infinity, "c": 1.5}]') == [
        {"a": None, "b": None, "c": 1.5}
    ]


def test_a_byte_order_mark_and_another_encoding_are_understood(reading: Reading) -> None:
    body = '[{"a": "ä"}]'
    assert decoded(reading, "{type: JsonDecoder}", b"\xef\xbb\xbf" + body.encode()) == [{"a": "ä"}]
    latin = {"Content_Type": "application/json; charset=iso-8859-1"}
    assert decoded(reading, "{type: JsonDecoder}", body.encode("latin-1"), **latin) == [{"a": "ä"}]


def test_json_lines(reading: Reading) -> None:
    assert decoded(reading, "{type: JsonlDecoder}", b'{"a": 1}\n\n{"a": 2}') == [{"a": 1}, {"a": 2}]
    text = '{"a": "\u2028\u0085"}\n'.encode()
    assert decoded(reading, "{type: JsonlDecoder}", text) == [{"a": "\u2028\u0085"}]


def test_csv(reading: Reading) -> None:
    body = '\ufeffid,name\r\n1,"a, ""b""\nc"\r\n2,\n'.encode()
    assert decoded(reading, "{type: CsvDecoder}", body) == [
        {"id": "1", "name": 'a, "b"\nc'},
        {"id": "2", "name": ""},
    ]
    tabs = (
        r'{type: CsvDecoder, delimiter: "\\t", encoding: iso-8859-1, set_values_to_none: ["", "-"]}'
    )
    assert decoded(reading, tabs, "id\tname\n1\tä\n2\t-\n3\n".encode("latin-1")) == [
        {"id": "1", "name": "ä"},
        {"id": "2", "name": None},
        {"id": "3", "name": None},
    ]


def test_lines_of_text(reading: Reading) -> None:
    assert decoded(reading, "{type: IterableDecoder}", b"a\nb\r\n\nc") == [
        {"record": "a"},
        {"record": "b"},
        {"record": ""},
        {"record": "c"},
    ]


@pytest.mark.parametrize("compress", [gzip.compress, lambda body: body])
def test_gzip_whether_the_body_is_compressed_or_not(reading: Reading, compress: Any) -> None:
    for decoder, body in (
        ("JsonDecoder", b'[{"a": 1}]'),
        ("JsonlDecoder", b'{"a": 1}\n'),
    ):
        wrapped = f"{{type: GzipDecoder, decoder: {{type: {decoder}}}}}"
        assert decoded(reading, wrapped, compress(body)) == [{"a": 1}]


def test_gzip_of_the_transport_and_of_the_file(reading: Reading) -> None:
    body = gzip.compress(gzip.compress(b"a\n1\n"))
    wrapped = "{type: GzipDecoder, decoder: {type: CsvDecoder}}"
    assert decoded(reading, wrapped, body, Content_Encoding="gzip") == [{"a": "1"}]
    twice = f"{{type: GzipDecoder, decoder: {wrapped}}}"
    assert decoded(reading, twice, body) == [{"a": "1"}]


def test_a_large_file_is_several_lists(reading: Reading) -> None:
    reading.answer(Answer(body=b"n\n" + b"1\n" * (CHUNK + 5)))
    pages = reading.pages(together(WHOLE, "decoder: {type: CsvDecoder}"))
    assert [len(page) for page in pages] == [CHUNK, 5]


def test_pages_of_files_follow_each_other(reading: Reading) -> None:
    pages = iter([b"id\n1\n2\n", b"id\n3\n"])
    reading.answer(lambda _: Answer(body=next(pages)))
    written = """
        paginator:
          type: DefaultPaginator
          pagination_strategy: {type: PageIncrement, page_size: 2}
        """
    found = reading.records(together(WHOLE, "decoder: {type: CsvDecoder}", written))
    assert [record["id"] for record in found] == ["1", "2", "3"]


def test_pages_of_compressed_json_are_seen_by_the_paginator(reading: Reading) -> None:
    pages = iter([{"data": [{"id": 1}], "next": "a"}, {"data": [{"id": 2}]}])
    reading.answer(lambda _: Answer(body=gzip.compress(json.dumps(next(pages)).encode())))
    written = """
        decoder: {type: GzipDecoder, decoder: {type: JsonDecoder}}
        paginator:
          type: DefaultPaginator
          pagination_strategy: {type: CursorPagination, cursor_value: "{{ response.next }}"}
        """
    assert reading.records(written) == [{"id": 1}, {"id": 2}]


def test_xml(reading: Reading) -> None:
    body = """<?xml version="1.0" encoding="UTF-8"?>
        <root xmlns:s="http://s"><item id="1" kind="b"><name> A </name><empty/></item>
        <item id="2">text</item><s:other>1 &amp; 2</s:other></root>"""
    reading.answer(Answer(body=body.encode()))
    selector = "record_selector: {extractor: {type: DpathExtractor, field_path: [root, item]}}"
    assert reading.records(together(selector, "decoder: {type: XmlDecoder}")) == [
        {"@id": "1", "@kind": "b", "name": "A", "empty": None},
        {"@id": "2", "#text": "text"},
    ]
    assert xml_value(body.encode())["root"]["s:other"] == "1 & 2"
    assert xml_value(b'<?xml version="1.0" encoding="ISO-8859-1"?><a>\xe4</a>') == {"a": "ä"}
    assert xml_value("<a>ä</a>".encode("utf-16"), "utf-16") == {"a": "ä"}


@pytest.mark.parametrize(
    "body",
    [
        b'<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><a>&c;</a>',
        b"<a>" * 1000,
        b"<a><b></a>",
        b"not xml",
        *(
            b'<?xml version="1.0" encoding="%b"?><a/>' % name
            for name in (b"idna", b"undefined", b"bz2", b"punycode", b"big5", b"none")
        ),
    ],
)
def test_xml_that_is_dangerous_or_broken_is_refused(body: bytes) -> None:
    with pytest.raises(BadXml):
        xml_value(body)


@pytest.mark.parametrize(
    ("decoder", "body", "kind", "message"),
    [
        ("{type: JsonlDecoder}", b'{"a": 1}\n{"a"', TransientError, "ends within a JSON value"),
        ("{type: JsonlDecoder}", b'{"a": 1}\nerror\n', SystemFailure, "has no JSON in line 2"),
        (
            "{type: CsvDecoder}",
            b"a,b\n1,2\n1,2,3\n",
            SystemFailure,
            "more fields than the header, in line 3",
        ),
        ("{type: CsvDecoder}", b"a\n\xff\n", SystemFailure, "is not CSV in the encoding utf-8"),
        ("{type: XmlDecoder}", b"<html><br></html>", SystemFailure, "is not XML: "),
        (
            "{type: GzipDecoder, decoder: {type: CsvDecoder}}",
            gzip.compress(b"a\n" * 99, mtime=0)[:-9],
            TransientError,
            "ends within data",
        ),
        (
            "{type: GzipDecoder, decoder: {type: CsvDecoder}}",
            b"\x1f\x8b\x00xxxxxxxxxxxx",
            SystemFailure,
            "is not valid gzip",
        ),
    ],
)
def test_a_file_in_another_form_is_a_clear_error(
    reading: Reading, decoder: str, body: bytes, kind: type[Exception], message: str
) -> None:
    reading.answer(Answer(body=body))
    error = reading.error(together(WHOLE, f"decoder: {decoder}"))
    assert isinstance(error, kind)
    assert message in error.message
    assert error.message.startswith("stream 'orders': the body of GET")


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        ("{type: JsonDecoder}", "has more than 1048576 bytes"),
        ("{type: JsonlDecoder}", "has a line with more than 1048576 bytes"),
        ("{type: CsvDecoder}", "has a line with more than 1048576 bytes"),
    ],
)
def test_a_small_file_that_becomes_a_large_one_is_refused(
    reading: Reading, monkeypatch: pytest.MonkeyPatch, decoder: str, message: str
) -> None:
    monkeypatch.setenv("CONNECTOR_MAX_BODY_MEGABYTES", "1")
    bomb = gzip.compress(b" " * 4_000_000)
    assert len(bomb) < 10_000
    reading.answer(Answer(body=bomb))
    error = reading.error(together(WHOLE, f"decoder: {{type: GzipDecoder, decoder: {decoder}}}"))
    assert isinstance(error, SystemFailure)
    assert message in error.message and "when it is decompressed" in error.message


def test_a_file_that_grows_too_much_is_refused_also_where_it_is_read_line_by_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = ResponseLimits(free_bytes=1 << 20, expansion=100)
    monkeypatch.setattr(parsers, "response_limits", lambda: limits)
    content = b'{"id":1}\n' * 400_000
    packed = io.BytesIO(gzip.compress(content))
    read: list[Any] = []
    with pytest.raises(BadFile, match="becomes more than 100 times as large"):
        read.extend(gunzipped(json_lines)(packed))
    assert 10_000 < len(read) < 400_000


@pytest.mark.parametrize(
    "decoder", ["JsonDecoder", "JsonlDecoder", "CsvDecoder", "XmlDecoder", "IterableDecoder"]
)
def test_an_empty_body_has_no_records(reading: Reading, decoder: str) -> None:
    assert decoded(reading, f"{{type: {decoder}}}", b"") == []


@pytest.mark.parametrize("encoding", ["utf-99", "base64", "undefined", "punycode", "idna"])
def test_an_encoding_that_is_none_of_texts_is_an_error_at_the_start(
    reading: Reading, encoding: str
) -> None:
    with pytest.raises(ConfigError, match=f"decoder: '{encoding}' is not an encoding of texts"):
        reading.retriever(f"decoder: {{type: CsvDecoder, encoding: {encoding}}}")


@pytest.mark.parametrize("delimiter", ["||", r"\\|", r"\\t\\t", r"\n", r"\\r", r"\""])
@pytest.mark.parametrize(
    "decoder", ["{csv}", "{{type: GzipDecoder, decoder: {csv}}}"], ids=["plain", "compressed"]
)
def test_a_delimiter_that_cannot_separate_fields_is_an_error_at_the_start(
    reading: Reading, decoder: str, delimiter: str
) -> None:
    csv = f'{{type: CsvDecoder, delimiter: "{delimiter}"}}'
    with pytest.raises(
        ConfigError, match=r"decoder.*: the `delimiter` .* does not separate fields"
    ):
        reading.retriever(f"decoder: {decoder.format(csv=csv)}")


@pytest.mark.parametrize("delimiter", ["|", r"\\", r"\\\\", r"\\x01", r"\t", "ä", " "])
def test_a_delimiter_is_one_character_or_an_escape_of_one(reading: Reading, delimiter: str) -> None:
    character = {r"\\": "\\", r"\\\\": "\\", r"\\x01": "\x01", r"\t": "\t"}.get(
        delimiter, delimiter
    )
    decoder = f'{{type: CsvDecoder, delimiter: "{delimiter}"}}'
    assert decoded(reading, decoder, f"a{character}b\n1{character}2\n".encode()) == [
        {"a": "1", "b": "2"}
    ]
