"""The Dagster component `ConnectionComponent`: a connection that is configured in YAML.

Dagster loads it from `defs.yaml`, `project` and the commands of `elt` by `load_at`; `materialize` runs it.

First the scaffolder of `dg scaffold defs elt_assets.ConnectionComponent NAME`, then the component.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, PrivateAttr
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from elt_assets.connection import (
    DEFINITION_FILE,
    Connection,
    ConnectionPlace,
    check_post_processing,
    collect_problems,
    definition_file,
    load_catalog,
    load_connection,
    parse_connection,
    place_in,
)
from elt_assets.connection.default_attributes import attributes, overwrite_attributes
from elt_assets.errors import ConfigError, Problems
from elt_assets.orchestration.build import build_assets, stream_assets
from elt_assets.orchestration.failures import broken_definitions, skips_broken
from elt_assets.orchestration.io_manager import resources
from elt_assets.orchestration.schedules import refresh_schedules, schedules
from elt_assets.orchestration.sensors import sensors
from elt_assets.orchestration.source_checks import source_definitions
from elt_assets.orchestration.source_jobs import Source, check_job, discover_job
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.templates import allow_templates, list_variables, translate_spec
from elt_assets.orchestration.translator import ConnectionTranslator
from elt_assets.pipeline.validation import resolve_connection
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.settings import hold_settings


class ConnectionParameters(BaseModel):
    """The options of `dg scaffold defs`."""

    connector: str | None = Field(default=None, description="a built-in connector")
    package: str | None = Field(
        default=None, description="a PyPI package, for example airbyte-source-faker==7.2.1"
    )
    command: str | None = Field(
        default=None, description="a program that implements the Airbyte Protocol"
    )
    manifest: str | None = Field(
        default=None,
        description="a low-code manifest: its path from the folder of the connection, or PACKAGE:FILE",
    )


class ConnectionScaffolder(dg.Scaffolder[ConnectionParameters]):
    """Scaffolder that writes `defs.yaml`. The next step is `elt discover`, which finds the streams."""

    @classmethod
    def get_scaffold_params(cls) -> type[ConnectionParameters]:
        return ConnectionParameters

    def scaffold(self, request: dg.ScaffoldRequest[ConnectionParameters]) -> None:
        options = request.params
        source: dict[str, Any] = {"connector": options.connector or "faker", "config": {}}
        if options.package is not None:
            source = {"package": options.package, "config": {}}
        elif options.command is not None:
            source = {"command": shlex.split(options.command), "config": {}}
        elif options.manifest is not None:
            source = {"manifest": options.manifest, "config": {}}
        dg.scaffold_component(
            request, attributes(request.target_path.name, source, [overwrite_attributes("users")])
        )


class _Attributes(BaseModel):
    """The attributes of the component for Dagster; every attribute is accepted.

    `load` validates them, because the errors of Dagster quote the values, which may contain secrets. The JSON
    schema, for editors, is the schema of the connection.
    """

    model_config = ConfigDict(extra="allow")

    @classmethod
    def __get_pydantic_json_schema__(
        cls,
        core_schema: CoreSchema,
        handler: GetJsonSchemaHandler,
    ) -> JsonSchemaValue:
        return allow_templates(handler(Connection.__pydantic_core_schema__), handler)


class _Translator(ConnectionTranslator):
    """Translator that calls `get_asset_spec` of the component, which subclasses may override."""

    def __init__(self, component: ConnectionComponent):
        self._component = component

    def get_asset_spec(self, connection: Connection, stream: ConfiguredStream) -> dg.AssetSpec:
        assert connection.name == self._component.name
        return self._component.get_asset_spec(stream)


@dg.scaffold_with(ConnectionScaffolder)
class ConnectionComponent(dg.Component, Connection):
    """A source connector, its config and its selected streams; each stream becomes an asset.

    Dagster's templates in the attributes are evaluated at load, without secrets. A secret is referenced in
    the `config` of the source, by `{env: NAME}` or `{{ env.NAME }}`, and read when the connector starts.
    Templates in `translation` have the variables `spec`, `stream` and `connection`.
    """

    _resolution: dg.ResolutionContext | None = PrivateAttr(None)
    _built: Sequence[StreamAsset] = PrivateAttr(())
    _place: ConnectionPlace | None = PrivateAttr(None)
    _error: ConfigError | None = PrivateAttr(None)

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        return _Attributes

    @classmethod
    def load(
        cls, attributes: BaseModel | None, context: dg.ComponentLoadContext
    ) -> ConnectionComponent:
        """Return the component that a file defines.

        Raises:
            ConfigError: the attributes are not valid, and `on_broken_connection` is not `skip`; or a
                template in `post_processing` would run code. Dagster evaluates these templates next, also
                if this connection is skipped.
        """
        extra = attributes.model_extra if attributes is not None else None
        folder, resolution = Path(context.path), context.resolution_context
        definition = definition_file(folder) or folder / DEFINITION_FILE
        model = getattr(context.component_decl, "component_file_model", None)
        check_post_processing(getattr(model, "post_processing", None), definition)
        try:
            variables = list_variables(resolution.scope)
            component = parse_connection(extra, definition, cls, variables)
            return component.remember(place_in(folder, component.name), resolution)
        except ConfigError as error:
            if not skips_broken():
                raise
            name = (extra or {}).get("name")
            if not isinstance(name, str):  # a name that no other one has: that of its path
                number = (
                    context.component_path.instance_key
                )  # of its document, in a file with several
                inner = context.path.relative_to(context.defs_module_path)
                name = "_".join([*inner.parts, *([str(number)] if number else [])])
            return cls.model_construct(name=name).remember(None, resolution, error)

    @classmethod
    def load_at(cls, place: ConnectionPlace) -> ConnectionComponent:
        """Return the component of a connection, as an object of the class that its `type` names.

        Raises:
            ConfigError: the file cannot be read, or is not valid.
        """
        connection = load_connection(place)
        if not isinstance(connection, cls):
            connection = cls.model_construct(**dict(connection))
        return connection.remember(place)

    def remember(
        self,
        place: ConnectionPlace | None,
        resolution: dg.ResolutionContext | None = None,
        error: ConfigError | None = None,
    ) -> ConnectionComponent:
        """Remember where the connection is defined, and return the component.

        Args:
            resolution: the context in which the templates of `translation` are evaluated.
            error: why the connection cannot be loaded.
        """
        self._place, self._resolution, self._error = place, resolution, error
        return self

    def get_asset_spec(self, stream: ConfiguredStream) -> dg.AssetSpec:
        """Return the spec of one stream's asset; subclasses may override this method.

        Raises:
            ConfigError: `translation` is not valid.
        """
        spec = ConnectionTranslator().get_asset_spec(self, stream)
        if self.translation is None:
            return spec
        scope = {"spec": spec, "connection": self, "stream": stream.stream}
        return translate_spec(spec, self.translation, scope, self._resolution)

    @property
    def place(self) -> ConnectionPlace | None:
        """Where the connection is defined; None if it cannot be loaded."""
        return self._place

    @property
    def built(self) -> Sequence[StreamAsset]:
        """The streams that `build_defs` created assets for."""
        return self._built

    def stream_assets(self) -> list[StreamAsset]:
        """Return the configured streams.

        Raises:
            ConfigError: one of them is not valid; the error names all problems and their lines.
        """
        problems = collect_problems(self.name, self._get_place().file)
        assets = self._find_assets(problems)
        problems.raise_all()
        return assets

    def _find_assets(self, problems: Problems) -> list[StreamAsset]:
        """Return the streams that can be synced as they are configured; `problems` gets what is not valid."""
        streams = resolve_connection(self, load_catalog(self._get_place()), problems)
        return stream_assets(streams, _Translator(self), problems)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of the connection (see `definitions`)."""
        if self._error is not None:
            return broken_definitions(self.name, self._error)
        self._place = self._place or _python_place(Path(context.path), self.name)
        try:
            with hold_settings():
                return self.definitions()
        except ConfigError as error:
            if not skips_broken():
                raise
            return broken_definitions(self.name, error)

    def definitions(self) -> dg.Definitions:
        """Return the assets, jobs, schedules and sensors of the connection, and the resources they need.

        Raises:
            ConfigError: the connection cannot be loaded; the error names the file and all changes it needs.
        """
        try:
            place = self._get_place()
            problems = collect_problems(self.name, place.file)
            self._built = assets = self._find_assets(problems)
            source = Source(self, place, assets)
            discover = discover_job(source)
            ticks = [
                *(problems.of(partial(schedules, self, assets)) or ()),
                *(problems.of(partial(refresh_schedules, self, assets)) or ()),
            ]
            compared = problems.of(partial(source_definitions, assets))
            if not problems:  # sensors need all streams, also those that others name
                watchers = problems.of(partial(sensors, self, assets, discover))
            problems.raise_all()
            definitions = dg.Definitions(
                assets=build_assets(self, assets, _Translator(self)),
                jobs=[check_job(source), discover],
                schedules=ticks,
                sensors=watchers,
                resources=resources(),
            )
            if compared is not None and (compared.asset_checks or compared.schedules):
                definitions = dg.Definitions.merge(definitions, compared)
        except ConfigError as error:
            self._built = ()
            raise ConfigError(
                f"{self._get_place().file}: connection {self.name!r} cannot be loaded\n{error.message}",
                guidance=error.guidance,
            ) from error
        return definitions

    def _get_place(self) -> ConnectionPlace:
        assert self._place is not None, "a component has a place before its definitions are built"
        return self._place


def _python_place(path: Path, name: str) -> ConnectionPlace:
    """Return the place of a component that a Python file makes; its catalog is in the file's folder."""
    folder = path if path.is_dir() else path.parent
    is_alone = not (folder / f"catalog.{name}.json").exists()
    return ConnectionPlace(path, name, is_alone=is_alone)
