"""Airbyte low-code manifests as sources of the SDK.

Spec: Airbyte's low-code manifests; Incremental sync.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Semaphore
from typing import Any

from connectors.declarative.check import check_streams, overlap_advice
from connectors.declarative.config import (
    Place,
    check_config,
    find_user_hosts,
    migrate,
    read_advanced_auth,
    transform,
)
from connectors.declarative.dynamic import make_streams, warn_of_mappings
from connectors.declarative.manifest.components import (
    AsyncRetriever,
    ConcurrencyLevel,
    DeclarativeSource,
    DeclarativeStream,
)
from connectors.declarative.manifest.loader import Manifest, Refusal, find_refusal, load
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.budgets import Budget
from connectors.declarative.requests.environment import TIMEOUT_SECONDS, Environment
from connectors.declarative.requests.expressions import read_number
from connectors.declarative.stream import ManifestStream, Readers
from connectors.sdk.config import validate
from connectors.sdk.http.addresses import AddressGuard
from connectors.sdk.http.connections import Connections
from connectors.sdk.reports import report_warning
from connectors.sdk.saved_config import report_config
from connectors.sdk.source import Source
from elt_assets.errors import ConfigError, EltError

MAX_THREADS = 50
"""The largest number of slices that are read at the same time, whatever the manifest says."""
_FILE_NAMES = ("manifest",)


class ManifestSource(Source):
    """The source that a manifest describes. The manifest is loaded when it is first needed.

    Args:
        manifest: the path of the manifest, or its text.
        trusted: what the user trusts: modules whose Python the manifest may name, and the URLs of origins
            that get credentials when the API links to them.
        changed: the places of the config that this source itself has changed in earlier runs: what is there
            may come from the manifest or the API.

    Attributes:
        modules: the trusted modules. Airbyte's engine runs their Python; this source refuses the streams
            that use it.
    """

    def __init__(
        self, manifest: Path | str, trusted: Sequence[str] = (), changed: Sequence[Place] = ()
    ):
        self._file_or_text = manifest
        self.modules = [entry for entry in trusted if "://" not in entry]
        self._origins = [entry for entry in trusted if "://" in entry]
        self.name = _name(manifest)
        self._changed = changed
        self._config_hosts: Collection[str] = ()
        self._migrated: dict[str, Any] | None = None
        self._environments: list[Environment] = []
        self._refusals: list[Refusal] = []
        """Why streams that the last config defines cannot be read."""

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest.

        Raises:
            ConfigError: it cannot be used. The error lists all problems, each with its place.
        """
        return load(self._file_or_text, trusted=self.modules)

    @property
    def warnings(self) -> Sequence[str]:  # type: ignore[override]
        warnings = [*self.manifest.warnings, *warn_of_mappings(self.manifest)]
        return [f"manifest: {warning}" for warning in warnings]

    @property
    def documentation_url(self) -> str | None:  # type: ignore[override]
        return None if self.manifest.spec is None else self.manifest.spec.documentation_url

    @property
    def advanced_auth(self) -> Mapping[str, Any] | None:  # type: ignore[override]
        return read_advanced_auth(self.manifest.spec)

    def specification(self) -> dict[str, Any]:
        spec = self.manifest.spec
        return {"type": "object"} if spec is None else dict(spec.connection_specification)

    def parse(self, raw_config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a config after the changes that the manifest describes. One that is changed for good is
        reported, so that it is saved.

        Raises:
            ConfigError: the config is not valid. The message names every violation, and quotes no value.
        """
        spec = self.manifest.spec
        self._config_hosts = find_user_hosts(raw_config, self._changed, self.specification())
        self._migrated = migrate(spec, raw_config)
        config = transform(spec, self._migrated)
        validate(config, self.specification())
        check_config(spec, config)
        return config

    def check(self, config: Any) -> None:
        overrides = self.manifest.source.check.config_overrides or {}
        streams = self.streams({**config, **overrides})
        check_streams(self.manifest.source, streams, self.refusal)
        for advice in overlap_advice(streams):
            report_warning(advice)

    def refusal(self, name: str) -> EltError | None:
        return find_refusal([*self.manifest.refusals, *self._refusals], name)

    def streams(self, config: Any) -> list[ManifestStream]:
        environment = self._open_environment(config)
        self._refusals = []
        components = self._list_components(environment)
        selected = self.selected
        read = [
            component for component in components if selected is None or component.name in selected
        ]
        readers = Readers(environment, read)
        threads = _threads(self.manifest.source.concurrency_level, config)
        jobs = max(threads, _jobs(self.manifest.source, config))
        streams = []
        for component in components:
            number = jobs if _has_jobs(component) else threads
            try:
                streams.append(ManifestStream(component, readers, number))
            except ConfigError as error:
                refusal = Refusal(component.place, component.name, [error.message], error.guidance)
                self._refusals.append(refusal)
        if self._refusals and not streams:
            raise self._refusals[0].error()
        for refusal in self._refusals:
            report_warning(f"manifest: {refusal}")
        return streams

    def _list_components(self, environment: Environment) -> list[DeclarativeStream]:
        """Return the components of all streams that a config gives access to, and keep the refusals of those
        that cannot be made.

        Raises:
            ConfigError: two streams have the same name.
            EltError: the API that defines streams fails.
        """
        streams: dict[str, DeclarativeStream] = {}
        for stream in (
            *self.manifest.source.streams,
            *make_streams(self.manifest, environment),
        ):
            if isinstance(stream, Refusal):
                self._refusals.append(stream)
            elif stream.name in streams:
                raise ConfigError(
                    f"{stream.place}: there are two streams with the name {stream.name!r}",
                    guidance="rename one of them in the manifest",
                )
            else:
                streams[stream.name] = stream
        return list(streams.values())

    def close(self) -> None:
        """Wait for tokens that are being fetched, and close all connections."""
        while self._environments:
            environment = self._environments.pop()
            environment.settle()
            environment.close()

    def _open_environment(self, config: dict[str, Any]) -> Environment:
        manifest = self.manifest
        budget = manifest.source.api_budget
        environment = Environment(
            config,
            self._migrated,
            connections=Connections(
                timeout=TIMEOUT_SECONDS, guard=AddressGuard(self._config_hosts)
            ),
            budget=None if budget is None else Budget(budget, config),
            folder=None if manifest.path is None else manifest.path.parent,
            job_slots=Semaphore(_jobs(manifest.source, config)),
            trusted_origins=self._origins,
            on_config=report_config,
        )
        self._environments.append(environment)
        return environment


def _name(manifest: Path | str) -> str:
    """Return a name for a manifest: that of its file, or of its folder if the file is named as all are."""
    if isinstance(manifest, str):
        return "manifest"
    return manifest.resolve().parent.name if manifest.stem in _FILE_NAMES else manifest.stem


def _threads(level: ConcurrencyLevel | None, config: Mapping[str, Any]) -> int:
    """Return the number of slices to read at the same time."""
    if level is None:
        return 1
    number = _number(level.default_concurrency, config, f"{level.place}.default_concurrency")
    return min(number, level.max_concurrency or MAX_THREADS, MAX_THREADS)


def _has_jobs(stream: DeclarativeStream) -> bool:
    """Return whether the API prepares the data of the stream in jobs, which may run at the same time."""
    return isinstance(stream.retriever, AsyncRetriever)


def _jobs(source: DeclarativeSource, config: Mapping[str, Any]) -> int:
    """Return the number of jobs of the API that may run at the same time."""
    return _number(source.max_concurrent_async_job_count, config, "max_concurrent_async_job_count")


def _number(setting: int | Template | None, config: Mapping[str, Any], place: str) -> int:
    """Return a whole number, at least 1; 1 if the manifest does not have it."""
    return 1 if setting is None else max(1, int(read_number(setting, config, place)))
