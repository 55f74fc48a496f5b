"""Objects of S3 whose keys pyarrow cannot name, read with boto3.

A key of S3 is any text, and pyarrow's paths are names between slashes: it refuses `in//a.csv`, and takes
`in/./a.csv` for `in/a.csv`.
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from pyarrow import fs

from connectors.files.config import S3Options
from elt_assets.errors import ConfigError

_BUFFER_BYTES = 4 << 20
_ABSENT = frozenset({"404", "NoSuchKey"})
_DENIED = frozenset({"401", "403", "AccessDenied"})


class S3Objects:
    """Describes and opens objects by their bucket and key. What fails is an `OSError`.

    Raises:
        ConfigError: boto3 is not installed.
    """

    def __init__(self, options: S3Options):
        self._client = _open_client(options)

    def describe(self, path: str) -> fs.FileInfo:
        """Return what an object is; of the type `NotFound` if there is none."""
        try:
            answer = self._ask("head_object", path)
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)
        size, time = answer["ContentLength"], answer["LastModified"]
        return fs.FileInfo(path, fs.FileType.File, size=size, mtime=time)

    def open(self, path: str) -> BinaryIO:
        """Return the bytes of an object, which can be read at any place."""
        content = _Content(self, path, self.describe(path).size or 0)
        return io.BufferedReader(content, _BUFFER_BYTES)

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes of an object from `start` up to `end`, without the latter."""
        body = self._ask("get_object", path, Range=f"bytes={start}-{end - 1}")["Body"]
        return bytes(body.read())

    def _ask(self, operation: str, path: str, **options: Any) -> Any:
        import botocore.exceptions as failures  # noqa: PLC0415 - of the extra

        bucket, _, key = path.partition("/")
        try:
            return getattr(self._client, operation)(Bucket=bucket, Key=key, **options)
        except failures.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in _ABSENT:
                raise FileNotFoundError(code) from None
            raise (PermissionError if code in _DENIED else OSError)(str(error)) from error
        except failures.BotoCoreError as error:
            raise OSError(str(error)) from error


class _Content(io.RawIOBase):
    """The bytes of an object, read range by range."""

    def __init__(self, objects: S3Objects, path: str, size: int):
        super().__init__()
        self._objects, self._path, self._size, self._position = objects, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._position + len(buffer))
        if end <= self._position:
            return 0
        data = self._objects.read(self._path, self._position, end)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def _open_client(options: S3Options) -> Any:
    try:
        import boto3  # noqa: PLC0415 - of the extra
        from botocore import UNSIGNED  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "keys with an empty name, `.` or `..` between slashes need boto3, which is not installed",
            guidance='run `pip install "elt-assets[aws]"`, also on the machines of a cluster; or give these '
            "objects other keys, or write a glob that does not match them",
        ) from None
    secret, token = options.secret_access_key, options.session_token
    credentials = {
        "aws_access_key_id": options.access_key_id,
        "aws_secret_access_key": secret and secret.get_secret_value(),
        "aws_session_token": token and token.get_secret_value(),
    }
    if options.role_arn:
        service = boto3.client("sts", region_name=options.region, **credentials)
        answer = service.assume_role(RoleArn=options.role_arn, RoleSessionName="elt-assets")
        assumed = answer["Credentials"]
        credentials = {
            "aws_access_key_id": assumed["AccessKeyId"],
            "aws_secret_access_key": assumed["SecretAccessKey"],
            "aws_session_token": assumed["SessionToken"],
        }
    endpoint = options.endpoint
    if endpoint and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    # pyarrow too names the bucket of another store in the path.
    more = {"s3": {"addressing_style": "path"}} if endpoint else {}
    config = Config(signature_version=UNSIGNED if options.anonymous else None, **more)
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name=options.region, config=config, **credentials
    )
