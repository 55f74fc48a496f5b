"""Templates in the YAML of connections run no code, and use little time and memory."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.resolved.errors import ResolutionException
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.connection import check_post_processing, place_in
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from elt_assets.orchestration import tree
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.templates import evaluate
from tests.programs.windowed_source import windowed
from tests.support.project import Project

READINGS = dg.AssetKey(["weather", "readings"])


def escapes(target: Path) -> list[str]:
    """Templates that would create a file in Jinja without a sandbox, or get at what leads to it."""
    code = f"open('{target}', 'w')"
    run = f"os.system('touch {target}')"
    pickled = f"cbuiltins\nexec\n(V{code}\ntR."
    return [
        f"{{{{ cycler.__init__.__globals__.{run} }}}}",
        f"{{{{ lipsum.__globals__.{run} }}}}",
        f"{{{{ lipsum.__globals__['os'].popen('touch {target}').read() }}}}",
        f"{{{{ self.__init__.__globals__.__builtins__.{code} }}}}",
        f"{{{{ spec|attr('__class__')|attr('__init__')|attr('__globals__') or {code} }}}}",
        f"{{{{ dg.AutomationCondition.eager.__func__.__globals__.{run} }}}}",
        f"{{{{ dg['_wrapped_object'].os.{run} }}}}",
        f"{{{{ connection.parse_raw({json.dumps(pickled)}, proto='pickle', allow_pickle=True) }}}}",
        f"{{{{ connection.parse_file('{__file__}') }}}}",
        "{{ '{0.__class__.__init__.__globals__}'.format(spec) }}",
        "{{ '%(x)s'.__mod__({'x': spec}).__class__.__mro__ }}",
        f"{{% set x = cycler.__init__.__globals__.{run} %}}{{{{ x }}}}",
        f"{{% macro f() %}}{{{{ {code} }}}}{{% endmacro %}}{{{{ f() }}}}",
        f"{{% include '{__file__}' %}}",
        f"{{{{ ((spec.__class__.__mro__)[-1].__subclasses__())[0]({code}) }}}}",
        "{{ spec.key.__reduce_ex__(2) }}",
        "{{ env.__class__.__init__.__globals__ }}",
        "{{ spec.replace_attributes(key='other') }}",
    ]


BOMBS = [
    "{{ range(10**9) | list }}",
    "{{ 'a' * 10**9 }}",
    "{{ 'a' * 1000000000 }}",
    "{{ [0] * 1000000000 }}",
    "{{ 9**9**9 }}",
    "{{ 'a'.ljust(1000000000) }}",
    "{{ 'a'.zfill(1000000000) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ 'a\t'.expandtabs(1000000000) }}",
    "{{ ''.join(['a' * 1000] * 1000 * 1000) }}",
    "{{ [['a' * 1000] * 1000] * 1000 }}",
    "{{ 'a' | center(1000000000) }}",
    "{{ ('a' * 1000)" + ".replace('a', 'aaaaaaaaaa')" * 20 + " }}",
    "{{ ('a' * 1000)" + " | replace('a', 'aaaaaaaaaa')" * 20 + " }}",
    "{{ lipsum(n=100000000) }}",
    "{{ (1).to_bytes(1000000000, 'big') }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ " + "(" * 4000 + "1" + ")" * 4000 + " }}",
    "{{ 'a' }}" * 10_000,
    "{{ dg.HourlyPartitionsDefinition(start_date='0001-01-01-00:00').get_partition_keys() }}",
]

SCOPE = {
    **dg.ResolutionContext.default().scope,
    "spec": dg.AssetSpec("a/b"),
    "twice": lambda value: value * 2,
}


@pytest.mark.parametrize("template", BOMBS, ids=range(len(BOMBS)))
def test_a_template_uses_little_time_and_memory(template: str) -> None:
    before = time.process_time()
    with pytest.raises(ResolutionException, match="cannot be evaluated"):
        evaluate(template, SCOPE, "here")
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{ 'raw/' ~ spec.key.to_user_string() }}", "raw/a/b"),
        ("{{ spec.key.path | join('_') | upper }}", "A/B"),
        ("{{ dg.AutomationCondition.on_cron('0 6 * * *') }}", None),
        ("{{ dg.AutomationCondition.eager().with_label('x') }}", None),
        ("{{ dg.DailyPartitionsDefinition(start_date='2026-01-01') }}", None),
        ("{{ dg.FreshnessPolicy.time_window(fail_window=datetime.timedelta(hours=24)) }}", None),
        ("{{ env.TEAM_NAME }}-{{ env('NOT_SET', 'x') }}", "core-x"),
        ("{{ 'a' if spec.description else 'b' }}", "b"),
        ("{{ twice(21) }}", 42),
        ("{{ 2 * 21 }}", 42),
        ("[1, 2]", [1, 2]),
        ("plain", "plain"),
        ("(" * 20_000, "(" * 20_000),
    ],
    ids=str,
)
def test_templates_of_dagsters_documentation_work(
    template: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_NAME", "core")
    context = dg.ResolutionContext(scope=SCOPE)
    expected = context.resolve_value(template) if value is None else value
    assert repr(evaluate(template, SCOPE, "here")) == repr(expected)


@pytest.mark.parametrize(
    "template",
    ["{{ env.ELT_HASH_SALT }}", "{{ env('DAGSTER_PG_DB') }}", "{{ env('SHOP_TOKEN', 'x') }}"],
)
def test_a_template_reads_no_credential(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ELT_HASH_SALT", "DAGSTER_PG_DB", "SHOP_TOKEN"):
        monkeypatch.setenv(name, "a-secret")
    with pytest.raises(ResolutionException) as caught:
        evaluate(template, SCOPE, "here")
    assert "a-secret" not in str(caught.value)


_NAMES = st.sampled_from(
    ["spec", "env", "dg", "datetime", "twice", "self", "cycler", "lipsum", "''", "[]", "{}", "1"]
)
_STEPS = st.sampled_from(
    [
        *(".__class__", ".__globals__", ".__init__", ".__mro__", ".__subclasses__()", ".__self__"),
        *(".__builtins__", ".gi_frame", ".f_globals", "['__class__']", "|attr('__class__')"),
        *(".__func__", ".__wrapped__", ".__reduce__()", "._replace", ".format", "()", "[0]"),
        *(".key", ".path", ".to_user_string", ".AutomationCondition", ".eager", ".datetime"),
    ]
)


@given(_NAMES, st.lists(_STEPS, max_size=5))
def test_no_path_leads_to_a_function_that_runs_code(name: str, steps: list[str]) -> None:
    try:
        value = evaluate(f"{{{{ {name}{''.join(steps)} }}}}", SCOPE, "here")
    except ResolutionException:
        return
    assert not any("__" in step for step in steps)
    assert value is not __builtins__ and not isinstance(value, type(time))


def test_no_escape_runs_code_while_definitions_load(own: Project, tmp_path: Path) -> None:
    windowed(own)
    target = tmp_path / "escaped"
    folder = own.root / "defs" / "weather"
    for template in escapes(target):
        own.amend("weather", translation={"description": template})
        for load in (
            build,
            lambda: ConnectionComponent.load_at(place_in(folder)).definitions(),
        ):
            with pytest.raises(ConfigError, match="cannot be evaluated"):
                load()
    assert not target.exists()


def test_no_escape_is_left_for_dagster_to_evaluate(tmp_path: Path) -> None:
    hostile = [*escapes(tmp_path / "escaped"), *BOMBS, "{{ 'a' ~ asset }}", "{{ asset['key'] }}"]
    for template in hostile:
        for value in ({"assets": [{"target": template}]}, [template], template):
            with pytest.raises(ConfigError, match=r"x: .*cannot be evaluated"):
                check_post_processing(value, Path("x"))


def test_post_processing_has_names_and_their_attributes(
    own: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windowed(own)
    monkeypatch.setenv("TEAM_NAME", "core")
    monkeypatch.setenv("SHOP_TOKEN", "a-secret")
    file, target = own.root / "defs" / "weather" / "defs.yaml", tmp_path / "escaped"
    connection = file.read_text()

    def write(template: str) -> None:
        processing = {"assets": [{"target": "*", "attributes": {"description": template}}]}
        file.write_text(f"{connection}\npost_processing: {json.dumps(processing)}\n")

    write("in {{asset.group_name}}, of {{ env.TEAM_NAME }}, {{ env('NOT_SET', 'x') }}")
    description = build().resolve_asset_graph().get(READINGS).description
    assert description == "in weather, of core, x"
    for template in ("{{ env.SHOP_TOKEN }}", escapes(target)[0]):
        write(template)
        with pytest.raises(ConfigError, match=r"defs\.yaml: .*cannot be evaluated") as caught:
            build()
        assert "a-secret" not in str(caught.value)
    with monkeypatch.context() as patch:
        patch.setattr(tree, "find_refused_files", lambda _: ())  # as with Dagster's own loader
        with pytest.raises(ConfigError, match="cannot be evaluated"):
            build()
    monkeypatch.setenv(
        "ELT_ON_BROKEN_CONNECTION", "skip"
    )  # Dagster evaluates it after an error too
    assert "weather" in {key.to_user_string() for key in build().resolve_all_asset_keys()}
    assert not target.exists()
