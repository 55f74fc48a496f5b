"""`manifest:`, an Airbyte low-code manifest, which nothing here runs yet."""

from __future__ import annotations

from typing import NoReturn

from elt_assets.errors import ConfigError
from elt_assets.runner.kinds.source_kind import Installed, SourceKind, Value


class Manifest(SourceKind):
    """A key that is known, so that it is refused with what to write instead."""

    key = "manifest"
    value_type = str
    examples = ()

    def command(self, value: Value, packages: Installed) -> NoReturn:
        raise ConfigError(
            "`source.manifest` is not supported by this version",
            guidance="use `connector:`, `command:`, `package:`, `image:` or `tap:`",
        )
