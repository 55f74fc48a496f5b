"""Templates in the attributes of a connection, at each level."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from elt_assets.connection import Connection, load_connection
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
  checkpoint: {{seconds: "{{{{ 60 * 2 }}}}"}}
  translation: {{group_name: "{{{{ stream.name }}}}"}}
  streams:
    - name: "{{{{ zone }}}}_users"
      history: "{{{{ is_kept }}}}"
      destination_sync_mode: append_dedup
      primary_key: "{{{{ key }}}}"
      checks: {{changed: {{max: "{{{{ ratio(2) }}}}"}}}}
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
def ratio(): return lambda n: 1 / n

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
        ("{{{{ cron }}}}", "{{{{ 'a' * 10**9 }}}}", "schedule: .*is not available"),
        ("{{{{ ratio(2) }}}}", "{{{{ ratio(0) }}}}", r"streams\.0\.checks\.changed\.max: .*division"),
        ("module: {module}", "module: no_such_module", "template_vars_module: the module 'no_such_module'"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_evaluated_is_reported_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        load(tmp_path, CONNECTION.replace(old, new), monkeypatch, PORT="5", CRM_TOKEN="hunter2")
    assert error.value.guidance and "hunter2" not in str(error.value)
