"""Pages of an API: which request follows which page, and the parts of a body and of a URL."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sdk.http import (
    Cursor,
    LinkHeader,
    NextUrl,
    Offset,
    PageNumber,
    Paginator,
    SinglePage,
    urls,
)
from connectors.sdk.http.body import Path, decoded, records_at, value_at, values_at
from connectors.sdk.http.paginators import (
    EQUAL_PAGES,
    MAX_EQUAL_PAGES,
    LoopGuard,
    Page,
    PageRequest,
)
from connectors.sdk.http.templates import Values, fill, fill_path
from connectors.sdk.items import Window
from elt_assets.errors import ConfigError, SystemFailure, TransientError

URL = "https://api.example/v1/orders?status=open"


def response(body: Any = b"", *, url: str = URL, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    written = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(200, content=content, headers=written, request=httpx.Request("GET", url))


def page(asked: PageRequest, records: int, body: Any = b"", **headers: str) -> Page:
    return Page(asked, response(body, **headers), records)


def params(asked: PageRequest | None) -> Any:
    return None if asked is None else dict(asked.params)


def test_the_offset_increases_by_the_page_size() -> None:
    paginator = Offset(10)
    first = paginator.first()
    assert params(first) == {"limit": 10, "offset": 0}
    second = paginator.following(page(first, 10))
    assert second is not None and params(second) == {"limit": 10, "offset": 10}
    assert paginator.following(page(second, 9)) is None
    assert paginator.following(page(second, 0)) is None


def test_the_first_record_may_have_the_offset_one() -> None:
    paginator = Offset(10, start=1, total="total")
    second = paginator.following(page(paginator.first(), 10, {"total": 20}))
    assert params(paginator.first())["offset"] == 1
    assert second is not None and params(second)["offset"] == 11
    assert paginator.following(page(second, 10, {"total": 20})) is None


def test_an_api_with_a_lower_page_limit_is_read_completely() -> None:
    for paginator in (Offset(1000, ends_at_short_page=False), Offset(1000, total="total")):
        body = {"total": 250}
        asked: PageRequest | None = paginator.first()
        offsets = []
        while asked is not None:
            offsets.append(asked.params["offset"])
            count = min(100, 250 - offsets[-1])
            asked = paginator.following(page(asked, count, body))
        assert offsets[:3] == [0, 100, 200]
        assert offsets[3:] == ([250] if paginator.total is None else [])


@pytest.mark.parametrize("total", [20, "20", 20.0])
def test_the_total_decides_which_page_is_the_last(total: Any) -> None:
    paginator = Offset(10, total=("meta", "total"))
    second = paginator.following(page(paginator.first(), 10, {"meta": {"total": total}}))
    assert second is not None
    assert paginator.following(page(second, 10, {"meta": {"total": total}})) is None


@pytest.mark.parametrize("total", [None, "many", [1]])
def test_a_short_page_is_the_last_one_if_there_is_no_total(total: Any) -> None:
    paginator = Offset(10, total="total")
    assert paginator.following(page(paginator.first(), 9, {"total": total})) is None
    assert paginator.following(page(paginator.first(), 10, {"total": total})) is not None


def test_pages_are_numbered_from_their_start() -> None:
    paginator = PageNumber(50, parameter="p", limit_parameter=None, start=0)
    first = paginator.first()
    assert params(first) == {"p": 0}
    assert params(paginator.following(page(first, 50))) == {"p": 1}
    assert paginator.following(page(first, 49)) is None


def test_only_an_empty_page_is_the_last_one_if_there_is_no_limit() -> None:
    paginator = PageNumber()
    assert params(paginator.first()) == {"page": 1}
    assert params(paginator.following(page(paginator.first(), 1))) == {"page": 2}
    assert paginator.following(page(paginator.first(), 0)) is None


@pytest.mark.parametrize("start", [0, 1])
def test_the_number_of_pages_decides_which_one_is_the_last(start: int) -> None:
    paginator = PageNumber(50, start=start, pages="pages")
    second = paginator.following(page(paginator.first(), 7, {"pages": 2}))
    assert second is not None
    assert paginator.following(page(second, 50, {"pages": 2})) is None


def test_a_cursor_comes_from_the_body_or_a_header() -> None:
    for paginator in (Cursor("meta.next"), Cursor(header="X-Next")):
        asked = page(paginator.first(), 1, {"meta": {"next": "abc"}}, X_Next="abc")
        assert params(paginator.following(asked)) == {"cursor": "abc"}


def test_a_cursor_may_be_the_key_of_the_last_record() -> None:
    paginator = Cursor("data.-1.id", parameter="starting_after", more="has_more")
    body = {"data": [{"id": 7}, {"id": 9}], "has_more": True}
    assert params(paginator.following(page(PageRequest(), 2, body))) == {"starting_after": 9}
    assert paginator.following(page(PageRequest(), 2, {**body, "has_more": False})) is None


@pytest.mark.parametrize("cursor", [None, "", False, 0])
def test_a_page_without_a_cursor_is_the_last_one(cursor: Any) -> None:
    paginator = Cursor("next")
    assert paginator.following(page(PageRequest(), 5, {"next": cursor})) is None
    assert paginator.following(page(PageRequest(), 5, {})) is None


def test_an_empty_page_with_a_cursor_is_followed_by_another_one() -> None:
    empty = page(PageRequest(), 0, {"next": "abc"})
    assert Cursor("next").following(empty) is not None
    assert Cursor("next", ends_at_empty_page=True).following(empty) is None


@pytest.mark.parametrize("arguments", [{}, {"path": "next", "header": "X-Next"}])
def test_a_cursor_is_either_in_the_body_or_in_a_header(arguments: Any) -> None:
    with pytest.raises(ValueError, match="either a path in the body or a header"):
        Cursor(**arguments)


def test_parameters_may_be_in_headers_or_in_the_body() -> None:
    assert Offset(10, sent_in="headers").first().headers == {"limit": "10", "offset": "0"}
    paginator = Cursor("next", parameter="variables.page.after", sent_in="json")
    asked = paginator.following(page(paginator.first(), 1, {"next": "abc"}))
    assert asked is not None
    assert asked.json == {"variables": {"page": {"after": "abc"}}} and not asked.params


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("https://api.example/v1/orders?at=2", "https://api.example/v1/orders?at=2"),
        ("/v1/orders?at=a%2Fb+c", "https://api.example/v1/orders?at=a%2Fb+c"),
        ("?at=2", "https://api.example/v1/orders?at=2"),
        ("orders?at=2", "https://api.example/v1/orders?at=2"),
        ("https://other.example/x", "https://other.example/x"),
    ],
)
def test_the_url_of_the_next_page_may_be_relative(target: str, url: str) -> None:
    in_body = NextUrl("links.next").following(page(PageRequest(), 1, {"links": {"next": target}}))
    in_header = LinkHeader().following(page(PageRequest(), 1, Link=f'<{target}>; rel="next"'))
    assert in_body is not None and in_header is not None
    assert in_body.url == in_header.url == url


def test_a_page_without_a_url_is_the_last_one() -> None:
    assert NextUrl("next").following(page(PageRequest(), 1, {"next": None})) is None
    assert LinkHeader().following(page(PageRequest(), 1)) is None
    assert LinkHeader().following(page(PageRequest(), 1, Link="<x>; rel=prev")) is None
    assert SinglePage().following(page(PageRequest(), 1)) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize("target", [{"href": "x"}, "https://[zz]/x", "https://a:b:c/", "mailto:x"])
def test_a_malformed_url_is_an_error(target: Any) -> None:
    with pytest.raises(SystemFailure, match="URL"):
        NextUrl("next").following(page(PageRequest(), 1, {"next": target}))


@pytest.mark.parametrize(
    ("header", "target"),
    [
        ('<https://a/2>; rel="next"', "https://a/2"),
        ("<https://a/2>; rel=next", "https://a/2"),
        ('<https://a/2>;rel="last next"', "https://a/2"),
        ('<https://a/1>; rel="prev", <https://a/2>; rel="next"', "https://a/2"),
        ("<https://a/1>;rel=prev,<https://a/2>;rel=next", "https://a/2"),
        ('<https://a/?x=1,2;3>; title="a, <b>; rel=next"; rel="next"', "https://a/?x=1,2;3"),
        (r'<https://a/1>; title="\", <https://a/0>; rel=next"; rel=next', "https://a/1"),
        ('<https://a/2>; REL="Next"; type=json', "https://a/2"),
        ('<https://a/2>; rel="prev"; rel="next"', None),
        ('<https://a/2>; title="next"', None),
        ("<https://a/2>", None),
        ("", None),
        ("next", None),
    ],
)
def test_a_link_is_found_by_its_relation(header: str, target: str | None) -> None:
    assert urls.link(header, "next") == target


@given(st.text('<>;,="\\ relnxt', max_size=60))
def test_no_link_header_breaks_the_parser(header: str) -> None:
    urls.link(header, "next")


def positions(paginator: Paginator, bodies: Iterator[Any]) -> Iterator[PageRequest]:
    """The requests for pages with these bodies, with the guard against endless pages."""
    asked: PageRequest | None = paginator.first()
    assert asked is not None
    guard = LoopGuard(asked, is_counted=paginator.is_counted)
    while asked is not None:
        yield asked
        read = page(asked, 1, next(bodies))
        asked = paginator.following(read)
        if asked is not None:
            guard.check(read.response, [read.response.text], asked)


@given(st.integers(0, 9), st.integers(1, 9))
def test_cyclic_cursors_are_an_error(before: int, length: int) -> None:
    cursors = [*range(1, before + 1), *(before + 1 + n % length for n in range(100))]
    asked = positions(Cursor("next"), ({"next": cursor} for cursor in cursors))
    count = 0
    with pytest.raises(SystemFailure, match="do not end: after GET https://api"):
        for count, _ in enumerate(asked):  # noqa: B007
            pass
    assert count <= 3 * (before + length) + 2


def test_a_page_that_links_to_itself_is_an_error() -> None:
    asked = positions(NextUrl("next"), iter([{"next": "/2"}] * 3))
    with pytest.raises(SystemFailure, match="was already read"):
        assert len([next(asked) for _ in range(4)]) < 4


def test_pages_with_the_same_cursor_are_read_while_they_differ() -> None:
    bodies = [{"data": number, "next": "scroll"} for number in range(40)]
    assert len(list(positions(Cursor("next"), iter([*bodies, {}])))) == 41


def test_pages_that_are_all_equal_are_an_error() -> None:
    asked = positions(PageNumber(), iter([b"[1]"] * 100))
    with pytest.raises(SystemFailure, match=f"{EQUAL_PAGES} pages in succession are equal"):
        assert len(list(asked)) < EQUAL_PAGES


def test_equal_pages_with_a_new_cursor_each_are_accepted() -> None:
    bodies: list[Any] = [{"data": 1, "next": number} for number in range(1, 40)]
    assert len(list(positions(Cursor("next"), iter([*bodies, {}])))) == 40


def test_equal_positions_and_pages_that_return_are_an_error() -> None:
    bodies = [{"data": number % 3, "next": "scroll"} for number in range(100)]
    with pytest.raises(SystemFailure, match="was already read"):
        assert len(list(positions(Cursor("next"), iter(bodies)))) < 15


def checked(pages: list[list[Any]], *, is_counted: bool) -> LoopGuard:
    """A guard that has seen pages of these records, each with a new position."""
    guard = LoopGuard(0, is_counted=is_counted)
    answer = httpx.Response(200, request=httpx.Request("GET", "https://api.example/orders"))
    for number, records in enumerate(pages, 1):
        guard.check(answer, records, number)
    return guard


def test_pages_that_differ_in_their_middle_alone_are_accepted() -> None:
    checked([[0, number, 2] for number in range(40)], is_counted=True)


@pytest.mark.parametrize("records", [[], [{"id": 1}]])
def test_pages_that_are_equal_for_ever_end_at_some_time(records: list[Any]) -> None:
    checked([records] * (MAX_EQUAL_PAGES - 1), is_counted=not records)
    with pytest.raises(SystemFailure, match="10000 pages in succession are equal"):
        checked([records] * MAX_EQUAL_PAGES, is_counted=not records)


def test_many_different_pages_are_accepted() -> None:
    bodies = (json.dumps([number // 9]).encode() for number in range(1_000))
    asked = positions(PageNumber(), bodies)
    assert len([next(asked) for _ in range(1_000)]) == 1_000


BODY = {"data": {"items": [{"id": 1}, {"id": 2}], "a.b": 3}, "next": None, "edges": [{"n": 1}, {}]}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", [BODY]),
        ((), [BODY]),
        ("data.items.0.id", [1]),
        ("data.items.-1.id", [2]),
        (("data", "a.b"), [3]),
        ("next", [None]),
        ("edges.*.n", [1]),
        ("data.items.*.id", [1, 2]),
        ("data.*.id", []),
        ("data.items.2", []),
        ("data.items.x", []),
        ("data.items.--1", []),
        ("data.missing", []),
        ("next.more", []),
        ("next.*", []),
    ],
)
def test_values_are_read_at_a_path(path: Path, found: list[Any]) -> None:
    assert list(values_at(BODY, path)) == found
    assert value_at(BODY, path) == (found[0] if found else None)


@pytest.mark.parametrize(
    ("body", "path", "records"),
    [
        ([{"id": 1}, {"id": 2}], "", [{"id": 1}, {"id": 2}]),
        ({"id": 1}, "", [{"id": 1}]),
        ({"data": []}, "data", []),
        ({"data": None}, "data", []),
        (None, "", []),
        (
            {"data": [{"node": {"id": 1}}, {"node": {"id": 2}}]},
            "data.*.node",
            [{"id": 1}, {"id": 2}],
        ),
        ({"data": [{"rows": [{"id": 1}]}, {"rows": []}]}, "data.*.rows", [{"id": 1}]),
        ({"data": []}, "data.*.node", []),
    ],
)
def test_records_are_read_at_a_path(body: Any, path: Path, records: Any) -> None:
    assert list(records_at(response(body), path)) == records


def test_a_missing_path_is_an_error_that_names_the_fields_of_the_body() -> None:
    with pytest.raises(SystemFailure, match="at the path 'data'; its fields are 'error', 'code'"):
        list(records_at(response({"error": "no", "code": 7}), "data"))
    assert list(records_at(response({"kind": "x"}), "items", may_lack=True)) == []


@pytest.mark.parametrize(("value", "kind"), [("x", "a text"), (7, "a number"), ([1], "a list")])
def test_a_record_that_is_not_an_object_is_an_error(value: Any, kind: str) -> None:
    with pytest.raises(SystemFailure, match=f"is not an object but {kind}"):
        list(records_at(response([value]), ""))


def test_numbers_keep_their_digits() -> None:
    body = (
        b'{"a": 1.10, "b": 0.1234567890123456789, "c": 123456789012345678901234567890, "d": 1e400}'
    )
    assert decoded(response(body)) == {
        "a": Decimal("1.10"),
        "b": Decimal("0.1234567890123456789"),
        "c": 123456789012345678901234567890,
        "d": Decimal("1e400"),
    }


def test_a_body_is_decoded_once() -> None:
    found = response({"data": [1]})
    assert decoded(found) is decoded(found)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_a_body_may_have_another_encoding(encoding: str) -> None:
    kind = f"application/json; charset={encoding.removesuffix('-sig')}"
    found = response('{"name": "Zoë"}'.encode(encoding), Content_Type=kind)
    assert decoded(found) == {"name": "Zoë"}


def test_half_of_a_surrogate_pair_becomes_the_replacement_character() -> None:
    body = b'{"a": "cut \\ud83d", "b": "\\\\ud83d \\ud83d\\ude00 \\udc00"}'
    assert decoded(response(body)) == {"a": "cut �", "b": "\\ud83d 😀 �"}
    with pytest.raises(TransientError, match="within a JSON value"):
        decoded(response(body[:-1]))


@pytest.mark.parametrize(
    "body", [b"<html>Log in</html>", b"", b"NaN", b'{"a": "\xff"}', b"[" * 100_000]
)
def test_a_body_that_is_not_json_is_an_error_with_its_place(body: bytes) -> None:
    with pytest.raises(SystemFailure) as caught:
        decoded(response(body))
    assert "GET https://api.example/v1/orders?status=… is not JSON" in caught.value.message
    assert ("Log in" in caught.value.message) == (b"Log in" in body)


def test_a_body_that_ends_within_a_value_is_a_temporary_error() -> None:
    with pytest.raises(TransientError, match="ends after 9 bytes"):
        decoded(response(b'{"a": [1,'))


@pytest.mark.parametrize(
    ("base", "path", "url"),
    [
        ("https://api.example/v1", "orders", "https://api.example/v1/orders"),
        ("https://api.example/v1/", "/orders", "https://api.example/v1/orders"),
        ("https://api.example", "orders?x=1", "https://api.example/orders?x=1"),
        ("https://api.example/v1", "", "https://api.example/v1"),
        ("https://api.example/v1", "reports:run", "https://api.example/v1/reports:run"),
        ("https://api.example/v1", "//b.example/x", "https://api.example/v1/b.example/x"),
        ("https://api.example/v1", "https://b.example/x", "https://b.example/x"),
        ("https://api.example/v1", "a%2Fb", "https://api.example/v1/a%2Fb"),
    ],
)
def test_a_path_continues_the_base_url(base: str, path: str, url: str) -> None:
    assert str(urls.join_path(urls.base(base), path)) == url


@pytest.mark.parametrize(
    "url", ["api.example", "ftp://a", "https://", "https://a:b:c", "https://a/?k=v"]
)
def test_a_base_url_is_absolute(url: str) -> None:
    with pytest.raises(ConfigError, match="base URL"):
        urls.base(url)


def test_a_malformed_url_of_a_request_is_an_error_that_does_not_quote_it() -> None:
    with pytest.raises(SystemFailure) as caught:
        urls.join_path(urls.base("https://api.example"), "https://user:hunter2@api.example:x/")
    assert "hunter2" not in str(caught.value)


def find_values(window: Window | None = None, parent: str | None = None) -> Values:
    return Values(window or Window(), parent)


def test_a_path_template_is_filled_from_the_partition() -> None:
    partition = {"store_id": 7, "name": "a/b c?d", "open": True, "stores.id": 8}
    window = Window(partition=partition, parent={"slug": "x", "id": 9})
    template = "stores/{store_id}/{name}?open={open}&{stores.id}&{stores.slug}"
    path = fill_path(template, find_values(window, "stores"))
    assert path == "stores/7/a%2Fb%20c%3Fd?open=true&8&x"
    assert str(urls.join_path(urls.base("https://a.example"), path)) == f"https://a.example/{path}"
    assert fill_path("orders", find_values()) == "orders"


@pytest.mark.parametrize("partition", [{}, {"id": None}, {"id": ""}, {"id": ".."}, {"id": "."}])
def test_a_value_that_is_invalid_in_a_path_is_an_error(partition: Any) -> None:
    with pytest.raises(SystemFailure, match=r"'stores/\{id\}' cannot be filled"):
        fill_path("stores/{id}", find_values(Window(partition=partition)))


def test_a_text_without_a_value_is_left_out() -> None:
    template = {"from": "{start}", "q": ["at>{start}", "all"], "to": "{end}", "null": None, "n": 1}
    assert fill(template, find_values()) == {"q": ["all"], "null": None, "n": 1}
    window = Window("2026-01-02", 5)
    assert fill(template, find_values(window)) == {
        "from": "2026-01-02",
        "q": ["at>2026-01-02", "all"],
        "to": 5,
        "null": None,
        "n": 1,
    }


def test_a_name_without_a_value_is_an_error_but_in_another_language() -> None:
    for template in ("{strat}", "since {strat}", "{shops.id}"):
        with pytest.raises(SystemFailure, match="there is no value of the name"):
            fill(template, find_values(parent="stores"))
    query = "query {orders(since: 1) {id}} # {start}"
    assert fill(query, find_values(Window(3)), is_text=True) == query.replace("{start}", "3")
    with pytest.raises(SystemFailure, match="there is no value of the name"):
        fill({"variables": ["{strat}"]}, find_values(), is_text=True)


@pytest.mark.parametrize(
    "template", ["{start:seconds}", "{end:iso}", "a{start:}", "{store:d}", "{stores.id:%d}"]
)
def test_a_form_that_there_is_not_is_an_error_but_in_another_language(template: str) -> None:
    values = find_values(Window("2026-01-02", partition={"store": 1}, parent={"id": 1}), "stores")
    with pytest.raises(SystemFailure, match=r"(?s)no form .*write .*\{start:epoch\} for seconds"):
        fill([template], values)
    with pytest.raises(SystemFailure, match="no form"):
        fill_path(template, values)
    assert fill(f"query {template}", values, is_text=True) == f"query {template}"


def test_only_what_is_named_is_asked_for() -> None:
    for template, asked in (
        ("x", (False, False)),
        ("{start}", (True, False)),
        ("{end:epoch}", (False, True)),
    ):
        window = Window("2026-01-02", "2026-01-03")
        fill([template], find_values(window))
        assert (window.filters_start, window.filters_end) == asked


@pytest.mark.parametrize(
    ("template", "value", "start", "end"),
    [
        (
            "{}",
            "2026-01-02T03:04:05.6+01:00",
            "2026-01-02T03:04:05.6+01:00",
            "2026-01-02T03:04:05.6+01:00",
        ),
        ("{:%Y-%m-%d}", "2026-01-31T03:04:05Z", "2026-01-31", "2026-02-01"),
        ("{:%Y-%m-%d}", "2026-01-31", "2026-01-31", "2026-01-31"),
        ("{:%Y-%m}", "2026-12-02", "2026-12", "2027-01"),
        (
            "{:%Y-%m-%dT%H:%M:%SZ}",
            "2026-01-02T03:04:05.6+01:00",
            "2026-01-02T02:04:05Z",
            "2026-01-02T02:04:06Z",
        ),
        ("{:epoch}", "1970-01-01T00:00:09.5Z", 9, 10),
        ("{:epoch_ms}", "1970-01-01T00:00:09.0001Z", 9000, 9001),
        ("{:%Y-%m-%d}", 1767398400, "2026-01-03", "2026-01-03"),
    ],
)
def test_a_coarser_form_leaves_no_record_out(
    template: str, value: Any, start: Any, end: Any
) -> None:
    both = find_values(Window(value, value))
    assert fill(template.replace("{", "{start"), both) == start
    assert fill(template.replace("{", "{end"), both) == end


@given(st.datetimes(min_value=dt.datetime(1971, 1, 1), max_value=dt.datetime(2200, 1, 1)))  # noqa: DTZ001
def test_a_form_never_narrows_the_window(time: dt.datetime) -> None:
    value = f"{time.isoformat()}Z"
    for form in ("%Y", "%Y%m", "%Y-%m-%d", "%Y-%m-%d %H", "%H:%M %d/%m/%Y", "%Y-%m-%dT%H:%M:%S"):
        start, end = fill(
            [f"{{start:{form}}}", f"{{end:{form}}}"], find_values(Window(value, value))
        )
        assert dt.datetime.strptime(start, form) <= time <= dt.datetime.strptime(end, form)  # noqa: DTZ007


def test_a_value_that_is_no_time_has_no_form() -> None:
    with pytest.raises(SystemFailure, match="is no time"):
        fill("{start:%Y}", find_values(Window("abc")))


def test_parameters_are_formatted_by_their_type() -> None:
    url = urls.add_params(
        httpx.URL("https://a.example/x?kept=1"),
        {
            "none": None,
            "yes": True,
            "many": [1, "b"],
            "at": dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc),
            "day": dt.date(2024, 1, 2),
            "amount": Decimal("1E+3"),
        },
    )
    assert sorted(url.params.multi_items()) == [
        ("amount", "1000"),
        ("at", "2024-01-02T00:00:00+00:00"),
        ("day", "2024-01-02"),
        ("kept", "1"),
        ("many", "1"),
        ("many", "b"),
        ("yes", "true"),
    ]


def test_a_url_without_parameters_keeps_its_bytes() -> None:
    url = httpx.URL("https://a.example/x?sig=a%2Bb%20c&t=1+2")
    assert str(urls.add_params(url, {"none": None})) == "https://a.example/x?sig=a%2Bb%20c&t=1+2"


@pytest.mark.parametrize(
    ("url", "is_trusted"),
    [
        ("https://api.example/x", True),
        ("https://API.example:443/x", True),
        ("http://api.example/x", False),
        ("https://api.example:8443/x", False),
        ("https://other.example/x", False),
        ("https://api.example.evil.example/x", False),
        ("http://plain.example/x", True),
        ("https://plain.example/x", True),
        ("https://plain.example:444/x", False),
    ],
)
def test_an_origin_consists_of_scheme_host_and_port(url: str, is_trusted: bool) -> None:
    origins = [
        urls.origin(urls.base(each)) for each in ("https://api.example", "http://plain.example")
    ]
    assert urls.is_within(httpx.URL(url), origins) is is_trusted
