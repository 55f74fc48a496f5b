"""Templates that run without Jinja give what Jinja gives."""

from __future__ import annotations

import ast
import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2.exceptions import UndefinedError
from jinja2.sandbox import SandboxedEnvironment

from connectors.declarative.manifest.evaluation.literals import literal, native
from connectors.declarative.manifest.evaluation.programs import (
    Constant,
    Jinja,
    Lookups,
    check,
    compile_template,
)
from connectors.declarative.manifest.template import Template, UndefinedValue

PLAIN = SandboxedEnvironment()

keys = st.sampled_from(["a", "b", "items", "get", "data", "_x", "0"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["1", "1.50", "007", "None", "'q'", "2024-01-01", "[1]", "1e5", "1_0", "nan"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3),
        st.tuples(inner, inner),
    ),
    max_leaves=8,
)
steps = st.one_of(
    keys.map(lambda key: f"['{key}']"),
    keys.map(lambda key: f'[ "{key}" ]'),
    st.sampled_from(["a", "b", "items", "data", "_x"]).map(lambda key: f".{key}"),
    st.integers(0, 3).map(lambda index: f"[{index}]"),
)
lookups = st.builds(
    lambda name, path: f"{{{{ {name}{''.join(path)} }}}}",
    st.sampled_from(["config", "record", "response"]),
    st.lists(steps, max_size=3),
)
texts = st.text(alphabet="ab 1'\"[]{}%-.:\n\r#é", max_size=6)


def expected(text: str, variables: dict[str, Any]) -> Any:
    """Return the value that the CDK makes: the text that Jinja renders, as a literal if it is one."""
    rendered = PLAIN.from_string(text).render(variables)
    if not rendered:
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ast.literal_eval(rendered)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return rendered
    return rendered if isinstance(found, complex) else found


def same(one: Any, other: Any) -> bool:
    """Equality with types, in which NaN equals itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


@given(lookups, st.fixed_dictionaries(dict.fromkeys(("config", "record", "response"), values)))
@example("{{ config['a'] }}", {"config": {"a": float("inf")}, "record": 1, "response": 1})
@example("{{ config.items }}", {"config": {"items": 1}, "record": 1, "response": 1})
@example("{{ config['items'] }}", {"config": {}, "record": 1, "response": 1})
@example("{{ config['a'].strip }}", {"config": {"a": "x"}, "record": 1, "response": 1})
def test_a_lookup_gives_what_jinja_gives(text: str, variables: dict[str, Any]) -> None:
    try:
        wanted = expected(text, variables)
    except UndefinedError:
        with pytest.raises(UndefinedValue):
            Template(text).evaluate(variables)
        return
    if "built-in method" in str(wanted):  # a method; its text has an address
        return
    assert same(Template(text).evaluate(variables), wanted)


@given(st.lists(st.one_of(lookups, texts), max_size=4), values)
def test_texts_with_lookups_give_what_jinja_gives(parts: list[str], config: Any) -> None:
    text = "".join(parts)
    variables = {"config": config, "record": config, "response": config}
    try:
        wanted = expected(text, variables)
    except UndefinedError:
        with pytest.raises(UndefinedValue):
            Template(text).evaluate(variables)
        return
    except Exception:  # noqa: BLE001 - a text that is no template
        return
    if "built-in method" in str(wanted):
        return
    assert same(Template(text).evaluate(variables), wanted)


@given(values)
def test_a_value_becomes_what_its_text_becomes(value: Any) -> None:
    if str(value):
        assert same(native(value), literal(str(value)))
        assert same(native(value, (str,)), literal(str(value), (str,)))
        assert same(native(value, (int, dict)), literal(str(value), (int, dict)))


def test_a_value_that_was_looked_up_is_a_copy() -> None:
    record = {"a": {"b": [1]}}
    found = Template("{{ record['a'] }}").evaluate({"record": record})
    found["b"].append(2)
    assert record == {"a": {"b": [1]}}


@given(st.text(alphabet="0123456789-+.eEjJ_xXbB'\" \t()[]{},:TrueFalsNonst#\\", max_size=12))
@example("2024-10-10T")
@example("1-2-3j")
@example("set()")
@example("1,")
@example("...")
def test_a_literal_is_recognized_as_python_does(text: str) -> None:
    if not text:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        wanted = text
    assert same(literal(text), text if isinstance(wanted, complex) else wanted)


def test_threads_that_read_literals_leave_the_filters_of_warnings_alone() -> None:
    before = list(warnings.filters)
    texts = [rf"['\d', {number}]" for number in range(2000)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(literal, texts)) == [["\\d", number] for number in range(2000)]
    assert warnings.filters == before


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("text", Constant),
        ("{ } %} #", Constant),
        ("{{ config['x'] }}", Lookups),
        ("{{ record['a']['b'] }}", Lookups),
        ("{{ stream_slice['x'] }}", Lookups),
        ("{{ response.a.b }}", Lookups),
        ("{{ response[0].b }}", Lookups),
        ("https://{{ config['x'] }}/{{ response.b }}", Lookups),
        ("{{ config['x'] }}\n", Jinja),
        ("{{ config.items }}", Jinja),
        ("{{ other['x'] }}", Jinja),
        ("{{- config['x'] -}}", Jinja),
        ("{{ config['x'] }}{% if 1 %}a{% endif %}", Jinja),
    ],
)
def test_what_needs_no_jinja_does_without(text: str, kind: type) -> None:
    assert type(compile_template(text)) is kind


@pytest.mark.parametrize(
    "text",
    [
        "text",
        "{{ config['x'] }}",
        "https://{{ config['x'] }}/{{ response.b }}",
        "{{ config['x'] | hash('md5') }}",
        "{% for x in record.a %}{{ x }}{{ loop.index }}{% endfor %}",
        "{% set x = 1 %}{{ x + config.a }}",
        "{{ now_utc() }}",
        "{{ stream_interval.start_time or next_page_token['x'] }}",
    ],
)
def test_the_check_of_a_template_finds_the_variables_that_it_uses(text: str) -> None:
    assert check(text) == compile_template(text).names
