"""Locations of files, on this machine or in an object store, with the options of the store.

First the kinds of stores, with their options in the forms that pyarrow and delta-rs expect; then `Location`,
of each table, and of each file that may be in an object store.

Options come from the environment, from the setting `storage_options` or the file that it names, and from the
definitions; each of these overrides the ones before it. Values may be secrets: no message contains one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import yaml

from elt_assets.errors import ConfigError
from elt_assets.settings import settings

FILE = "ELT_STORAGE_OPTIONS"
"""The environment variable that names a YAML file of options."""

LIMITS = {"request_timeout": 120, "max_attempts": 10}
"""The options that limit requests, and their defaults: seconds without an answer, after which a request is
given up, and requests in place of one that fails for a passing reason.

The defaults of the libraries take a slow store for a broken one: pyarrow gives up after three seconds
without an answer, or three attempts in one second."""
_MAX_LIMIT = 86_400
_CONNECT_TIMEOUT = 10
"""Seconds."""
_FIRST_PAUSE, _MAX_PAUSE, _PAUSE_GROWTH = 0.1, 15, 4
"""Pauses of delta-rs between attempts, in seconds; each is a random part of this multiple of the last one."""

Options = Mapping[str, str]
"""Options of a store by their bare names, such as `region`."""


def limit(options: Options, name: str) -> int:
    """Return a limit of requests, of `LIMITS`."""
    return int(options.get(name, LIMITS[name]))


@dataclass(frozen=True)
class ObjectStore:
    """A kind of object store."""

    # returns pyarrow's file system for a URI and its options
    file_system: Callable[[SplitResult, Options], Any]
    root: Callable[[SplitResult], str]  # returns the path of a URI in that file system
    # returns the limits of requests (`LIMITS`) by the names that delta-rs expects
    limits: Callable[[Options], Options] = lambda _: {}
    # prefixes that the name of an option may have; the first is the one that delta-rs expects
    prefixes: Sequence[str] = ()
    # the bare names of the options, each with the environment variables that set it. A variable
    # that both libraries read themselves is not among them.
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def bare(self, name: str) -> str:
        """Return the bare name of an option; letter case does not matter."""
        lower = name.lower()
        prefix = next((prefix for prefix in self.prefixes if lower.startswith(prefix)), "")
        return lower.removeprefix(prefix)

    def for_delta(self, options: Options) -> dict[str, str]:
        """Return options and limits by the names that delta-rs expects."""
        rest = {name: value for name, value in options.items() if name not in LIMITS}
        named = {f"{self.prefixes[0]}{name}": value for name, value in rest.items()}
        return {**named, **self.limits(options)}


def _s3(_uri: SplitResult, options: Options) -> Any:
    # Only a lake in this store needs them.
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem  # noqa: PLC0415

    endpoint = urlsplit(options.get("endpoint_url", ""))
    placed = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    # Without a region, pyarrow asks the machine's metadata service for it, and waits for its answer.
    region = options.get("region") or ("us-east-1" if endpoint.netloc else None)
    return S3FileSystem(
        access_key=options.get("access_key_id"),
        secret_key=options.get("secret_access_key"),
        session_token=options.get("session_token"),
        region=region,
        anonymous=is_true(options.get("skip_signature")),
        force_virtual_addressing=is_true(options.get("virtual_hosted_style_request")),
        allow_delayed_open=True,  # a small file is then one request
        connect_timeout=_CONNECT_TIMEOUT,
        request_timeout=limit(options, "request_timeout"),
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=limit(options, "max_attempts")),
        **(placed if endpoint.netloc else {}),
    )


def _s3_limits(options: Options) -> Options:
    timeout, attempts = (limit(options, name) for name in LIMITS)
    return {
        "connect_timeout": f"{_CONNECT_TIMEOUT}s",
        "timeout": f"{timeout}s",
        "max_retries": str(attempts - 1),
        "retry_timeout": f"{timeout * attempts}s",  # else it would end the attempts before their number
        "backoff_config.init_backoff": f"{_FIRST_PAUSE}s",
        "backoff_config.max_backoff": f"{_MAX_PAUSE}s",
        "backoff_config.base": str(_PAUSE_GROWTH),
    }


def _gcs(_uri: SplitResult, _options: Options) -> Any:
    from pyarrow.fs import GcsFileSystem  # noqa: PLC0415 - only a lake in this store needs it

    return GcsFileSystem()


def _azure(uri: SplitResult, options: Options) -> Any:
    from pyarrow.fs import AzureFileSystem  # noqa: PLC0415 - only a lake in this store needs it

    return AzureFileSystem((uri.hostname or "").partition(".")[0], **options)


def _hdfs(uri: SplitResult, _options: Options) -> Any:
    from pyarrow.fs import FileSystem  # noqa: PLC0415 - only a lake in this store needs it

    return FileSystem.from_uri(uri.geturl())[0]


def _below_authority(uri: SplitResult) -> str:
    return f"{uri.netloc}{uri.path}"


STORES: Mapping[str, ObjectStore] = {
    "s3": ObjectStore(
        _s3,
        _below_authority,
        _s3_limits,
        ("aws_",),
        {
            "access_key_id": (),
            "secret_access_key": (),
            "session_token": (),
            "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
            "endpoint_url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
            "allow_http": ("AWS_ALLOW_HTTP",),
            "virtual_hosted_style_request": ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST",),
            "skip_signature": ("AWS_SKIP_SIGNATURE",),
            "request_timeout": (),
            "max_attempts": ("AWS_MAX_ATTEMPTS",),
        },
    ),
    "gs": ObjectStore(_gcs, _below_authority, prefixes=("google_",)),
    "abfss": ObjectStore(
        _azure,
        lambda uri: f"{uri.username}{uri.path}",
        prefixes=("azure_storage_", "azure_"),
        options={
            "account_key": ("AZURE_STORAGE_ACCOUNT_KEY",),
            "sas_token": ("AZURE_STORAGE_SAS_TOKEN",),
            "client_id": (),
            "client_secret": (),
            "tenant_id": (),
        },
    ),
    "hdfs": ObjectStore(_hdfs, lambda uri: uri.path, prefixes=("hdfs_",)),
}
"""The supported stores, by the scheme of their URIs."""


CREDENTIALS = frozenset(
    {
        *("access_key_id", "secret_access_key", "session_token"),
        *("account_key", "sas_token", "client_id", "client_secret", "tenant_id"),
    }
)
"""The options that say who reads, by their bare names."""

WITHOUT_FOLDERS = frozenset({"s3", "gs", "abfss"})
"""The schemes of stores in which a folder is only a part of an object's name."""


def store_of(uri: str) -> ObjectStore:
    """Return the store of a URI.

    Raises:
        ConfigError: its scheme is not supported, or it contains more than a place.
    """
    parts = urlsplit(uri)
    if parts.scheme not in STORES:
        raise ConfigError(
            f"locations of the scheme {parts.scheme}:// are not supported",
            guidance="write a path, or a URI of one of: file://, "
            + ", ".join(f"{scheme}://" for scheme in STORES),
        )
    is_azure = parts.scheme == "abfss"
    if parts.query or parts.fragment or parts.password or (parts.username and not is_azure):
        raise ConfigError(
            f"a {parts.scheme}:// location contains a key, a query or a fragment",
            guidance=f"write only the place into it; the options go into the file that {FILE} names, or into "
            "the environment",
        )
    if is_azure and not (parts.username and parts.hostname):
        raise ConfigError(
            f"{uri} does not name a container and an account",
            guidance="write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER",
        )
    return STORES[parts.scheme]


def options_for(uri: str, configured: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a store by their bare names: from the environment, the file, and `configured`.

    Raises:
        ConfigError: the URI or an option is not supported, or the file cannot be read.
    """
    store, merged = store_of(uri), environment_options(uri)
    for where, options in (*_read_setting(), ("`storage_options`", configured)):
        for name, value in options.items():
            bare = store.bare(name)
            if bare not in store.options:
                supported = ", ".join(f"{store.prefixes[0]}{option}" for option in store.options)
                scheme = urlsplit(uri).scheme
                raise ConfigError(
                    f"{where} sets {name}, which is not an option of {scheme}:// locations",
                    guidance=f"known are: {supported or 'none; set the credentials in the environment'}",
                )
            merged[bare] = value
    _refuse_plain_http(merged)
    _refuse_limits(merged)
    return merged


def environment_options(uri: str) -> dict[str, str]:
    """Return the options of a store that variables of the environment set, by their bare names.

    Raises:
        ConfigError: the URI is not supported.
    """
    return {name: os.environ[variable] for name, variable in find_variables(uri).items()}


def find_variables(uri: str) -> dict[str, str]:
    """Return the variables of the environment that set options of a store, by the options' bare names."""
    return {
        name: variable
        for name, variables in store_of(uri).options.items()
        for variable in [next(filter(os.environ.get, variables), None)]
        if variable is not None
    }


def is_true(value: str | None) -> bool:
    """Return whether the text of an option means true."""
    return str(value).lower() in ("1", "true", "yes", "on")


def _read_setting() -> list[tuple[str, Mapping[str, str]]]:
    """Return the options of the setting `storage_options`, or of the file that it names, with their place."""
    configured = settings().storage_options
    if isinstance(configured, str):
        return [(f"the file of {FILE}", read_options(configured))]
    return [("the setting `storage_options`", configured or {})]


def read_options(path: str) -> dict[str, str]:
    """Return the options in a file, by the names that they have there.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        options = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
        return {str(name): _text(value) for name, value in options.items()}
    # What the parser says may contain a secret.
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a mapping of texts"
        raise ConfigError(
            f"the file of storage options {path} cannot be read: {reason}",
            guidance=f"correct the path in {FILE}, or write one option per line, for example "
            "aws_region: eu-central-1",
        ) from None


def _text(value: object) -> str:
    if isinstance(value, dict | list) or value is None:
        raise TypeError
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse_limits(options: Options) -> None:
    for name in LIMITS:
        value = options.get(name, "1")
        if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= _MAX_LIMIT):
            raise ConfigError(
                f"aws_{name} is {value}",
                guidance=f"write a whole number from 1 to {_MAX_LIMIT} (docs/storage.md)",
            )


def _refuse_plain_http(options: Options) -> None:
    endpoint = options.get("endpoint_url", "")
    scheme = urlsplit(endpoint).scheme
    if endpoint and scheme not in ("http", "https"):
        raise ConfigError(
            "the endpoint of the object store is not an http:// or https:// URL",
            guidance="write aws_endpoint_url (or AWS_ENDPOINT_URL) as https://HOST:PORT",
        )
    if scheme == "http" and not is_true(options.get("allow_http")):
        raise ConfigError(
            "the endpoint of the object store uses http, which sends data without encryption",
            guidance="use https, or allow it: aws_allow_http (or AWS_ALLOW_HTTP) = true",
        )


_GLOB = re.compile(r"[\\{}\[\]*?]")


@dataclass(frozen=True)
class Location:
    """The location of a folder or a file."""

    uri: str  # an absolute path, or a URI of a supported store
    # the store's options by their bare names (see `options_for`); they may be secrets, so the
    # text of a location does not contain them
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    @classmethod
    def parse(cls, place: str | Location, options: Mapping[str, str] | None = None) -> Location:
        """Return the location of a path or URI; a location is returned as it is.

        A relative path is relative to the working directory.

        Args:
            options: options of the store; they override those of the environment.

        Raises:
            ConfigError: the store of the URI, or an option of it, is not supported.
        """
        if isinstance(place, Location):
            return place
        if "://" not in place:
            return cls(str(Path(place).absolute()))
        if urlsplit(place).scheme == "file":
            return cls(place)
        return cls(place, options_for(place, options or {}))

    def __str__(self) -> str:
        return self.uri

    def child(self, *names: str) -> Location:
        """Return a location below this one; `names` has one name per level."""
        return replace(self, uri="/".join([self.uri, *names]))

    def add_suffix(self, suffix: str) -> Location:
        """Return the location whose name is this one's with a suffix."""
        return replace(self, uri=f"{self.uri}{suffix}")

    @property
    def path(self) -> Path | None:
        """The path on this machine; None if the location is not on this machine."""
        if "://" not in self.uri:
            return Path(self.uri)
        parts = urlsplit(self.uri)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def scheme(self) -> str:
        """The scheme of the URI; empty for a path."""
        return urlsplit(self.uri).scheme if "://" in self.uri else ""

    @property
    def is_object_store(self) -> bool:
        """Return whether the location is in a store that has objects, and no folders of its own."""
        return self.scheme in WITHOUT_FOLDERS

    @property
    def for_spark(self) -> str:
        """The URI for Spark's writers, whatever the default file system is; a path is not percent-encoded."""
        return self.uri if "://" in self.uri else f"file://{self.uri}"

    @property
    def for_spark_reader(self) -> str:
        """The glob pattern for Spark's readers that matches only this location."""
        return _GLOB.sub(r"\\\g<0>", self.for_spark)

    @property
    def for_delta(self) -> dict[str, str] | None:
        """The storage options for delta-rs; None if there are none."""
        if "://" not in self.uri or self.scheme == "file":
            return None
        return store_of(self.uri).for_delta(self.options) or None

    def remover(self) -> Any:
        """Return delta-rs's file system with this location as its root, to remove objects by their names.

        pyarrow would leave an empty object with the name of the folder.
        """
        from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - only object stores need it

        return DeltaStorageHandler(self.uri, self.for_delta)

    def file_system(self) -> tuple[Any, str]:
        """Return pyarrow's file system, and the path within it.

        The file system can be pickled. Options are pickled with it; credentials of the environment are not.
        """
        if self.path is not None:
            from pyarrow.fs import LocalFileSystem  # noqa: PLC0415 - the other methods do not need it

            return LocalFileSystem(), str(self.path)
        store, parts = store_of(self.uri), urlsplit(self.uri)
        return store.file_system(parts, self.options), unquote(store.root(parts))
