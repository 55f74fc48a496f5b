"""A connection: the attributes in its `defs.yaml`, and its `catalog.json`.

Loading a connection only reads these two files. It starts no process and uses no network and no secret.
"""

from elt_assets.connection.files import (
    CATALOG_FILE,
    COMPONENT,
    YAML_ERRORS,
    check_components,
    load_catalog,
    load_connection,
    parse_connection,
    save_catalog,
)
from elt_assets.connection.models import Connection, Stream, plain_name, trusted_name
from elt_assets.connection.stream_resolution import (
    as_landed,
    broken_fields,
    field_selection,
    resolve_streams,
    unused_settings,
)
from elt_assets.paths import DEFINITION_FILE

__all__ = [
    "CATALOG_FILE",
    "COMPONENT",
    "DEFINITION_FILE",
    "YAML_ERRORS",
    "Connection",
    "Stream",
    "as_landed",
    "broken_fields",
    "check_components",
    "field_selection",
    "load_catalog",
    "load_connection",
    "parse_connection",
    "plain_name",
    "resolve_streams",
    "save_catalog",
    "trusted_name",
    "unused_settings",
]
