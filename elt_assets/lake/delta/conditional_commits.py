"""Check that an object store makes commits atomic.

A commit creates one object of the log, and only one of several writers may create it. So the store must
refuse to create an object that is there already (a PUT with `If-None-Match: *`). Some stores ignore this
condition: then the later of two commits would silently replace the other one.
"""

from __future__ import annotations

import threading
import uuid
from urllib.parse import urlsplit

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import CommitProperties
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.files import HIDDEN, Files
from elt_assets.lake.delta.opening import delta_schema, load
from elt_assets.storage.location import Location

_SCHEMA = t.StructType([t.StructField("probe", t.StringType())])
_UNSUPPORTED = ("501 Not Implemented", "NotImplemented")
_checked: set[tuple[str, str, str]] = set()
_lock = threading.Lock()


def require(storage: Files) -> None:
    """Check the store of a table, if it is an object store, once per process and bucket.

    The check commits twice to a new table below the root, and removes that table.

    Raises:
        ConfigError: the store does not support conditional writes.
    """
    place = storage.place
    if not place.is_object_store:
        return
    parts = urlsplit(place.uri)
    store = (parts.scheme, parts.netloc, place.options.get("endpoint_url", ""))
    with _lock:
        if store not in _checked:
            _check(storage)
            _checked.add(store)


def _check(storage: Files) -> None:
    folder = f"{HIDDEN}/probe-{uuid.uuid4().hex}"
    try:
        is_supported = _refuses_second_commit(storage.place.child(folder))
    finally:
        storage.discard_folder(folder)
    if not is_supported:
        raise ConfigError(
            f"the object store of {storage.uri} does not support conditional writes: of two runs that commit "
            "at the same time, one would silently replace the commit of the other",
            guidance="nothing was committed; use a store that honours `If-None-Match: *` in PUT requests, or "
            "update the store or the proxy in front of it (docs/storage.md)",
        )


def _refuses_second_commit(place: Location) -> bool:
    """Return whether only one of two commits with the same version succeeds."""
    try:
        first = DeltaTable.create(place.uri, delta_schema(_SCHEMA), storage_options=place.for_delta)
        second = load(place)
        _commit(first)
    except (OSError, DeltaError) as error:
        if any(sign in str(error) for sign in _UNSUPPORTED):
            return False
        raise
    try:
        _commit(second)
    except CommitFailedError:
        return True
    return False


def _commit(delta: DeltaTable) -> None:
    properties = CommitProperties(max_commit_retries=0)
    delta.create_write_transaction([], "append", delta.schema(), commit_properties=properties)
