"""`ConnectionComponent`: a connection's YAML as a Dagster component."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from elt_assets.connection import (
    DEFINITION_FILE,
    Connection,
    configure,
    load_catalog,
    parse_connection,
)
from elt_assets.errors import ConfigError
from elt_assets.orchestration.assets import build_assets


class _Attributes(BaseModel):
    """What Dagster reads: anything. `load` looks at it, since Dagster's own errors quote what was
    written, secrets included. Its JSON schema, for editors, is the connection's."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def __get_pydantic_json_schema__(
        cls,
        core_schema: CoreSchema,
        handler: GetJsonSchemaHandler,
    ) -> JsonSchemaValue:
        return handler(Connection.__pydantic_core_schema__)


class ConnectionComponent(dg.Component, Connection):
    """A source connector, its config, and the streams wanted from it; each stream becomes an asset.

    The attributes are read as they stand, without Dagster's templates: a secret is named by
    `{env: NAME}` and read when the connector starts, so that loading needs none.
    """

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        return _Attributes

    @classmethod
    def load(
        cls, attributes: BaseModel | None, context: dg.ComponentLoadContext
    ) -> ConnectionComponent:
        written = attributes.model_extra if attributes is not None else None
        connection = parse_connection(written, Path(context.path) / DEFINITION_FILE)
        return cls.model_construct(**dict(connection))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The connection's assets, and its schedule.

        Raises:
            ConfigError: names the file, and everything in it that must change.
        """
        folder = Path(context.path)
        try:
            streams = configure(self, load_catalog(folder))
            assets = build_assets(self, streams)
            schedules = _schedules(self)
        except ConfigError as error:
            file = folder / DEFINITION_FILE
            raise ConfigError(
                f"{file}: connection {self.name!r} cannot be loaded\n{error.message}",
                guidance=error.guidance,
            ) from error
        return dg.Definitions(assets=assets, schedules=schedules)


def _schedules(connection: Connection) -> list[dg.ScheduleDefinition]:
    if connection.schedule is None:
        return []
    try:
        return [
            dg.ScheduleDefinition(
                name=f"{connection.name}_schedule",
                target=dg.AssetSelection.groups(connection.name),
                cron_schedule=connection.schedule,
            )
        ]
    except dg.DagsterInvalidDefinitionError as error:
        raise ConfigError(
            f"schedule: {connection.schedule!r} is no cron expression",
            guidance='write five fields, as in "0 6 * * *"',
        ) from error
