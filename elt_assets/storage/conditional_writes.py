"""A test of S3 servers for conditional writes, on which the atomicity of every commit depends.

Called by `lake` before it creates a table or commits (`lake.delta`, `write.writer`), and by `versioned_file`.

Two runs that commit at the same time create the same object of the table's log, each with the condition
`If-None-Match: *`. The server must refuse the second. A server that ignores the condition overwrites the
first commit, and no run gets an error.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import uuid
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from elt_assets.errors import ConfigError
from elt_assets.storage.location import Location

if TYPE_CHECKING:
    from obstore.store import RetryConfig, S3Config

_log = logging.getLogger(__name__)

FOLDER = "_elt"
"""The folder below a tested location that gets an object for a moment."""

_RETRIES: RetryConfig = {"max_retries": 3, "retry_timeout": dt.timedelta(seconds=30)}

_tested: set[tuple[str, str]] = set()
"""Endpoints and buckets that this process has tested."""


def require(place: Location) -> None:
    """Test the S3 server of a location, once per process and bucket, if it is not AWS itself.

    If the test cannot be done, for example without permission to write, a warning is logged.

    Raises:
        ConfigError: the server ignores the condition, or does not support it.
    """
    endpoint, bucket = place.options.get("endpoint_url", ""), urlsplit(place.uri).netloc
    if place.scheme != "s3" or not endpoint or (endpoint, bucket) in _tested:
        return
    reason = _reason_to_refuse(place, bucket)
    if reason is not None:
        raise ConfigError(
            f"the object store of {place} {reason}, so one of two commits at the same time would "
            "be lost",
            guidance="use a version of the server that supports conditional writes (docs/storage.md), and "
            "check the proxies between; nothing was written to the table",
        )
    _tested.add((endpoint, bucket))


def _reason_to_refuse(place: Location, bucket: str) -> str | None:
    """Return why a server cannot be used, as the predicate of a sentence; None if no reason was found."""
    import obstore  # noqa: PLC0415 - only a lake in a store other than AWS needs it
    from obstore import exceptions  # noqa: PLC0415
    from obstore.store import S3Store  # noqa: PLC0415

    options = place.for_delta or {}
    config = {name: value for name, value in options.items() if name.startswith("aws_")}
    store = S3Store(
        bucket,
        config=cast("S3Config", config),
        client_options={"timeout": options["timeout"]},
        retry_config=_RETRIES,
    )
    folder = unquote(urlsplit(place.uri).path).strip("/")
    path = "/".join(filter(None, (folder, FOLDER, f"conditional-write-{uuid.uuid4().hex}")))
    try:
        obstore.put(store, path, b"first", mode="create")
        try:
            obstore.put(store, path, b"second", mode="create")
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            return None
        finally:
            with contextlib.suppress(exceptions.BaseError):
                obstore.delete(store, path)
    except exceptions.BaseError as error:
        if isinstance(error, exceptions.NotSupportedError) or "NotImplemented" in str(error):
            return "does not support the condition If-None-Match"
        _log.warning(
            "It could not be tested whether the object store of %s supports conditional writes: %s",
            place,
            type(error).__name__,
        )
        return None
    return "ignores the condition If-None-Match"
