"""A connection as people write it: the attributes of `defs.yaml`, and the catalog beside it.

Loading one reads two files and nothing else: no process, no network, no secret.
"""

from elt_assets.connection.files import (
    CATALOG_FILE,
    COMPONENT,
    load_catalog,
    load_connection,
    parse_connection,
    save_catalog,
)
from elt_assets.connection.models import Connection, Stream, plain_name
from elt_assets.connection.stream_resolution import (
    as_landed,
    field_selection,
    resolve_streams,
    unused_settings,
)
from elt_assets.paths import DEFINITION_FILE

__all__ = [
    "CATALOG_FILE",
    "COMPONENT",
    "DEFINITION_FILE",
    "Connection",
    "Stream",
    "as_landed",
    "field_selection",
    "load_catalog",
    "load_connection",
    "parse_connection",
    "plain_name",
    "resolve_streams",
    "save_catalog",
    "unused_settings",
]
