"""The rules of a manifest for configs: what they change, what is saved, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.declarative.config import check_config, migrate, read_advanced_auth, transform
from connectors.declarative.manifest import components
from connectors.declarative.manifest.builder import Builder
from connectors.declarative.manifest.report import Report
from connectors.sdk.reports import listen_to_config
from elt_assets.errors import ConfigError

Json = dict[str, Any]


def prepared(spec: Any, written: Any) -> dict[str, Any]:
    """Return a config after the migrations and transformations of a specification."""
    return transform(spec, migrate(spec, written))


def spec(trusted: str = "trusted", **parts: Any) -> components.Spec:
    """The component of a `spec`."""
    report = Report()
    written = {"type": "Spec", "connection_specification": {"type": "object"}, **parts}
    found = Builder(report, [trusted]).build(components.Spec, written, "spec", {})
    report.raise_problems("the test")
    assert found is not None
    return found


def rules(**written: Any) -> components.Spec:
    return spec(config_normalization_rules={"type": "ConfigNormalizationRules", **written})


def changed(config: Json, *transformations: Json) -> Json:
    """The config after transformations."""
    return prepared(rules(transformations=list(transformations)), config)


def migrated(config: Json, *transformations: Json) -> tuple[Json, list[Json]]:
    """The config after a migration, and what is saved."""
    saved: list[Json] = []
    migration = {"type": "ConfigMigration", "transformations": list(transformations)}
    with listen_to_config(lambda each: saved.append(dict(each))):
        found = prepared(rules(config_migrations=[migration]), config)
    return found, saved


def add(path: list[str], value: str, condition: str = "", **more: Any) -> Json:
    field = {"type": "AddedFieldDefinition", "path": path, "value": value, **more}
    return {"type": "ConfigAddFields", "fields": [field], "condition": condition}


def remove(*pointers: list[str], condition: str = "") -> Json:
    return {
        "type": "ConfigRemoveFields",
        "field_pointers": list(pointers),
        "condition": condition,
    }


def error_in(act: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        act()
    return str(caught.value)


# --- changes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("without", [None, spec(), rules()])
def test_a_manifest_without_rules_leaves_a_config_as_it_is(without: components.Spec | None) -> None:
    written = {"a": {"b": [1]}}
    found = prepared(without, written)
    assert found == written
    check_config(without, found)


def test_a_migration_is_saved_and_a_transformation_is_not() -> None:
    both = rules(
        config_migrations=[
            {"type": "ConfigMigration", "transformations": [add(["kind"], "new")]},
        ],
        transformations=[add(["url"], "https://{{ config['kind'] }}.example")],
    )
    saved: list[Mapping[str, Any]] = []
    with listen_to_config(saved.append):
        found = prepared(both, {"key": "k"})
    assert found == {"key": "k", "kind": "new", "url": "https://new.example"}
    assert saved == [{"key": "k", "kind": "new"}]


def test_a_config_that_migrations_do_not_change_is_not_saved() -> None:
    step = add(["kind"], "new", "{{ not config.get('kind') }}")
    once, saved = migrated({}, step)
    assert saved == [{"kind": "new"}]
    assert migrated(once, step) == (once, [])


def test_a_change_within_an_object_is_saved_too() -> None:
    found, saved = migrated({"credentials": {"key": "k"}}, add(["credentials", "type"], "api"))
    assert saved == [found] == [{"credentials": {"key": "k", "type": "api"}}]


def test_the_config_that_was_given_is_never_changed() -> None:
    written = {"a": {"b": 1}, "list": [{"c": 2}]}
    before = deepcopy(written)
    changed(written, add(["a", "x"], "1"), remove(["list", "0", "c"]))
    assert written == before


def test_later_changes_see_what_earlier_ones_did() -> None:
    found = changed(
        {"region": "eu"},
        add(["endpoint"], "https://{{ config['region'] }}.example"),
        add(["host"], "{{ config['endpoint'].split('//')[1] }}"),
        remove(["region"]),
    )
    assert found == {"endpoint": "https://eu.example", "host": "eu.example"}


@pytest.mark.parametrize(
    ("value", "more", "expected"),
    [
        ("{{ config['n'] + 1 }}", {}, 3),
        ("{{ config['n'] }}", {"value_type": "string"}, "2"),
        ("{{ config['ids'].split(',') }}", {}, ["1", "2"]),
        ("{{ config['missing'] }}", {}, ""),
        ('[{"a": 1}]', {}, [{"a": 1}]),
        ("2", {"value_type": "number"}, 2),
        ("plain", {}, "plain"),
    ],
)
def test_an_added_field_has_the_type_that_its_value_looks_like(
    value: str, more: Json, expected: Any
) -> None:
    found = changed({"n": 2, "ids": "1,2"}, add(["x"], value, **more))["x"]
    assert found == expected
    assert type(found) is type(expected)


def test_a_list_that_was_written_as_text_becomes_a_list_and_stays_one() -> None:
    step = add(["reports"], "{{ config['old'] }}", "{{ config.get('old', False) }}")
    for written in ('[{"name": "a"}]', [{"name": "a"}]):
        assert changed({"old": written}, step)["reports"] == [{"name": "a"}]
    assert changed({}, step) == {}


def test_a_template_may_change_the_objects_that_it_reads_and_the_config_stays() -> None:
    value = """
        {%- set found = [] -%}
        {%- for each in config.get('reports', []) if 'reports' in config and config | length -%}
          {%- set _ = each.update({'name': each.name or each['old']}) -%}
          {%- set _ = found.append(each) -%}
        {%- endfor -%}
        {{- found -}}
    """
    written = {"reports": [{"old": "a"}, {"name": "b"}]}
    found = changed(written, add(["new"], value))
    assert found["new"] == [{"old": "a", "name": "a"}, {"name": "b"}]
    assert found["reports"] == written["reports"] == [{"old": "a"}, {"name": "b"}]


def test_the_condition_of_an_added_field_sees_its_value() -> None:
    step = add(["x"], "{{ config['y'] }}", "{{ value == 1 and path == ['x'] }}")
    assert changed({"y": 1}, step) == {"y": 1, "x": 1}
    assert changed({"y": 2}, step) == {"y": 2}


def test_added_fields_may_lie_within_objects_and_lists() -> None:
    found = changed({"list": [{"a": 1}]}, add(["new", "inner"], "x"), add(["list", "0", "b"], "y"))
    assert found == {"list": [{"a": 1, "b": "y"}], "new": {"inner": "x"}}


def test_fields_are_removed_where_they_are() -> None:
    written = {"a": 1, "b": {"c": 2, "d": 3}, "list": [{"x": 1, "y": 2}, {"x": 3}]}
    found = changed(written, remove(["a"], ["b", "c"], ["none", "of"], ["list", "*", "x"]))
    assert found == {"b": {"d": 3}, "list": [{"y": 2}, {}]}


def test_fields_are_removed_only_if_the_condition_holds() -> None:
    step = remove(["end"], condition="{{ config.get('end') == '' }}")
    assert changed({"end": ""}, step) == {}
    assert changed({"end": "2024"}, step) == {"end": "2024"}


@pytest.mark.parametrize(
    ("step", "place", "what"),
    [
        (add(["x"], "{{ config['a']['b']['c'] }}"), "fields[0].value", "missing"),
        (add(["x"], "{{ 1 + 'secret' }}"), "fields[0].value", "wrong type"),
        (add([], "x"), "fields[0].path", "is empty"),
        (add(["text", "inner"], "x"), "fields[0]", "'text.inner' cannot be added"),
    ],
)
def test_a_change_that_fails_is_an_error_that_names_its_place(
    step: Json, place: str, what: str
) -> None:
    text = error_in(lambda: changed({"text": "t0p", "a": {}}, step))
    assert f"spec.config_normalization_rules.transformations[0].{place}" in text
    assert what in text
    assert "t0p" not in text


SMALL = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "old"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
PATHS = st.lists(st.sampled_from(["a", "b", "c", "0", "1"]), min_size=1, max_size=3)


@given(st.dictionaries(st.sampled_from("abc"), SMALL), PATHS)
def test_a_field_that_is_added_is_there_and_one_that_is_removed_is_not(
    config: Json, path: list[str]
) -> None:
    try:
        added = changed(config, add(path, "here"))
    except ConfigError as error:
        outcome = "refused" if "cannot be added" in str(error) else ""
    else:
        gone = _at(changed(added, remove(path)), path) is None
        outcome = "done" if _at(added, path) == "here" and gone else ""
    assert outcome


def _at(value: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


# --- checks ---------------------------------------------------------------------------------------

REPORTS: Json = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 1}, "code": {"enum": ["1", "2"]}},
    },
}


def adheres(path: list[str], schema: Any) -> Json:
    strategy = {"type": "ValidateAdheresToSchema", "base_schema": schema}
    return {"type": "DpathValidator", "field_path": path, "validation_strategy": strategy}


def predicate(value: Any, schema: Any) -> Json:
    strategy = {"type": "ValidateAdheresToSchema", "base_schema": schema}
    return {"type": "PredicateValidator", "value": value, "validation_strategy": strategy}


def check(config: Json, *validations: Json) -> None:
    check_config(rules(validations=list(validations)), config)


@pytest.mark.parametrize(
    "reports", [[], [{"name": "a"}], [{"name": "a", "code": "1"}], '[{"name": "a"}]']
)
def test_a_config_that_adheres_to_the_schema_is_valid(reports: Any) -> None:
    check({"reports": reports}, adheres(["reports"], REPORTS))


@pytest.mark.parametrize(
    ("reports", "what"),
    [
        ([{"code": "1"}], "config.reports.0: 'name' is a required property"),
        ([{"name": "a"}, {"name": ""}], "config.reports.1.name: "),
        ([{"name": "a", "code": 1}], "config.reports.0.code: is not one of"),
        ({"s3cr3t": 1}, "config.reports: is not of type"),
        ("[s3cr3t", "config.reports: it is a text that is not JSON"),
        ('{"name": "s3cr3t"}', "config.reports: is not of type"),
    ],
)
def test_a_violation_is_an_error_that_names_the_field_and_quotes_no_value(
    reports: Any, what: str
) -> None:
    text = error_in(lambda: check({"reports": reports}, adheres(["reports"], REPORTS)))
    assert what in text
    assert "s3cr3t" not in text


@pytest.mark.parametrize("schema", [{"type": "text"}, {"required": True}, {"$ref": "#/nowhere"}])
def test_a_schema_that_is_not_valid_is_an_error_until_it_is_corrected(schema: Any) -> None:
    text = error_in(lambda: check({"reports": [{"name": "s3cr3t"}]}, adheres(["reports"], schema)))
    assert "config.reports cannot be checked: the schema in the manifest is not valid" in text
    assert "correct the `base_schema` of the validation" in text and "s3cr3t" not in text
    check({"reports": [{"name": "a"}]}, adheres(["reports"], REPORTS))


def test_all_violations_are_named_in_one_error() -> None:
    text = error_in(
        lambda: check(
            {"a": 1, "b": [{"c": 2}, {"c": "x"}, {"d": 3}]},
            adheres(["a"], {"type": "array"}),
            adheres(["b", "*", "c"], {"type": "boolean"}),
        )
    )
    assert "config.a: " in text
    assert text.count("config.b.*.c: ") == 2


def test_a_field_that_the_config_does_not_have_is_not_checked() -> None:
    check({}, adheres(["a", "b"], {"type": "array"}), adheres(["a", "*", "b"], {"type": "array"}))


def test_the_path_of_a_check_may_use_the_config() -> None:
    path = ["a", "{{ config['which'] }}"]
    text = error_in(lambda: check({"which": "b", "a": {"b": 1}}, adheres(path, {"type": "array"})))
    assert "config.a.b: " in text


def test_a_schema_may_come_from_the_config() -> None:
    step = adheres(["a"], "{{ config['schema'] }}")
    check({"a": 1, "schema": {"type": "integer"}}, step)
    check({"a": 1, "schema": '{"type": "integer"}'}, step)
    assert "config.a: " in error_in(lambda: check({"a": [], "schema": {"type": "integer"}}, step))
    text = error_in(lambda: check({"a": 1, "schema": "none"}, step))
    assert "validations[0].validation_strategy.base_schema" in text


def test_the_schema_of_the_manifest_is_used_as_it_is_written() -> None:
    """A text in it that looks like a number, or like a template, stays what it is."""
    schema = {"enum": ["1", "{{ 1 }}", "[2]"]}
    for value in ('"1"', '"{{ 1 }}"', '"[2]"'):
        check({"a": value}, adheres(["a"], schema))
    assert "config.a: " in error_in(lambda: check({"a": 1}, adheres(["a"], schema)))


def test_a_schema_without_a_dialect_is_of_the_newest_one() -> None:
    schema = {"type": "array", "prefixItems": [{"type": "integer"}]}
    assert "config.a.0: " in error_in(lambda: check({"a": ["x"]}, adheres(["a"], schema)))


def test_a_value_of_the_manifest_can_be_checked() -> None:
    step = predicate("{{ config['a'] | length }}", {"type": "integer", "minimum": 2})
    check({"a": [1, 2]}, step)
    text = error_in(lambda: check({"a": [1]}, step))
    assert "spec.config_normalization_rules.validations[0].value: " in text


@pytest.mark.parametrize(
    ("path", "what"), [([], "field_path is empty"), (["a", "?"], "matches several values")]
)
def test_a_check_that_cannot_be_made_is_an_error_that_names_its_place(
    path: list[str], what: str
) -> None:
    text = error_in(lambda: check({"a": {"x": 1, "y": 2}}, adheres(path, {})))
    assert "spec.config_normalization_rules.validations[0]" in text
    assert what in text


# --- the specification ----------------------------------------------------------------------------


def test_the_advanced_auth_is_that_of_the_manifest() -> None:
    written = {
        "auth_flow_type": "oauth2.0",
        "predicate_key": ["credentials", "auth_type"],
        "predicate_value": "oauth2.0",
        "oauth_config_specification": {
            "complete_oauth_output_specification": {
                "type": "object",
                "properties": {"access_token": {"path_in_connector_config": ["access_token"]}},
            },
            "oauth_connector_input_specification": {"consent_url": "https://x.example"},
        },
    }
    assert read_advanced_auth(spec(advanced_auth=written)) == written


@pytest.mark.parametrize("without", [None, spec()])
def test_a_manifest_may_have_no_advanced_auth(without: components.Spec | None) -> None:
    assert read_advanced_auth(without) is None
