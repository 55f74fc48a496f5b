"""Quotes of CSV that nobody meant are errors, whatever blocks the file is read in."""

from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from connectors.sdk.files.formats.quotes import BadQuote, Quotes
from tests.connectors.files.support import Reader
from tests.connectors.support import records
from tests.support.examples import examples

PIECES = ['"', '"', '""', ",", "\n", "\r\n", "a", "é", '"b"', ',"c', '"\n', "\\"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def is_strict(text: str, escape: str | None = None) -> bool:
    """Whether Python's strict reader of CSV takes a text."""
    try:
        list(csv.reader(io.StringIO(text, newline=""), strict=True, escapechar=escape))
    except csv.Error:
        return False
    return True


def check(blocks: list[bytes], escape: str | None = None, skipped_lines: int = 0) -> str | None:
    quotes = Quotes(",", '"', escape, skipped_lines)
    try:
        for block in [*filter(None, blocks), b""]:
            quotes.check(block)
    except BadQuote as bad:
        return str(bad)
    return None


@settings(max_examples=examples(300))
@given(text=TEXTS, cuts=st.lists(st.integers(0, 30), max_size=4))
@example(text='"a""', cuts=[3])
@example(text='a"b,"c"', cuts=[])
def test_the_check_agrees_with_a_strict_reader(text: str, cuts: list[int]) -> None:
    data = text.encode()
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    blocks = [data[begin:end] for begin, end in itertools.pairwise(bounds)]
    assert (check(blocks) is None) == is_strict(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('a\n"b\nc\n', "line 2: a quote that opens a value has no end"),
        ('a\n"b"c\n', "line 2: text follows"),
        ('a\n"b\nc,"d\n', "line 3: text follows"),
        ('"a ""b"" c"\n', None),
        ('a\n5" pipe,6"\n', None),
        ('\ufeff"a"\n', None),
    ],
)
def test_an_error_names_the_line(text: str, error: str | None) -> None:
    message = check([text.encode()])
    assert (message or "").startswith(error or "") and (message is None) == (error is None)


def test_an_escaped_quote_is_none() -> None:
    assert check([b'"a\\"', b'b"\n'], "\\") is None
    assert check([b'"a\\', b'"b"\n'], "\\") is None
    assert check([b'"a\\\\"\n'], "\\") is None
    assert "no end" in (check([b'"a\\"\n'], "\\") or "")


def test_lines_before_the_header_are_no_rows() -> None:
    assert check([b'a "report\n', b'"of\r\nx,y\n"1",2\n'], skipped_lines=2) is None
    assert "line 3" in (check([b'a\nb\n"1'], skipped_lines=2) or "")


WIDE = [f"a_long_name_of_the_column_{number:05}" for number in range(3_000)]
PREAMBLE = "a line of a report\n" * 10_000


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
@pytest.mark.parametrize("options", [{}, {"skip_rows": 10_000}])
def test_a_header_of_any_size_is_read_whole(
    tmp_path: Path, encoding: str, options: dict[str, int]
) -> None:
    rows = "".join(",".join(f"{n * k}" for n in range(3_000)) + "\n" for k in (1, 2))
    text = (PREAMBLE if options else "") + ",".join(WIDE) + "\n" + rows
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "wide.csv").write_text(text, encoding=encoding)
    stream = {"name": "s", "glob": "*", "format": "csv", "csv": {"encoding": encoding, **options}}
    source = Reader(tmp_path, [stream], str(tmp_path / "data"))
    _, messages = source.run()
    assert [record[WIDE[-1]] for record in records(messages)] == [2_999, 5_998]
