"""A connection as people write it: the attributes of `defs.yaml`, and the catalog beside it.

Loading one reads two files and nothing else: no process, no network, no secret.
"""

from elt_assets.connection.configuring import (
    as_landed,
    configure,
    field_selection,
    unused_settings,
)
from elt_assets.connection.loading import (
    CATALOG_FILE,
    COMPONENT,
    DEFINITION_FILE,
    load_catalog,
    load_connection,
    parse_connection,
    save_catalog,
)
from elt_assets.connection.models import Connection, Stream, plain_name

__all__ = [
    "CATALOG_FILE",
    "COMPONENT",
    "DEFINITION_FILE",
    "Connection",
    "Stream",
    "as_landed",
    "configure",
    "field_selection",
    "load_catalog",
    "load_connection",
    "parse_connection",
    "plain_name",
    "save_catalog",
    "unused_settings",
]
