"""Templates are evaluated, and have no access to anything else."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

from connectors.declarative.manifest import clock
from connectors.declarative.manifest.evaluation import sandbox
from connectors.declarative.manifest.template import (
    Template,
    TemplateError,
    TemplateMap,
    UndefinedValue,
    WrongType,
    templates,
    value,
)
from connectors.sdk import limits
from tests.support.project import REPOSITORY

NOW = datetime(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=timezone.utc)
CONFIG = {"name": "ada", "number": 5, "none": None, "list": ["a", "b"], "nested": {"key": "x"}}


def evaluate(text: str, **variables: Any) -> Any:
    with clock.frozen(NOW):
        return Template(text).evaluate({"config": CONFIG, **variables})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("100", 100),
        ("1.5", 1.5),
        ("True", True),
        ("None", None),
        ("[1, 2]", [1, 2]),
        ("{'a': 1}", {"a": 1}),
        ("'quoted'", "quoted"),
        ("2024-01-01", "2024-01-01"),
        ("2024-10-10", "2024-10-10"),
        ("007", "007"),
        ("1j", "1j"),
        ("a line\n", "a line"),
        ("nan", "nan"),
        ("{{ config['name'] }}", "ada"),
        ("{{ config.name }}", "ada"),
        ("{{config['number']}}", 5),
        ("{{ config['number'] + 1 }}", 6),
        ("{{ 1 + 1 }}", 2),
        ("{{ config['list'] }}", ["a", "b"]),
        ("{{ config['list'][1] }}", "b"),
        ("{{ config['none'] }}", None),
        ("{{ config['missing'] }}", ""),
        ("{{ config.get('missing', 7) }}", 7),
        ("{{ config['missing'] or 'else' }}", "else"),
        ("{{ config['name'] if config['number'] > 4 else 'small' }}", "ada"),
        ("{% if config['number'] == 5 %}five{% else %}other{% endif %}", "five"),
        ("{% set n = config['number'] %}{{ n * 2 }}", 10),
        ("{% for x in config['list'] %}{{ x }}-{% endfor %}", "a-b-"),
        ("https://{{ config['name'] }}.example/{{ config.nested.key }}", "https://ada.example/x"),
        ("{{ config['name'] }}{{ config['missing'] }}", "ada"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
        ("{{ config['list'] | join(',') }}", "a,b"),
        ("{{ config['list'] | length }}", 2),
        ("{{ ','.join(config.get('list', [])) }}", "a,b"),
        ("{{ config['name'].split('d') }}", ["a", "a"]),
        ("{{ config.items() | list | length }}", 5),
        ("{{ {'a': config['none']} }}", {"a": None}),
    ],
)
def test_a_template_gives_the_value_of_its_text(text: str, expected: Any) -> None:
    found = evaluate(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ now_utc() }}", "2024-02-29 12:30:15.250000+00:00"),
        ("{{ now_utc().strftime('%Y-%m-%dT%H:%M:%SZ') }}", "2024-02-29T12:30:15Z"),
        ("{{ today_utc() }}", "2024-02-29"),
        ("{{ today_with_timezone('Pacific/Kiritimati') }}", "2024-03-01"),
        ("{{ day_delta(1) }}", "2024-03-01T12:30:15.250000+0000"),
        ("{{ day_delta(-1, format='%Y-%m-%d') }}", "2024-02-28"),
        ("{{ timestamp(1646006400.5) }}", 1646006400),
        ("{{ timestamp('2022-02-28') }}", 1646006400.0),
        ("{{ timestamp('2022-02-28T00:00:00-08:00') | int }}", 1646035200),
        ("{{ max(2, 3) }}", 3),
        ("{{ max([2, 3]) }}", 3),
        ("{{ min(2, 3) }}", 2),
        ("{{ duration('P1D') }}", "1 day, 0:00:00"),
        ("{{ (now_utc() - duration('P1D')).strftime('%Y-%m-%d') }}", "2024-02-28"),
        ("{{ (now_utc() - duration('P1M')).strftime('%Y-%m-%d') }}", "2024-01-29"),
        ("{{ (now_utc() + duration('P1Y')).strftime('%Y-%m-%d') }}", "2025-02-28"),
        ("{{ format_datetime('2022-01-14T10:00:00+02:00', '%Y-%m-%d %H') }}", "2022-01-14 08"),
        ("{{ format_datetime('2022-01-14', '%s') }}", 1642118400),
        ("{{ format_datetime('2022-01-14', '%ms') }}", 1642118400000),
        ("{{ format_datetime(1642118400, '%Y-%m-%d') }}", "2022-01-14"),
        ("{{ format_datetime('14/01/2022', '%Y-%m-%d', '%d/%m/%Y') }}", "2022-01-14"),
        ("{{ format_datetime(now_utc(), '%Y') }}", 2024),
        ("{{ format_datetime(today_utc(), '%d.%m.') }}", "29.02."),
        ("{{ str_to_datetime('2022-01-01T13:45:30Z') }}", "2022-01-01 13:45:30+00:00"),
        ("{{ sanitize_url('a b/c?d') }}", "a+b%2Fc%3Fd"),
        ("{{ camel_case_to_snake_case('CamelCase') }}", "camel_case"),
        ("{{ generate_uuid() | length }}", 36),
        ("{{ 'Test client_secret' | hash }}", "3032d57a12f76b61a820e47b9a5a0cbb"),
        (
            "{{ 'Test client_secret' | hash('md5', salt='salt') }}",
            "5011a0168579c2d94cbbe1c6ad14327c",
        ),
        ("{{ 'm' | hmac('k') | length }}", 64),
        ("{{ 'abc' | base64encode }}", "YWJj"),
        ("{{ 'YWJj' | base64decode }}", "abc"),
        ("{{ 'abc' | base64binascii_decode }}", "YWJj"),
        ("{{ 5 | string }}", "5"),
        ("{{ config['nested'] | string }}", '{"key": "x"}'),
        ("{{ 'goodbye, cruel world' | regex_search('goodbye,\\s(.*)$') }}", "cruel world"),
        ("{{ 'a' | regex_search('b') }}", ""),
        ("{{ 'a-b_c' | regex_replace('[-_]', ' ') }}", "a b c"),
        ("{{ 'a b' | urlencode }}", "a%20b"),
        ("{{ config['missing'] | default('d') }}", "d"),
        ("{{ config['nested'] | tojson }}", {"key": "x"}),
        (
            "{{ [{'k': 1}, {'k': 2}] | selectattr('k', 'equalto', 2) | map(attribute='k') | first }}",
            2,
        ),
    ],
)
def test_the_functions_and_filters_of_the_cdk_are_there(text: str, expected: Any) -> None:
    assert evaluate(text) == expected


def test_the_parts_of_a_slice_read_the_whole_slice() -> None:
    whole = {"id": 7, "start_time": "2024-01-01"}
    variables = {"stream_slice": whole, "stream_partition": {"id": 7}, "stream_interval": {}}
    assert Template("{{ stream_partition.start_time }}").evaluate(variables) == "2024-01-01"
    assert Template("{{ stream_interval['id'] + 0 }}").evaluate(variables) == 7
    assert Template("{{ stream_partition.id }}").evaluate({"stream_partition": {"id": 1}}) == 1


def test_a_slice_may_have_attributes_of_its_own() -> None:
    class Slice(dict[str, Any]):
        extra_fields = {"name": "x"}  # noqa: RUF012

        @property
        def _partition(self) -> Any:
            return self

    given = {"stream_slice": Slice(id=7)}
    assert Template("{{ stream_slice.extra_fields['name'] }}").evaluate(given) == "x"
    assert Template("{{ stream_slice._partition.extra_fields['name'] }}").evaluate(given) == "x"
    assert Template("{{ stream_partition['id'] }}").evaluate(given) == 7
    assert Template("{{ stream_partition.id }}").evaluate(given) == 7


def test_parameters_come_from_the_component() -> None:
    template = Template("/{{ parameters['path'] }}", parameters={"path": "orders"})
    assert template.text_of({}) == "/orders"
    assert template.text_of({"parameters": {"path": "other"}}) == "/other"


def test_the_types_of_a_literal_can_be_restricted() -> None:
    assert Template("{{ 5 }}").evaluate({}, (str,)) == "5"
    assert Template("{{ 5 }}").evaluate({}, (int,)) == 5
    assert Template("{{ '5' }}").evaluate({}, (float,)) == "5"
    assert Template("{{ record['a'] }}").evaluate({"record": {"a": 5}}, (str,)) == "5"


def test_a_text_keeps_its_characters() -> None:
    for text in ("007", "1.10", "1_000", "2024", "0x1F", "[1,2]"):
        assert Template(text).text_of({}) == text
    assert Template("{{ config['n'] | string }}").text_of({"config": {"n": [1]}}) == "[1]"


def test_a_default_replaces_an_empty_or_missing_value() -> None:
    given = {"config": {"empty": "", "zero": 0}}
    assert Template("{{ config['empty'] }}").evaluate_or("d", given) == "d"
    assert Template("{{ config['a']['b'] }}").evaluate_or("d", given) == "d"
    assert Template("{{ config['zero'] }}").evaluate_or("d", given) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ record['a'] }}", True),
        ("{{ record['a'] > 1 }}", False),
        ("{{ record['missing'] }}", False),
        ("{{ record['missing']['deeper'] }}", False),
        ("{{ record['none'] }}", False),
        ("{{ record['empty'] }}", False),
        ("{{ [] }}", False),
        ("{{ 0 }}", False),
        ("false", False),
        ("yes", True),
        ("", False),
    ],
)
def test_a_condition_is_what_the_cdk_makes_of_it(text: str, expected: bool) -> None:
    record = {"a": 1, "none": None, "empty": ""}
    assert Template(text).is_true({"record": record}) is expected


def test_a_value_of_the_wrong_type_is_an_error_of_its_own_and_makes_a_condition_true() -> None:
    for text in ("{{ record['none'] + 'x' }}", "{{ format_datetime(record['none'], '%Y') }}"):
        template = Template(text)
        with pytest.raises(WrongType):
            template.evaluate({"record": {"none": None}})
        assert template.is_true({"record": {"none": None}})


def test_the_variables_of_a_template_are_known() -> None:
    assert Template("{{ config['a'] }} {{ record.b }}").names == {"config", "record"}
    assert Template("{% set x = config.a %}{{ x + now_utc().year }}").names == {"config"}
    assert Template("text").is_constant
    assert not Template("{{ now_utc() }}").is_constant
    assert Template("{{ now_utc() }}").names == frozenset()


def test_mappings_are_evaluated_at_any_depth() -> None:
    written = {
        "a": "{{ config['name'] }}",
        "{{ config['name'] }}": ["1", {"n": "x"}],
        "empty": "",
        "i": 3,
    }
    found = templates(written)
    assert isinstance(found, TemplateMap)
    assert found.names == {"config"}
    assert list(found) == list(written)
    assert found.evaluate({"config": CONFIG}) == {"a": "ada", "ada": ["1", {"n": "x"}], "i": 3}
    assert value(written, {"config": CONFIG}) == found.evaluate({"config": CONFIG})
    assert value(["{{ config['name'] }}", 1, None], {"config": CONFIG}) == ["ada", 1, None]


# --- errors ---------------------------------------------------------------------------------------

SECRET = "hunter2"


def failure(text: str, **variables: Any) -> TemplateError:
    given = {"config": {"secret": SECRET, "list": [1, 2]}, **variables}
    with pytest.raises(TemplateError) as caught:
        Template(text, place="streams[0].retriever.requester.path").evaluate(given)
    message = str(caught.value)
    assert SECRET not in message
    assert "streams[0].retriever.requester.path" in message
    return caught.value


def test_a_field_of_something_missing_is_an_error_that_names_the_template() -> None:
    error = failure("{{ config['a']['b'] }}")
    assert isinstance(error, UndefinedValue)
    assert "config['a']['b']" in str(error)


def test_a_variable_that_is_not_available_is_named() -> None:
    assert "record is not available here" in str(failure("{{ record['a'] }}"))
    assert "range is not available here" in str(failure("{{ range(3) }}"))
    assert "lipsum is not available here" in str(failure("{{ lipsum() }}"))


@pytest.mark.parametrize(
    "text",
    [
        "{{ config['secret'] + 1 }}",
        "{{ str_to_datetime(config['secret']) }}",
        "{{ format_datetime(config['secret'], '%Y', '%d') }}",
        "{{ config[config['secret']]['x'] }}",
        "{{ config['secret'] | hash('nothing') }}",
        "{{ config['list'][config['secret']].x }}",
    ],
)
def test_an_error_quotes_no_value(text: str) -> None:
    failure(text)


@pytest.mark.parametrize(
    "text",
    [
        "{{ config.__class__ }}{{ config.__class__.__mro__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ config['list'].append(3) }}",
        "{{ config.update({'a': 1}) }}",
        "{{ config.pop('secret') }}",
        "{{ now_utc.__globals__ }}{{ now_utc.__globals__['x'] }}",
        "{{ (config | attr('__class__')).mro() }}",
        "{{ '{0.__class__.__mro__}'.format(config) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% set x = config %}{{ x.clear() }}",
        "{{ [config['list']][0].append(1) }}",
    ],
)
def test_a_template_cannot_reach_out_of_the_sandbox(text: str) -> None:
    given = {"secret": SECRET, "list": [1, 2]}
    failure(text, config=given)
    assert given == {"secret": SECRET, "list": [1, 2]}


def test_a_template_may_change_what_it_made_itself() -> None:
    text = "{% set ids = [] %}{% for r in record.rows %}{% set _ = ids.append(r.id) %}{% endfor %}{{ ids }}"
    assert evaluate(text, record={"rows": [{"id": 1}, {"id": 2}]}) == [1, 2]
    counts = "{% set c = {} %}{% set c = c.update({'a': 1}) or c %}{{ c }}"
    assert evaluate(counts) == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        "{% for x in few %}{% for y in few %}{% for z in few %}{% endfor %}{% endfor %}{% endfor %}",
        "{% for x in [1] | slice(10**12) %}{% endfor %}",
        "{% macro f(n) %}{{ f(n - 1) or f(n - 1) if n else '' }}{% endmacro %}{{ f(99) }}",
        "{% for x in few %}{% for y in few %}{{ now_utc() }}{% endfor %}{% endfor %}",
    ],
)
def test_a_template_that_takes_too_long_ends(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.02)
    assert "processor time" in str(failure(text, few=range(2_000)))


@pytest.mark.parametrize("text", ["{{ 10**(10**10) }}", "{{ 9**(9**9) }}"])
def test_a_power_that_is_too_large_is_not_computed(text: str) -> None:
    assert "too large" in str(failure(text))


@pytest.mark.parametrize(
    "text",
    [
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for x in tree recursive %}{{ loop(tree) }}{% endfor %}",
    ],
)
def test_a_template_without_end_fails(text: str) -> None:
    assert "RecursionError" in str(failure(text, tree=[1, 2]))


IN_LITTLE_MEMORY = """
from connectors.declarative.manifest.template import Template, TemplateError
from connectors.sdk.limits import limit_memory

TEXTS = [
    "{{ 'a' * 10**10 }}",
    "{{ [0] * 10**10 }}",
    "{{ '%999999999d' % 1 }}",
    "{{ 'a'.ljust(10**10) }}",
    "{{ [1] | tojson(indent=10**10) }}",
    "{{ ('a' * 20000).replace('', 'a' * 20000) }}",
    "{% set ns = namespace(x='aa') %}{% for i in few %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{% set l = [1] %}{% for i in few %}{% set _ = l.extend(l) %}{% endfor %}",
]
with limit_memory():
    for text in TEXTS:
        try:
            print(len(Template(text, "streams[0]").evaluate({"few": range(60)})))
        except TemplateError as error:
            print(error.message)
"""


def test_a_template_that_needs_too_much_memory_ends() -> None:
    environment = {**os.environ, "CONNECTOR_MAX_MEMORY_MEGABYTES": "300"}
    done = subprocess.run(
        [sys.executable, "-c", IN_LITTLE_MEMORY],
        env=environment,
        capture_output=True,
        check=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 8
    for line in lines:
        assert "at streams[0] cannot be evaluated: it needs more memory" in line
        assert "CONNECTOR_MAX_MEMORY_MEGABYTES" in line


def test_the_limit_of_memory_is_documented() -> None:
    responses = (REPOSITORY / "docs" / "writing-a-connector.md").read_text()
    assert f"| `{limits.MEMORY_VARIABLE}` | {limits.MEMORY_MEGABYTES} |" in responses


def test_a_loop_over_what_is_allowed_runs() -> None:
    assert evaluate("{% for x in items %}{{ loop.index }}{% endfor %}", items=[1, 2]) == 12
    assert len(evaluate("{% for x in items %}x{% endfor %}", items=iter(range(10_000)))) == 10_000


def test_a_text_that_is_no_template_fails_when_it_is_evaluated() -> None:
    assert "cannot be evaluated" in str(failure("{{ config['a' }}"))
    assert "nope" in str(failure("{{ config['secret'] | nope }}"))
    assert "load other templates" in str(failure("{% include 'x' %}"))


def test_the_clock_can_be_replaced_for_a_while() -> None:
    moments = iter([NOW, NOW + timedelta(days=1)])
    with clock.use(lambda: next(moments)):
        assert clock.now() == NOW
        with clock.frozen(datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))):
            assert evaluate.__name__ and clock.now() == datetime(2020, 1, 1, tzinfo=timezone.utc)
        assert clock.now().date() == date(2024, 3, 1)
    assert clock.now().year > 2024
