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
from elt_assets.connection.models import Connection, Stream, check_plain_name, check_trusted_name
from elt_assets.connection.stream_resolution import (
    as_landed,
    describe_broken_fields,
    describe_unused_settings,
    field_selection,
    resolve_streams,
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
    "check_components",
    "check_plain_name",
    "check_trusted_name",
    "describe_broken_fields",
    "describe_unused_settings",
    "field_selection",
    "load_catalog",
    "load_connection",
    "parse_connection",
    "resolve_streams",
    "save_catalog",
]
