"""The project of this process: where it is, its settings, and the Python objects that they name.

They serve its connections, its assets built in Python and every `elt` command. Most are read by `paths`,
others by `storage`, `runner`, `connection`, `pipeline`, `orchestration` and `elt`.

A setting comes from these places, of which the later take precedence:

1. `[tool.elt]` in the project's `pyproject.toml`;
2. `[tool.elt.env.NAME]` in it, where NAME is the environment (`ELT_ENV`): merged key by key;
3. the environment variable `ELT_<KEY>`.

The project is the nearest folder, from the working directory upwards, whose `pyproject.toml` has `[tool.elt]`
or `[tool.dg.project]`. A code location may be served from another working directory, so `definitions_for` and
components call `use_project` with the folder in which they stand.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from elt_assets.branches import ENVIRONMENT, VARIABLES, environment
from elt_assets.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT_FILE = "pyproject.toml"
PROJECT = "ELT_PROJECT"
_TABLE = "tool.elt"
_ENVIRONMENTS = "env"
_FUNCTION = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"
_VAULT_KEY = "vault_key"
_REFERENCES = frozenset({"env", "file", "secret"})
"""The keys of references, which stand for a value."""
_PATHS = ("lake", "vault", "staging", "spark", "storage_options", "defs")
"""Settings that may hold a path, which in `pyproject.toml` is relative to the project."""

ObjectName = Annotated[str, Field(pattern=f"^{_FUNCTION}$")]
"""An object of a module: `package.module:name`."""

Reference = Annotated[
    dict[Literal["env", "file", "secret"], str], Field(min_length=1, max_length=1)
]
"""A value that is read when it is used: `{env = "NAME"}`, `{file = "PATH"}` or `{secret = "NAME"}`."""


class _CatalogSettings(BaseModel):
    """The settings `[tool.elt.catalog]`: the catalog in which the lake's Delta tables are registered."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )

    database: str = "{connection}"
    """Database of a table, or schema in Unity Catalog: a template with {connection} and {namespace}."""
    dead_letters: bool = False
    """Whether dead letters are registered too."""
    comments: bool = True
    """Whether entries show the comments of tables and columns."""


class GlueSettings(_CatalogSettings):
    """The settings of AWS Glue. What is not set, boto3 takes from its own variables and files."""

    type: Literal["glue"]
    """The kind of catalog: AWS Glue."""
    region: str | None = None
    """Region of AWS."""
    endpoint: str | None = None
    """URL of another server that answers as Glue does."""
    catalog_id: str | None = None
    """Account of AWS whose catalog it is, if it is another one."""
    profile: str | None = None
    """Profile in the files of boto3."""
    access_key_id: Reference | None = None
    """Reference to the access key, in place of the one that boto3 finds."""
    secret_access_key: Reference | None = None
    """Reference to the secret of the access key."""
    session_token: Reference | None = None
    """Reference to the session token of a temporary access key."""


class HiveSettings(_CatalogSettings):
    """The settings of a Hive Metastore."""

    type: Literal["hive"]
    """The kind of catalog: a Hive Metastore."""
    uri: str | Reference
    """Addresses, thrift://HOST:PORT, separated by commas; or a reference to them."""
    s3_scheme: Literal["s3", "s3a"] = "s3a"
    """Scheme of the places of tables in S3."""


class UnitySettings(_CatalogSettings):
    """The settings of Unity Catalog: the open-source server, or a workspace of Databricks."""

    type: Literal["unity"]
    """The kind of catalog: Unity Catalog."""
    url: str | Reference
    """URL of the server or of the workspace, or a reference to it."""
    catalog: str
    """Name of the catalog."""
    token: Reference | None = None
    """Reference to the token, if the server needs one."""
    replace_entries: bool = False
    """Whether an entry is removed and made again to show other columns."""


class NoCatalog(BaseModel):
    """The settings of an environment without a catalog, in a project that has one."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)

    type: Literal["none"]
    """The kind of catalog: none."""


CatalogSettings = GlueSettings | HiveSettings | UnitySettings


class IcebergSettings(BaseModel):
    """The settings `[tool.elt.iceberg]`: the catalog in which the lake's tables are published in Iceberg."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )

    catalog: dict[str, Any] = Field(min_length=1)
    """Properties of the catalog, as pyiceberg has them, and its `name`; values may be references."""
    namespace: str = "{connection}"
    """Namespace of a table: a template with {connection} and {namespace}."""
    tables: Literal["all", "none"] = "all"
    """Which tables are published whose `iceberg` is not set in defs.yaml."""
    dead_letters: bool = False
    """Whether the dead letters of published tables are published too."""


class EmailSettings(BaseModel):
    """Where e-mails with alerts go, and the server that sends them."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        populate_by_name=True,
    )

    to: list[str] = Field(min_length=1)
    """Addresses of those who get them."""
    sender: str = Field(alias="from")
    """Address that they are from."""
    host: str
    """Name of the SMTP server."""
    port: int = Field(587, ge=1, le=65_535)
    """Port of the server."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """Whether the connection is encrypted: after STARTTLS, from its beginning, or not."""
    user: str | Reference | None = None
    """Name of the user, or a reference to it, if the server wants a login."""
    password: Reference | None = None
    """Reference to the password of the user."""


class AlertSettings(BaseModel):
    """The settings `[tool.elt.alerts]`: who is told of what goes wrong, and of what."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )

    slack: Reference | None = None
    """Reference to the URL of an incoming webhook of Slack."""
    teams: Reference | None = None
    """Reference to the URL of a webhook of a workflow in Teams."""
    email: EmailSettings | None = None
    """Addresses and SMTP server."""
    on: list[Literal["failed", "checks", "stale", "schema"]] = Field(
        ["failed", "checks", "stale", "schema"], min_length=1
    )
    """Of what people are told: failed runs, failed checks, stale streams, changes of columns."""
    warnings: bool = False
    """Whether failed checks of severity WARN are told too."""
    default_status: Literal["running", "stopped"] = "running"
    """Whether the sensor is on as long as nobody has turned it on or off in Dagster."""

    @model_validator(mode="after")
    def _check_target(self) -> AlertSettings:
        if self.slack is None and self.teams is None and self.email is None:
            raise ValueError("name who is told: `slack`, `teams` or `email`")
        return self


class MaintenanceSchedule(BaseModel):
    """When the job `elt_maintenance` runs."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    cron: str = "0 3 * * 0"
    """Its times; default: Sundays at 03:00."""
    default_status: Literal["running", "stopped"] = "stopped"
    """Whether it is on as long as nobody has turned it on or off in Dagster."""


class Settings(BaseSettings):
    """The settings of a project, see the module. A value None has the default that its reader documents."""

    model_config = SettingsConfigDict(
        env_prefix="ELT_",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    defs: str | None = Field(
        None, description="Folder of the connections; default: the dg project's `defs`."
    )
    lake: str | None = Field(None, description="Root of the tables, a path or URI.")
    storage_options: Annotated[str | dict[str, str] | None, NoDecode] = Field(
        None,
        description="Options of the lake's object store, or the path of a YAML file that has them.",
    )
    staging: str | None = Field(None, description="Staging of uncommitted records, a path or URI.")
    spark: Annotated[str | dict[str, str] | None, NoDecode] = Field(
        None, description="Spark settings by their names, or the path of a file of them."
    )
    spark_archive: str | None = Field(
        None, description="`off`: no archive of Spark's classes is made."
    )
    resources: ObjectName | None = Field(
        None, description="The project's resources: a mapping, or a function that returns one."
    )
    secrets: ObjectName | None = Field(
        None, description="The function that returns the secret of a name, for `{secret: NAME}`."
    )
    on_broken_connection: Literal["fail", "skip"] = Field(
        "fail",
        description="`skip`: a connection that cannot be loaded is a failed check, and the others load.",
    )
    vault: str | None = Field(
        None,
        description="Encrypted store of rotated credentials and of the salt, a path or URI; default: files "
        "in DAGSTER_HOME.",
    )
    vault_key: Annotated[str | dict[str, str] | None, NoDecode] = Field(
        None, description="Key of the vault, as a reference; or in ELT_VAULT_KEY."
    )
    iceberg: IcebergSettings | None = Field(
        None, description="Catalog in which tables are published in Iceberg, and which of them."
    )
    catalog: Annotated[CatalogSettings | NoCatalog | None, Field(discriminator="type")] = Field(
        None, description="Catalog in which the tables are registered by their names."
    )
    maintenance_schedule: MaintenanceSchedule = Field(
        MaintenanceSchedule(),
        description="`cron` of the job `elt_maintenance`, and its `default_status`, running or stopped.",
    )
    alert_hook: str | None = Field(None, description="A function that is called for failed runs.")
    alerts: AlertSettings | None = Field(
        None,
        description="Who is told of failed runs and checks, stale streams and changes of columns.",
    )
    ui_url: str | None = Field(None, description="URL of Dagster's UI, for links.")

    @property
    def entry_catalog(self) -> CatalogSettings | None:
        """The catalog in which tables are registered; None also if an environment turns it off."""
        return None if isinstance(self.catalog, NoCatalog) else self.catalog

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - as the next ones, pydantic's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings


_active_project: Path | None = None


def use_project(folder: Path) -> None:
    """Make the project that contains a folder the project of this process, whatever its working directory.

    Without a project above the folder, nothing changes.

    Raises:
        ConfigError: see `project`.
    """
    global _active_project  # noqa: PLW0603 - the process is one code location, or one command
    root = _find_project(folder.absolute())
    if root is not None:
        _active_project = root


def project() -> Path | None:
    """Return the folder of the project: `$ELT_PROJECT`, or the nearest from the working directory upwards.

    Raises:
        ConfigError: `$ELT_PROJECT` is no project, a project file cannot be read, or two projects with
            `[tool.elt]` are above each other.
    """
    configured = os.environ.get(PROJECT)
    if configured:
        folder = Path(configured).expanduser().absolute()
        if not _has_project(folder):
            raise ConfigError(
                f"{PROJECT}: {folder} has no {PROJECT_FILE} with [{_TABLE}] or [tool.dg.project]",
                guidance=f"set {PROJECT} to the folder of the project, or unset it to search for the "
                "project from the working directory upwards",
            )
        return folder
    return _active_project or _find_project(Path.cwd())


_held: ContextVar[Settings | None] = ContextVar("held", default=None)


def settings() -> Settings:
    """Return the settings of this process's project. They are read anew if the file or a variable changed.

    Raises:
        ConfigError: a setting is unknown or not valid; names its place, and not its value.
    """
    held = _held.get()
    if held is not None:
        return held
    root = project()
    variables = tuple(
        sorted(
            item
            for item in os.environ.items()
            if item[0].startswith("ELT_") or item[0] in VARIABLES
        )
    )
    stamp = (root / PROJECT_FILE).stat().st_mtime_ns if root is not None else 0
    return _load(root, stamp, variables)


@contextmanager
def hold_settings() -> Iterator[None]:
    """Let `settings` return the present ones until the end of the context.

    Loading of definitions asks for them several times for each stream, and to see whether they have changed
    took a tenth of its time.

    Raises:
        ConfigError: as `settings`.
    """
    token = _held.set(settings())
    try:
        yield
    finally:
        _held.reset(token)


def load_object(setting: str, name: str) -> Any:
    """Return the object of a module that a setting names as `package.module:name`.

    The project's folder and its `src` are searched for the module after all other places.

    Raises:
        ConfigError: the module cannot be imported, or has no such object.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(_import(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{setting}: {name!r} cannot be loaded: {error}",
            guidance='write "package.module:name"; the module must be on the Python path',
        ) from error


def load_module_of(setting: str, name: str) -> ModuleType:
    """Return the module that a setting names, which is searched for as by `load_object`.

    Raises:
        ConfigError: it cannot be imported.
    """
    try:
        return _import(name)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"{setting}: the module {name!r} cannot be imported: {error}",
            guidance="correct the name; the module must be on the Python path",
        ) from error


def _import(name: str) -> ModuleType:
    """Import a module; if it is not found, search the project's folders after all others, too."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        root = project()
        if root is None:
            raise
        folders = [str(root / "src"), str(root)]
        sys.path += [folder for folder in folders if folder not in sys.path]
        return importlib.import_module(name)


def is_set_for(setting: str, name: str) -> bool:
    """Return whether a setting has its value from the table of an environment of the project."""
    root = project()
    if root is None or environment() != name or os.environ.get(f"ELT_{setting.upper()}"):
        return False
    table = read_tool(root).get("elt", {}).get(_ENVIRONMENTS, {}).get(name, {})
    return setting in table


def dg_defs(root: Path) -> tuple[str, Path] | None:
    """Return the module and the folder of a `dg` project's definitions; None if it is no `dg` project."""
    dg = read_tool(root).get("dg", {}).get("project")
    if not isinstance(dg, Mapping) or not dg.get("root_module"):
        return None
    module = str(dg.get("defs_module") or f"{dg['root_module']}.defs")
    candidates = [root.joinpath(folder, *module.split(".")) for folder in ("src", ".")]
    return module, next((path for path in candidates if path.is_dir()), candidates[0])


@lru_cache(maxsize=32)
def _load(root: Path | None, stamp: int, variables: tuple[tuple[str, str], ...]) -> Settings:  # noqa: ARG001
    table = _project_table(root) if root is not None else {}
    try:
        return Settings(**table)
    except ValidationError as error:
        lines = [f"  - {_place(root, table, e['loc'])}: {e['msg']}" for e in error.errors()]
        names = ", ".join(Settings.model_fields)
        raise ConfigError(
            "the settings of the project are not valid:\n" + "\n".join(lines),
            guidance=f"the settings are {names}; docs/projects.md describes them",
        ) from None


def _place(root: Path | None, table: Mapping[str, Any], path: tuple[int | str, ...]) -> str:
    """Return where a setting stands: its variable, or its key in the project's file."""
    key = str(path[0]) if path else ""
    if os.environ.get(f"ELT_{key.upper()}") or key not in table:
        return ".".join([f"ELT_{key.upper()}", *map(str, path[1:])])
    return f"{root}/{PROJECT_FILE}: [{_TABLE}] {'.'.join(map(str, path))}"


def _project_table(root: Path) -> dict[str, Any]:
    """Return `[tool.elt]`, with the table of the environment over it and absolute paths."""
    table = dict(read_tool(root).get("elt", {}))
    environments = table.pop(_ENVIRONMENTS, {})
    name = environment()
    if name in environments:
        table = _merge(table, environments[name])
    elif environments and os.environ.get(ENVIRONMENT):
        raise ConfigError(
            f"{ENVIRONMENT} is {name!r}, and {root / PROJECT_FILE} has no [{_TABLE}.env.{name}]",
            guidance=f"its environments are {', '.join(sorted(environments))}; add a table, which may be "
            "empty, for another one",
        )
    for key in _PATHS:
        value = table.get(key)
        if isinstance(value, str) and "://" not in value:
            table[key] = str(root / Path(value).expanduser())
    if _VAULT_KEY in table:
        table[_VAULT_KEY] = _resolve_vault_key(root, table[_VAULT_KEY])
    for name in ("alerts", "catalog", "iceberg"):
        if isinstance(table.get(name), Mapping):
            table[name] = _resolve_paths(root, table[name])
    return table


def _resolve_vault_key(root: Path, reference: Any) -> Any:
    """Return the reference to the key of the vault, with an absolute path; refuse the key itself."""
    if isinstance(reference, str):
        raise ConfigError(
            f"{root / PROJECT_FILE}: [{_TABLE}] {_VAULT_KEY} is a text, and this file is no place for a key",
            guidance='write {env = "NAME"}, {file = "PATH"} or {secret = "NAME"}, or set ELT_VAULT_KEY',
        )
    return _resolve_paths(root, reference)


def _resolve_paths(root: Path, value: Any) -> Any:
    """Return a setting in which references to files have absolute paths."""
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"file"} and isinstance(value["file"], str):
        return {"file": str(root / Path(value["file"]).expanduser())}
    return {name: _resolve_paths(root, inner) for name, inner in value.items()}


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        if isinstance(inner, Mapping) and _is_table(inner) and _is_table(value):
            value = _merge(inner, value)  # noqa: PLW2901
        merged[key] = value
    return merged


def _is_table(value: Any) -> bool:
    """Return whether a value is a table of keys, and not a reference, which is one value."""
    return isinstance(value, Mapping) and not (len(value) == 1 and _REFERENCES & set(value))


def _find_project(start: Path) -> Path | None:
    projects = [folder for folder in (start, *start.parents) if _has_project(folder)]
    configured = [folder for folder in projects if "elt" in read_tool(folder)]
    if len(configured) > 1:
        raise ConfigError(
            f"{configured[0]} and {configured[1]} are projects above each other, both with [{_TABLE}]",
            guidance=f"remove [{_TABLE}] from one of them, or set {PROJECT} to the folder of the project",
        )
    return projects[0] if projects else None


def _has_project(folder: Path) -> bool:
    tool = read_tool(folder)
    return "elt" in tool or "project" in tool.get("dg", {})


def read_tool(folder: Path) -> Mapping[str, Any]:
    """Return the table `[tool]` of a folder's project file; empty if it has none."""
    path = folder / PROJECT_FILE
    try:
        return _parse_tool(path, path.stat().st_mtime_ns)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError:  # a folder above that is not ours
        return {}


@lru_cache(maxsize=64)
def _parse_tool(path: Path, stamp: int) -> Mapping[str, Any]:  # noqa: ARG001 - the cache's
    try:
        tool = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}", guidance="correct the syntax"
        ) from None
    return tool if isinstance(tool, Mapping) else {}
