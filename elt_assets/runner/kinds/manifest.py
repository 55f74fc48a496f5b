"""The kind `manifest:`, an Airbyte low-code manifest, which is not supported yet."""

from __future__ import annotations

from typing import NoReturn

from elt_assets.errors import ConfigError
from elt_assets.runner.kinds.source_kind import Installed, SourceKind, Value


class Manifest(SourceKind):
    """Refuses the key `manifest`, with an error that lists the alternatives."""

    key = "manifest"
    value_type = str
    examples = ()

    def command(self, value: Value, packages: Installed) -> NoReturn:
        raise ConfigError(
            "`source.manifest` is not supported by this version",
            guidance="use `connector:`, `command:`, `package:`, `image:` or `tap:`",
        )
