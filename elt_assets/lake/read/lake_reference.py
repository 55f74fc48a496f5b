"""A lake as Spark's workers find it: they have neither the project nor its settings.

`orchestration.spark_source` describes the project's lake, and `spark_source` that of an option. The latter
opens it where a read is planned, `spark_files` in the tasks that read files.

A reference is part of Spark's plans, so it has no secret: of an option of the store that is a credential, it
says where the value is, such as in a variable of the environment, and each worker reads it there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from elt_assets.errors import ConfigError
from elt_assets.lake.write.paths import Levels, TablePath
from elt_assets.settings import settings
from elt_assets.storage.location import (
    CREDENTIALS,
    Location,
    environment_options,
    find_variables,
    read_options,
    store_of,
)

ENVIRONMENT, FILE, TEXT = "env", "file", "text"
"""Where the value of a credential is: in a variable, in a file of options, or in a text that stays where it
is, of which the place is named."""


@dataclass(frozen=True)
class LakeReference:
    """The root of a lake, and the paths of tables in it."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)  # of the store, without credentials
    # Of each credential one of the kinds above, and what it names.
    credentials: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    # The paths of tables that do not follow from the key alone.
    streams: Mapping[Levels, TablePath] = field(default_factory=dict)
    # The folder of a connection's tables, where it has not the connection's name.
    namespaces: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def describe(
        cls, lake: Location, places: Mapping[str, tuple[str, str]] = MappingProxyType({})
    ) -> LakeReference:
        """Return the reference to a lake.

        Args:
            places: where those of its credentials are that neither the environment nor the setting
                `storage_options` has.
        """
        options = {name: value for name, value in lake.options.items() if name not in CREDENTIALS}
        setting = settings().storage_options
        place = (
            (FILE, setting) if isinstance(setting, str) else (TEXT, "the setting `storage_options`")
        )
        names = CREDENTIALS.intersection(lake.options)
        variables = find_variables(lake.uri) if names else {}
        inherited = {
            name: (ENVIRONMENT, variable)
            for name, variable in variables.items()
            if os.environ[variable] == lake.options.get(name)
        }
        sources = {name: places.get(name, inherited.get(name, place)) for name in names}
        return cls(lake.uri, options, sources)

    def to_document(self) -> Mapping[str, Any]:
        """Return the reference in types of Python's own, for workers."""
        streams = [
            [*map(list, (key, path.levels, path.other)), [list(rival) for rival in path.rivals]]
            for key, path in self.streams.items()
        ]
        return {
            "uri": self.uri,
            "options": dict(self.options),
            "credentials": {name: list(place) for name, place in self.credentials.items()},
            "streams": streams,
            "namespaces": dict(self.namespaces),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> LakeReference:
        """Return what `to_document` wrote."""
        streams = {
            tuple(key): TablePath(tuple(levels), tuple(other), tuple(map(tuple, rivals)))
            for key, levels, other, rivals in document["streams"]
        }
        credentials = {
            name: (kind, place) for name, (kind, place) in document["credentials"].items()
        }
        return cls(
            document["uri"], document["options"], credentials, streams, document["namespaces"]
        )

    def open(self) -> Location:
        """Return the lake, with the credentials that this process finds.

        Raises:
            ConfigError: a credential is not where the reference says.
        """
        if "://" not in self.uri or self.uri.startswith("file://"):
            return Location(self.uri)
        values = {name: self._find_credential(name) for name in self.credentials}
        present = {name: value for name, value in values.items() if value is not None}
        return Location(self.uri, {**environment_options(self.uri), **self.options, **present})

    def find(self, key: Levels) -> TablePath | None:
        return self.streams.get(key)

    def namespace_of(self, connection: str) -> str:
        return self.namespaces.get(connection, connection)

    def _find_credential(self, option: str) -> str | None:
        """Return the value of a credential; None if it is in the environment of this process."""
        kind, place = self.credentials[option]
        name = f"{store_of(self.uri).prefixes[0]}{option}"
        if kind == FILE:
            options = {
                store_of(self.uri).bare(key): value for key, value in read_options(place).items()
            }
            if option in options:
                return options[option]
        variable = place if kind == ENVIRONMENT else name.upper()
        value = os.environ.get(variable)
        if value is not None:
            return value if kind == ENVIRONMENT else None
        where = {FILE: f"the file {place}", ENVIRONMENT: f"the variable {place}", TEXT: place}[kind]
        raise ConfigError(
            f"the lake {self.uri} needs {name}, which is not in the environment of Spark: the project has it "
            f"in {where}, and secrets are not sent to Spark",
            guidance=f"set {variable} for Spark's driver (with Spark Connect, for the server) and for its "
            f"executors (spark.executorEnv.{variable})",
        )
