"""Templates in the YAML of connections are names, at each level, and run no code."""

from __future__ import annotations

import json
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.nativetypes import NativeEnvironment

from elt_assets.connection import Connection, check_post_processing, load_connection
from elt_assets.connection.templates import (
    TemplateError,
    fill,
    resolve_attributes,
    write_literally,
)
from elt_assets.errors import ConfigError

CONNECTION = """
type: elt_assets.ConnectionComponent
template_vars_module: {module}
attributes:
  name: crm
  namespace: "{{{{ env('AREA', 'raw') }}}}"
  source:
    command: ["{{{{ context.project_root }}}}/source", "{{{{ zone }}}}"]
    config:
      token: "{{{{ env.CRM_TOKEN }}}}"
      own:
        - "{{{{ zone }}}}"
        - "{{{{ context.project_root }}}}/x-{{{{ zone }}}}-{{{{ env.PORT }}}}"
        - "{{{{ key }}}}"
      other:
        ["{{{{ config.x }}}}", "{{{{ context.y }}}}", "{{{{ zone", "{{% x %}}", {{literal: "{{{{ zone }}}}"}}]
    environment: {{TOKEN: "{{{{ env.CRM_TOKEN }}}}"}}
  schedule: "{{{{ cron }}}}"
  tags: {{port: "{{{{ env.PORT }}}}", text: "a-{{{{ zone }}}}-{{{{ env.PORT }}}}"}}
  retry: {{attempts: "{{{{ env.PORT }}}}"}}
  heartbeat: "{{{{ env.PORT }}}}m"
  checkpoint: {{seconds: "{{{{ limits.seconds }}}}"}}
  translation: {{group_name: "{{{{ stream.name }}}}"}}
  streams:
    - name: "{{{{ zone }}}}_users"
      history: "{{{{ is_kept }}}}"
      destination_sync_mode: append_dedup
      primary_key: "{{{{ key }}}}"
      checks: {{changed: {{max: "{{{{ limits.share.most }}}}"}}}}
      description: "{{{{ '{{{{' }}}} is written by hand }}}}"
"""
VARIABLES = """
import dagster as dg

@dg.template_var
def zone(): return "eu"

@dg.template_var
def cron(): return "0 6 * * *"

@dg.template_var
def is_kept(): return True

@dg.template_var
def key(): return [["id"]]

@dg.template_var
def limits(): return {"seconds": 120, "share": {"most": 0.5}}

@dg.template_var
def where(context: dg.ComponentLoadContext): return str(context.path)

def helper(): return "no variable"
"""


def load(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch, **variables: str) -> Connection:
    for name in ("AREA", "PORT", "CRM_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    module = f"variables_{folder.name}"
    (folder / f"{module}.py").write_text(VARIABLES)
    monkeypatch.syspath_prepend(str(folder))
    (folder / "defs.yaml").write_text(textwrap.dedent(text.format(module=module)))
    return load_connection(folder)


def test_templates_are_evaluated_at_every_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(tmp_path, CONNECTION, monkeypatch, PORT="5", CRM_TOKEN="hunter2")
    assert loaded.namespace == "raw" and loaded.schedule == "0 6 * * *"
    assert loaded.source.value[0].endswith("/source") and loaded.source.value[1] == "eu"
    assert loaded.tags == {"port": "5", "text": "a-eu-5"}
    assert loaded.retry.attempts == 5 and loaded.checkpoint.seconds == 120
    assert loaded.heartbeat.total_seconds() == 300
    (stream,) = loaded.streams
    assert (stream.name, stream.history, stream.primary_key) == ("eu_users", True, [["id"]])
    assert stream.description == "{{ is written by hand }}"
    # What is evaluated later is as it was written.
    config = loaded.source.config
    assert config["token"] == "{{ env.CRM_TOKEN }}"
    root = loaded.source.value[0].removesuffix("/source")
    assert config["own"] == ["eu", f"{root}/x-eu-{{{{ env.PORT }}}}", [["id"]]]
    other = ["{{ config.x }}", "{{ context.y }}", "{{ zone", "{% x %}", {"literal": "{{ zone }}"}]
    assert config["other"] == other
    assert loaded.source.environment == {"TOKEN": "{{ env.CRM_TOKEN }}"}
    assert loaded.translation == {"group_name": "{{ stream.name }}"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: crm", 'name: "{{{{ zone }}}}"', "name: the name of a connection cannot be a template"),
        ("{{{{ cron }}}}", "{{{{ env.NOT_SET }}}}", "schedule: .*variable NOT_SET is not set"),
        ("{{{{ cron }}}}", "{{{{ env('NOT_SET') }}}}", "schedule: .*variable NOT_SET is not set"),
        ("{{{{ cron }}}}", "{{{{ env.CRM_TOKEN }}}}", "schedule: .*CRM_TOKEN, which may hold a credential"),
        ("{{{{ cron }}}}", "{{{{ env.ELT_LAKE }}}}", "schedule: .*ELT_LAKE"),
        ("{{{{ cron }}}}", "{{{{ corn }}}}", "schedule: .*'corn' is undefined; it can use .*cron"),
        ("{{{{ cron }}}}", "{{{{ helper }}}}", "schedule: .*'helper' is undefined"),
        ("{{{{ cron }}}}", "{{{{ where }}}}", "variable where needs the context of Dagster"),
        ("{{{{ cron }}}}", "{{{{ zone.upper }}}}", "schedule: .*'zone.upper' is a function"),
        ("share.most", "share.all", r"streams\.0\.checks\.changed\.max: .*'limits.share.all' has no 'all'"),
        ("module: {module}", "module: no_such_module", "template_vars_module: the module 'no_such_module'"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_evaluated_is_reported_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        load(tmp_path, CONNECTION.replace(old, new), monkeypatch, PORT="5", CRM_TOKEN="hunter2")
    assert error.value.guidance and "hunter2" not in str(error.value)


ESCAPES = [
    "{{ cycler.__init__.__globals__.os.system('touch x') }}",
    "{{ self.__init__.__globals__.__builtins__ }}",
    "{{ value|attr('__class__') }}",
    "{{ value['__class__'] }}",
    "{{ value.__class__.__mro__ }}",
    "{{ value.format(1) }}",
    "{{ env.__class__ }}",
    "{{ env.get('HOME') }}",
    "{{ env(name) }}",
    "{{ '{0.__class__}'.format(value) }}",
    "{{ 'a' * 10**9 }}",
    "{{ 'a' ~ value }}",
    "{{ 9**9**9 }}",
    "{{ (value) }}",
    "{{- value -}}",
    "{{ value",
    "{{ {{ value }} }}",
    "{{ " + "(" * 4000 + "1" + ")" * 4000 + " }}",
    "{{ 'a' }}" * 10_000,
    '{{ "' * 5_000,
    "{{ " + " " * 1_000_000,
    "{{ " + "a." * 500_000,
]


@pytest.mark.parametrize("template", ESCAPES, ids=range(len(ESCAPES)))
def test_what_is_no_name_is_refused_everywhere_and_at_once(template: str) -> None:
    before = time.process_time()
    with pytest.raises(TemplateError, match=r"here: the template .* cannot be evaluated"):
        fill(template, {"value": "v", "name": "HOME"}, "here")
    for value in ({"assets": [{"target": template}]}, [template], template):
        with pytest.raises(ConfigError, match=r"x: post_processing.* cannot be evaluated"):
            check_post_processing(value, Path("x"))
    assert time.process_time() - before < 2


@pytest.mark.parametrize("text", ["{% set x = 1 %}", "{% include 'x' %}", "{# value #}", "{#"])
def test_a_statement_is_text_of_an_attribute_without_templates_and_an_error_elsewhere(
    text: str,
) -> None:
    assert resolve_attributes({"description": text}, Path("x"), {}) == {"description": text}
    with pytest.raises(ConfigError, match=r"description.* it has a statement or a comment"):
        resolve_attributes({"description": f"{text}{{{{ value }}}}"}, Path("x"), {"value": "v"})
    with pytest.raises(TemplateError, match="it has a statement or a comment"):
        fill(text, {}, "here")  # as a translation is filled in
    with pytest.raises(ConfigError, match="it has a statement or a comment"):
        check_post_processing({"assets": [text]}, Path("x"))


_NAMES = st.sampled_from(["value", "env", "self", "cycler", "''", "[]", "{}", "1"])
_STEPS = st.sampled_from(
    [
        *(".__class__", ".__globals__", ".__init__", ".__subclasses__()", "['__class__']"),
        *("|attr('__class__')", "._replace", ".format", "()", "[0]", ".real", ".upper", " ", "\n"),
    ]
)


@given(_NAMES, st.lists(_STEPS, max_size=5))
def test_no_path_leads_to_a_function_or_a_private_name(name: str, steps: list[str]) -> None:
    template = f"{{{{ {name}{''.join(steps)} }}}}"
    try:
        value = fill(template, {"value": 5}, "here")
    except TemplateError:
        return
    assert not any("_" in step for step in steps)
    assert isinstance(value, str | int)


@given(st.text() | st.text(alphabet="{}%#'\"\\ \nabc"))
def test_a_text_of_somebody_else_is_written_so_that_it_is_read_as_it_is(text: str) -> None:
    template = write_literally(text)
    assert resolve_attributes({"description": template}, Path("x"), {}) == {"description": text}
    if template != text:
        check_post_processing(template, Path("x"))


@given(st.lists(st.sampled_from(["{{ a.b }}", "{{c}}", "{{ 'x' }}", "text", "{", "}", " "])))
def test_what_is_accepted_is_what_dagster_makes_of_it(parts: list[str]) -> None:
    text = "".join(parts) + "."
    scope: dict[str, Any] = {"a": {"b": "B"}, "c": "C"}
    try:
        value = fill(text, scope, "here")
    except TemplateError:
        return
    assert value == NativeEnvironment().from_string(text).render(scope)


@pytest.mark.parametrize("name", ["ELT_HASH_SALT", "DAGSTER_PG_DB", "SHOP_TOKEN"])
def test_no_template_reads_a_credential(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "a-secret")
    for template in (f"{{{{ env.{name} }}}}", f"{{{{ env('{name}', 'x') }}}}"):
        with pytest.raises(TemplateError) as caught:
            fill(template, {}, "here")
        with pytest.raises(ConfigError) as refused:
            check_post_processing(json.dumps([template]), Path("x"))
        assert "a-secret" not in f"{caught.value}{refused.value}"
