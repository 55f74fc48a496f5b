"""A secret is masked in every form in which a program prints it, whole or in parts."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elt_assets.protocol.masking import MASK, Masker
from elt_assets.runner.connector_log import ConnectorLog
from elt_assets.runner.process import CHUNK, Process

CODE = base64.b64encode(bytes(range(7, 207))).decode()
PEM = "\n".join(
    [
        "-----BEGIN PRIVATE KEY-----",
        *(CODE[n : n + 64] for n in range(0, len(CODE), 64)),
        "-----END PRIVATE KEY-----\n",
    ]
)
ACCOUNT = {
    "type": "service_account",
    "private_key": PEM,
    "inner": {"password": 'p"w/ö 1<2', "list": ["leaf-in-a-list", 1234567]},
    "text": json.dumps({"deep": "leaf-in-a-text"}),
}
JSON = json.dumps(ACCOUNT)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def url64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def test_a_secret_that_is_no_text_is_masked_where_it_became_one() -> None:
    mask = Masker(["pass\ud83dword"])
    for form in ("pass\ud83dword", "pass\ufffdword", "pass?word", "pass\\ud83dword"):
        assert mask(f"with {form} to") == f"with {MASK} to"


URL = "postgresql://admin:s3cr%40t%2Fpw@db.example.com:5432/shop"
FORMS: dict[str, tuple[str, str]] = {
    "a leaf of JSON": (JSON, 'p"w/ö 1<2'),
    "a leaf of JSON, as JSON": (JSON, json.dumps('p"w/ö 1<2')[1:-1]),
    "a leaf of JSON, as JSON in JSON": (JSON, json.dumps(json.dumps('p"w/ö 1<2'))[3:-3]),
    "a leaf of JSON, as JSON in JSON in JSON": (
        JSON,
        json.dumps(json.dumps(json.dumps('p"w/ö 1<2')))[7:-7],
    ),
    "a leaf of JSON, as Go writes JSON": (JSON, r"p\"w/ö 1\u003c2"),
    "a leaf of JSON, as PHP writes JSON": (JSON, r"p\"w\/\u00f6 1<2"),
    "a leaf of JSON, in upper-case escapes": (JSON, r"p\u0022w/\u00F6 1\u003C2"),
    "a leaf of JSON, percent-encoded": (JSON, quote('p"w/ö 1<2')),
    "a leaf of JSON, percent-encoded twice": (JSON, quote(quote('p"w/ö 1<2', safe=""))),
    "a leaf of JSON, in a form": (JSON, quote_plus('p"w/ö 1<2')),
    "a leaf of JSON, in HTML": (JSON, html.escape('p"w/ö 1<2')),
    "a leaf of JSON, in XML": (JSON, "p&#34;w/&#246; 1&#x3C;2"),
    "a leaf of JSON, as Python shows it": (JSON, repr('p"w/ö 1<2')[1:-1]),
    "a leaf of JSON, as Python shows bytes": (JSON, repr('p"w/ö 1<2'.encode())[2:-1]),
    "a leaf of JSON, in base64": (JSON, b64('p"w/ö 1<2')),
    "a leaf of a list in JSON": (JSON, "leaf-in-a-list"),
    "a number in JSON": (JSON, "1234567"),
    "a leaf of JSON in a text of JSON": (JSON, "leaf-in-a-text"),
    "a line of a key": (JSON, CODE[64:128]),
    "the last line of a key": (JSON, CODE[256:]),
    "a key in one line": (JSON, CODE),
    "a key in longer lines": (JSON, CODE[76:152]),
    "a key with escaped newlines": (PEM.replace("\n", "\\n"), CODE[64:128]),
    "the password of a URL": (URL, "s3cr%40t%2Fpw"),
    "the password of a URL, decoded": (URL, "s3cr@t/pw"),
    "the password of a URL, encoded otherwise": (URL, "s3cr%40t/pw"),
    "the password of a URL, in base64": (URL, b64("s3cr@t/pw")),
    "the token of a URL": ("https://ghp_abcdef123456@github.com/x", "ghp_abcdef123456"),
    "the token in a URL's path": (
        "https://hooks.example.com/services/T0/AbCdEfGhIjKlMnOpQrStUvWx",
        "AbCdEfGhIjKlMnOpQrStUvWx",
    ),
    "a parameter of a URL": ("https://x.example.com/?sig=a%2Bb%3Dcdefgh", "a+b=cdefgh"),
    "the key of a connection string": (
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=abc/def+ghi==;",
        "abc/def+ghi==",
    ),
    "JSON in base64": (b64(JSON), "leaf-in-a-list"),
    "JSON in base64 of URLs without padding": (url64(JSON), "leaf-in-a-text"),
    "JSON of a secret in base64": (b64(JSON), JSON),
    "a secret in base64": ("hunter2-hunter2", b64("hunter2-hunter2")),
    "a secret in base64 of URLs without padding": ("~~~???~~~???~", url64("~~~???~~~???~")),
    "a secret within base64": ("hunter2-hunter2", b64("user:hunter2-hunter2")[7:26]),
    "a line of a secret in base64": (JSON, b64(JSON)[76:152]),
    "the password of a header": (f"Basic {b64('user:hunter2-hunter2')}", "hunter2-hunter2"),
    "the token of a header": ("Bearer abc.def-ghi", "abc.def-ghi"),
    "a value of a file of settings": ("[a]\nkey = one-value\nother: 'two-value'\n", "two-value"),
}


@pytest.mark.parametrize(("secret", "shown"), FORMS.values(), ids=FORMS)
def test_a_form_of_a_secret_is_masked(secret: str, shown: str) -> None:
    for text in (shown, f"x {shown} x", f'{{"a": "{shown}"}}', f"{shown}\n{shown}"):
        masked = Masker([secret])(text)
        assert shown not in masked and MASK in masked
        assert masked.count(MASK) == (2 if "\n" in text else 1)


def test_what_surrounds_a_secret_is_not_masked() -> None:
    mask = Masker([JSON, URL, "2026-01-01T00:00:00Z", "hunter2"])
    text = "2026-02-01 00:00:00 INFO GET https://db.example.com/x?page=2 found 17 rows of hunters"
    assert mask(text) == text


_TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="*"), min_size=4, max_size=30
).filter(lambda text: text == text.strip() and len(set(text)) > 2)
_LEAVES = st.dictionaries(st.text("abc", min_size=1), _TEXTS, min_size=1, max_size=3)


def _json_of(leaves: dict[str, Any]) -> str:
    return json.dumps({"a": [leaves], "b": None})


ENCODINGS: list[Callable[[str], str]] = [
    str,
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(json.dumps(text))[3:-3],
    lambda text: quote(text, safe=""),
    quote,
    quote_plus,
    lambda text: quote(text, safe="").lower() if text == text.lower() else quote(text),
    html.escape,
    b64,
    url64,
]
WRAPPINGS: list[Callable[[dict[str, Any]], str]] = [
    _json_of,
    lambda leaves: b64(_json_of(leaves)),
    lambda leaves: url64(_json_of(leaves)),
    lambda leaves: json.dumps(_json_of(leaves)),
    lambda leaves: quote(_json_of(leaves), safe=""),
    lambda leaves: json.dumps({"inner": b64(_json_of(leaves))}),
]


@settings(max_examples=150)
@given(_LEAVES, st.sampled_from(WRAPPINGS), st.sampled_from(ENCODINGS), st.data())
def test_any_leaf_in_any_encoding_is_masked(
    leaves: dict[str, str],
    wrap: Callable[[dict[str, Any]], str],
    encode: Callable[[str], str],
    data: st.DataObject,
) -> None:
    leaf = data.draw(st.sampled_from(sorted(leaves.values())))
    shown = encode(leaf)
    before, after = data.draw(st.tuples(st.text(" .x"), st.text(" .x")))
    masked = Masker([wrap(leaves)])(before + shown + after)
    assert shown not in masked.replace(MASK, "") or shown in before + after


def test_no_part_of_a_secret_is_shown_at_any_split_of_a_line() -> None:
    """Lines of stderr are cut at a width, and read in chunks: the second chunk may begin in a secret."""
    secret = "hunter2-correct-horse"
    log = ConnectorLog(Masker([secret]), "x")
    for position in range(0, len(secret) + 1, 3):
        script = f"printf '%{CHUNK - position}s{secret} tail\\nlast\\n' '' >&2"
        with Process(["sh", "-c", script]) as process:
            list(process.lines())
            process.wait()
            shown = log.lines(process.stderr_tail)
        assert not any(secret[n : n + 4] in shown for n in range(len(secret) - 3))
        assert shown.endswith("last")


@given(st.integers(1_900, 2_100))
def test_no_part_of_a_secret_is_shown_at_the_end_of_a_cut_text(length: int) -> None:
    secret = "hunter2-correct-horse"
    shown = ConnectorLog(Masker([secret]), "x").text("." * length + secret + "." * 10)
    assert "hunt" not in shown
