"""A team's project in which our component is a guest, and what of it must be as without the guest.

As a program, it loads the project, runs the team's job, and prints what it sees as JSON.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import locale
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

PYPROJECT = """
[project]
name = "acme"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "acme"
"""
ALONE = """
from pathlib import Path
import dagster as dg

defs = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
TOGETHER = """
from pathlib import Path
import elt_assets

defs = elt_assets.definitions_for(Path(__file__).parent / "defs")
"""
LIBRARY = """
import warnings
from pathlib import Path
import dagster as dg


class Greeting(dg.Component, dg.Model, dg.Resolvable):
    path: str
    words: list[str]
    token: str

    @classmethod
    def get_additional_scope(cls):
        return {"shout": lambda text: text.upper(), "python": __import__("sys").version_info.major}

    def build_defs(self, context):
        root = str(context.project_root)

        @dg.asset(name="greeting", metadata={"root": root, "token": self.token})
        def greeting():
            return {"path": self.path, "words": self.words, "root": root}

        return dg.Definitions(assets=[greeting])


class Inner(Greeting):
    def build_defs(self, context):
        return dg.Definitions(assets=[dg.AssetSpec(self.words[0], metadata={"path": self.path})])


class Shelf(dg.ConfigurableIOManager):
    folder: str

    def handle_output(self, context, obj):
        Path(self.folder).mkdir(exist_ok=True)
        (Path(self.folder) / context.asset_key.to_python_identifier()).write_text(repr(obj))

    def load_input(self, context):
        return eval((Path(self.folder) / context.asset_key.to_python_identifier()).read_text())
"""
FILES = {
    "pyproject.toml": PYPROJECT,
    "src/acme/__init__.py": "",
    "src/acme/lib.py": LIBRARY,
    "src/acme/defs/__init__.py": "",
    "src/acme/defs/greeting/variables.py": """
import dagster as dg

@dg.template_var
def twice():
    return lambda text: text * 2

@dg.template_var
def place(context):
    return str(context.path.name)
""",
    "src/acme/defs/greeting/defs.yaml": """
type: acme.lib.Greeting
template_vars_module: .variables
attributes:
  path: "{{ context.project_root }}/data"
  token: "{{ env.GUEST_TOKEN }}"
  words:
    - "{{ shout('hi') }} {{ twice('ho') }} {{ place }} {{ python }}"
    - "{% macro star(text) %}*{{ text }}*{% endmacro %}{{ star('x') }}"
    - "{% for n in range(3) %}{{ n }},{% endfor %}{{ cycler('a', 'b').next() }}"
    - "{{ datetime.timedelta(days=7).days ** 2 }} {{ '%05d' % 7 }} {{ [3, 1] | sort | list }}"
post_processing:
  assets:
    - target: "key:greeting"
      attributes:
        description: "{{ asset.key.to_user_string() | replace('g', 'G') }} {{ range(2) | list }}"
        tags: {zone: "{{ shout('eu') | lower }}"}
        automation_condition: "{{ dg.AutomationCondition.eager().with_label('x') }}"
""",
    "src/acme/defs/greeting/defs.notes.yaml": "not: [an overlay",
    "src/acme/defs/shelf/defs.yaml": """
type: dagster.DefsFolderComponent
post_processing:
  assets:
    - attributes: {group_name: "{{ 'she' ~ 'lf' }}"}
""",
    "src/acme/defs/shelf/defs.prod.yaml": "attributes: {}",
    "src/acme/defs/shelf/two/defs.yaml": """
type: acme.lib.Inner
attributes: {path: "{{ context.project_root }}", words: [one], token: x}
---
type: acme.lib.Inner
attributes: {path: "{{ project_root }}/x", words: [two], token: x}
""",
    "src/acme/defs/team.py": """
import dagster as dg
from acme.lib import Shelf

DAYS = dg.StaticPartitionsDefinition(["a", "b"])

@dg.asset
def settings() -> dict:
    return {"answer": 42}

@dg.asset(io_manager_key="shelf", owners=["team:core"])
def numbers(settings):
    return [settings["answer"], {"x": None}]

@dg.asset(partitions_def=DAYS)
def letters(context, settings):
    return context.partition_key

@dg.asset_check(asset="numbers")
def has_numbers(numbers):
    return dg.AssetCheckResult(passed=numbers[0] == 42)

@dg.asset(required_resource_keys={"lake", "spark"})
def made(context):
    return (context.resources.lake, context.resources.spark)

job = dg.define_asset_job("team", ["greeting", "settings", "numbers", "made"])

@dg.sensor(job=job)
def watch():
    return dg.SkipReason("nothing")

@dg.definitions
def defs():
    shelf = Shelf(folder=dg.EnvVar("GUEST_SHELF"))
    return dg.Definitions(
        assets=[settings, numbers, letters, made],
        asset_checks=[has_numbers],
        jobs=[job],
        sensors=[watch],
        schedules=[dg.ScheduleDefinition(job=job, cron_schedule="@daily")],
        resources={"shelf": shelf, "spark": "theirs", "lake": {"level": 3}},
    )
""",
}
_VOLATILE = ("dagster/component_origin", "dagster_dbt/manifest")
"""Metadata that name an object, or the time at which dbt has read its project."""
SYNCED = "GUEST_SYNCED"
"""Variable with which the program syncs the connection too, at its end."""
CONNECTION = """
type: elt_assets.ConnectionComponent
attributes:
  name: crm
  source: {connector: faker, config: {count: 3}}
  streams: [{name: users, destination_sync_mode: overwrite}]
"""


def write_project(root: Path, catalog: str | None = None, **more: str) -> None:
    """Write the team's project; with a connection if there is a catalog for it."""
    files = {**FILES, **more, "src/acme/definitions.py": ALONE if catalog is None else TOGETHER}
    if catalog is not None:
        files["src/acme/defs/crm/defs.yaml"] = CONNECTION
        files["src/acme/defs/crm/catalog.json"] = catalog
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def observe(root: Path, python: str = sys.executable, **more: str) -> dict[str, Any]:
    """Return what a process of its own sees of a project; with the same paths for each root.

    Args:
        more: more variables of its environment.
    """
    done = subprocess.run(
        [python, __file__],
        env={**make_environment(root, python), **more},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    line = done.stdout.splitlines()[-1].replace(str(root), "ROOT")
    seen: dict[str, Any] = json.loads(line)
    return seen


def make_environment(root: Path, python: str = sys.executable) -> dict[str, str]:
    """Return the variables of a process of the project."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ELT_", "PYTHON"))}
    (root / "home").mkdir(exist_ok=True)
    own = {
        "DAGSTER_HOME": str(root / "home"),
        "GUEST_TOKEN": "a-token",
        "GUEST_SHELF": str(root / "shelf"),
        "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(root / "src"),
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "0",
    }
    return {**inherited, **own}


def describe_process() -> dict[str, Any]:
    """Return what all code of a process shares."""
    handlers = {str(number): str(signal.getsignal(number)) for number in signal.valid_signals()}
    root = logging.getLogger()
    return {
        "warnings": sorted(map(str, warnings.filters)),
        "frozen": gc.get_freeze_count(),
        "gc": [gc.isenabled(), gc.get_threshold()],
        "environment": {k: v for k, v in os.environ.items() if k != "_"},
        "signals": handlers,
        "path": sys.path,
        "logging": [root.level, list(map(str, root.handlers)), logging.root.manager.disable],
        "umask": [os.umask(0o22), os.umask(0o22)][-1],
        "locale": locale.setlocale(locale.LC_ALL),
        "recursion": sys.getrecursionlimit(),
        "hooks": [str(sys.excepthook), str(threading.excepthook), str(sys.unraisablehook)],
        "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
        "folder": str(Path.cwd()),
    }


def main() -> None:
    before = describe_process()
    importlib.import_module("elt_assets")
    assert describe_process() == before, "an import of elt_assets alone has an effect"
    import dagster as dg
    from dagster._core.definitions.data_version import CachingStaleStatusResolver
    from dagster._core.loader import LoadingContextForTest

    with warnings.catch_warnings(record=True) as recorder:
        warnings.simplefilter("always")
        defs = importlib.import_module("acme.definitions").defs
        repository = defs.get_repository_def()
    graph = defs.resolve_asset_graph()
    specs = {spec.key: spec for spec in defs.resolve_all_asset_specs()}
    theirs = {key: spec for key, spec in specs.items() if key.path[0] != "crm"}
    with dg.DagsterInstance.get() as instance:
        job = defs.resolve_job_def("team")
        result = job.execute_in_process(instance=instance)
        letters = defs.resolve_implicit_global_asset_job_def()
        letters.execute_in_process(
            instance=instance, asset_selection=[dg.AssetKey("letters")], partition_key="a"
        )
        statuses = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        stale = {
            key.to_user_string(): statuses.get_status(key).value
            for key in theirs
            if key.path != ["letters"]
        }
        events = sorted(
            (event.event_type_value, str(event.step_key), str(event.asset_key))
            for event in result.all_events
        )
    storage = Path(os.environ["DAGSTER_HOME"]) / "storage"
    print()
    seen = {
        "specs": {key.to_user_string(): _describe_spec(spec) for key, spec in theirs.items()},
        "order": [str(key) for asset in defs.assets for key in _keys(asset) if key in theirs],
        "resources": {
            key: type(value).__name__
            for key, value in repository.get_top_level_resources().items()
            if not key.startswith("elt_")
        },
        "job resources": {
            key: (str(value.config_schema.as_field().is_required), str(value.description))
            for key, value in job.resource_defs.items()
            if not key.startswith("elt_")
        },
        "jobs": _names(defs.resolve_all_job_defs()),
        "schedules": _names(repository.schedule_defs),
        "sensors": _names(repository.sensor_defs),
        "checks": [str(key) for key in graph.asset_check_keys if key.asset_key.path[0] != "crm"],
        "root": str(defs.component_tree.project_root),
        "module": defs.component_tree.defs_module_name,
        "success": result.success,
        "events": events,
        "values": {
            str(path.relative_to(storage)): repr(pickle.loads(path.read_bytes()))
            for path in storage.rglob("*")
            if path.is_file() and path.parent.name != "compute_logs" and _is_value(path, storage)
        },
        "shelf": {p.name: p.read_text() for p in Path(os.environ["GUEST_SHELF"]).iterdir()},
        "stale": stale,
        "shown": sorted({f"{w.category.__name__}: {w.message}" for w in recorder}),
        "process": describe_process(),
    }
    if SYNCED in os.environ:
        job = defs.resolve_implicit_global_asset_job_def()
        with dg.DagsterInstance.get() as instance:
            result = job.execute_in_process(
                instance=instance, asset_selection=[dg.AssetKey(["crm", "users"])]
            )
        assert result.success
        seen["process after a sync"] = describe_process()
    print(json.dumps(seen, default=str))


def _is_value(path: Path, storage: Path) -> bool:
    return path.relative_to(storage).parts[0] in ("greeting", "settings", "letters", "made")


def _keys(asset: Any) -> list[Any]:
    return [spec.key for spec in getattr(asset, "specs", [asset])]


def _names(definitions: Any) -> list[str]:
    return sorted(d.name for d in definitions if not d.name.startswith(("crm_", "elt_", "__")))


def _describe_spec(spec: Any) -> dict[str, str]:
    fields = [
        *("deps", "description", "skippable", "group_name", "code_version", "freshness_policy"),
        *("automation_condition", "owners", "tags", "partitions_def", "kinds"),
    ]
    values = {name: _describe(getattr(spec, name)) for name in fields}
    own = {k: _describe(v) for k, v in spec.metadata.items() if k not in _VOLATILE}
    return {**values, "metadata": str(own)}


def _describe(value: Any) -> str:
    """Return a text that is the same in each process."""
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if isinstance(value, dict):
        value = dict(sorted(value.items()))
    return re.sub(r"\b(0x[0-9a-f]+|\d{12,})\b", "ID", str(value))


if __name__ == "__main__":
    main()
