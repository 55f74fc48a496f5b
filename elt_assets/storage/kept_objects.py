"""What a store keeps and no list of its objects shows: older versions, and parts of unfinished uploads.

`orchestration.unerased` calls `clean_store` when the objects of erased rows are removed.

A bucket with versioning keeps each object that was removed or replaced. Its owner wants that, so older
versions are named and stay. The parts of an upload whose process was killed are of no use to anybody: they
are removed. S3 tells both by requests that pyarrow and delta-rs do not have, so boto3 is asked, if it is
installed. Without it, and if the store refuses to answer, only the id of a version at a present object says
that the bucket keeps them, and the uploads are named as not known.
Test: `tests/cli/test_erase_in_store.py`, `tests/storage/test_kept_objects.py`
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from elt_assets.machine_faults import first_line
from elt_assets.storage.location import LIMITS, Location, is_true, limit

_HELP = "docs/data-protection.md#what-a-store-keeps says how to remove them"


def clean_store(
    places: Sequence[Location], shared: Sequence[Location] = (), present: Location | None = None
) -> list[str]:
    """Remove the parts of unfinished uploads below some places; return what may be left, as sentences.

    Args:
        places: folders in one store. Places on this machine are ignored.
        shared: the same, with uploads of others that are in progress: only versions are looked for.
        present: the place of some object.
    """
    places = [place for place in places if place.is_object_store]
    shared = [place for place in shared if place.is_object_store]
    if not (*places, *shared):
        return []
    names = ", ".join(map(str, (*places, *shared)))
    if (*places, *shared)[0].scheme == "s3":
        sentence = _clean_s3(places, shared, present)
    else:
        sentence = (
            f"whether the store keeps older versions of the objects below {names}, or removed ones for some "
            f"time (soft delete), cannot be asked: look at its settings; {_HELP}"
        )
    return [sentence] if sentence else []


def _clean_s3(
    places: Sequence[Location], shared: Sequence[Location], present: Location | None
) -> str:
    try:
        client = _open_client((*places, *shared)[0])
        with _explain_errors():
            for place in places:
                _abort_uploads(client, place)
            counts = {str(place): _count_versions(client, place) for place in (*places, *shared)}
    except _Unanswered as error:
        names = ", ".join(map(str, (*places, *shared)))
        are_kept = present is not None and _has_version(present)
        versions = (
            "older versions of removed objects, which the bucket keeps, and " if are_kept else ""
        )
        uploads = "parts of unfinished uploads, if there are any,"
        return f"{versions}{uploads} stay below {names}, because {error}; {_HELP}"
    names = ", ".join(f"{place} ({count})" for place, count in counts.items() if count)
    return (
        f"the bucket keeps older versions of removed objects below {names}; {_HELP}"
        if names
        else ""
    )


class _Unanswered(Exception):
    """The store does not say what it keeps; the text says why."""


@contextlib.contextmanager
def _explain_errors() -> Iterator[None]:
    """Context that raises an error of the store as `_Unanswered`."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - of the extra

    try:
        yield
    except (BotoCoreError, ClientError, ValueError) as error:
        raise _Unanswered(f"the store does not tell of them: {first_line(error)}") from None


def _abort_uploads(client: Any, place: Location) -> None:
    for page in client.get_paginator("list_multipart_uploads").paginate(**_below(place)):
        for upload in page.get("Uploads", ()):
            client.abort_multipart_upload(
                Bucket=_below(place)["Bucket"], Key=upload["Key"], UploadId=upload["UploadId"]
            )


def _count_versions(client: Any, place: Location) -> int:
    pages = client.get_paginator("list_object_versions").paginate(**_below(place))
    return sum(not item["IsLatest"] for page in pages for item in page.get("Versions", ()))


def _below(place: Location) -> dict[str, str]:
    """Return the bucket and the prefix of what is below a place."""
    parts = urlsplit(place.uri)
    return {"Bucket": parts.netloc, "Prefix": f"{unquote(parts.path).strip('/')}/".lstrip("/")}


def _open_client(place: Location) -> Any:
    """Return boto3's client of a store, with the options of the location.

    Raises:
        _Unanswered: boto3 is not installed.
    """
    try:
        import boto3  # noqa: PLC0415 - of the extra
        from botocore import UNSIGNED  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415
    except ImportError:
        raise _Unanswered("boto3, which finds them, is not installed (elt-assets[aws])") from None

    options = place.options
    is_virtual = is_true(options.get("virtual_hosted_style_request"))
    timeout, attempts = (limit(options, name) for name in LIMITS)
    return boto3.session.Session(
        aws_access_key_id=options.get("access_key_id"),
        aws_secret_access_key=options.get("secret_access_key"),
        aws_session_token=options.get("session_token"),
        region_name=options.get("region") or ("us-east-1" if "endpoint_url" in options else None),
    ).client(
        "s3",
        endpoint_url=options.get("endpoint_url"),
        config=Config(
            read_timeout=timeout,
            retries={"total_max_attempts": attempts, "mode": "standard"},
            s3={"addressing_style": "virtual" if is_virtual else "auto"},
            **({"signature_version": UNSIGNED} if is_true(options.get("skip_signature")) else {}),
        ),
    )


def _has_version(place: Location) -> bool:
    """Return whether an object has the id of a version: then the bucket keeps them, or did."""
    system, path = place.file_system()
    try:
        with system.open_input_stream(path) as source:
            return any(str(name) == "VersionId" for name in source.metadata() or ())
    except OSError:
        return False
