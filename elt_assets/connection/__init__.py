"""A connection: the attributes in its `defs.yaml`, and its `catalog.json`.

Loading a connection only reads these two files. It starts no process and uses no network and no secret.
"""

from elt_assets.connection.connection import Connection, check_plain_name
from elt_assets.connection.connector import check_trusted_name
from elt_assets.connection.files import (
    collect_problems,
    load_catalog,
    load_connection,
    parse_connection,
    save_catalog,
)
from elt_assets.connection.overlays import check_overlays, find_overlay_problems
from elt_assets.connection.places import (
    CATALOG_FILE,
    COMPONENT,
    ConnectionPlace,
    check_names,
    definition_file,
    find_place,
    find_refused_files,
    list_places,
    list_places_in,
    place_in,
)
from elt_assets.connection.resolution import (
    as_landed,
    describe_broken_fields,
    describe_unused_settings,
    field_selection,
    join_streams,
    resolve_streams,
)
from elt_assets.connection.stream import Stream
from elt_assets.connection.templates import check_post_processing
from elt_assets.paths import DEFINITION_FILE

__all__ = [
    "CATALOG_FILE",
    "COMPONENT",
    "DEFINITION_FILE",
    "Connection",
    "ConnectionPlace",
    "Stream",
    "as_landed",
    "check_names",
    "check_overlays",
    "check_plain_name",
    "check_post_processing",
    "check_trusted_name",
    "collect_problems",
    "definition_file",
    "describe_broken_fields",
    "describe_unused_settings",
    "field_selection",
    "find_overlay_problems",
    "find_place",
    "find_refused_files",
    "join_streams",
    "list_places",
    "list_places_in",
    "load_catalog",
    "load_connection",
    "parse_connection",
    "place_in",
    "resolve_streams",
    "save_catalog",
]
