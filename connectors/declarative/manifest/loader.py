"""Loads a manifest: its text becomes typed components, or one error that lists all problems.

    manifest = load(Path("manifest.yaml"))
    for stream in manifest.source.streams: ...

Spec: Airbyte's low-code manifests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from connectors.declarative.manifest.builder import Builder, Propagation
from connectors.declarative.manifest.components import (
    DeclarativeSource,
    DeclarativeStream,
    DynamicDeclarativeStream,
    Json,
    Spec,
)
from connectors.declarative.manifest.references import resolve
from connectors.declarative.manifest.report import GUIDANCE, Report
from connectors.declarative.manifest.shapes import NAMES, fields
from connectors.declarative.manifest.yaml_text import parse
from elt_assets.errors import ConfigError

KNOWN_VERSION = (7, 39)
"""The newest version of the Airbyte CDK whose manifests this package knows."""
_TEXT_NAME = "the manifest"


@dataclass(frozen=True)
class Refusal:
    """The reason why a stream, or each stream of a template, cannot be read."""

    place: str
    """The place of the stream or the template in the manifest."""
    name: str | None
    """The name of the stream; None if it is not known, as those that a template makes."""
    problems: Sequence[str]
    """A line for each problem, with its place."""
    guidance: str | None = GUIDANCE

    def __str__(self) -> str:
        subject = self.place if self.name is None else f"the stream {self.name!r}"
        return f"{subject} cannot be read: {'; '.join(self.problems)}"

    def error(self) -> ConfigError:
        """Return the error of a read of the stream."""
        return ConfigError(str(self), guidance=self.guidance)


def find_refusal(refusals: Iterable[Refusal], name: str) -> ConfigError | None:
    """Return why a stream that is not listed cannot be read; None if there is no such stream.

    A name that is not known may be that of a stream without a known name.
    """
    possible = [refusal for refusal in refusals if refusal.name in (name, None)]
    return min(possible, key=lambda refusal: refusal.name is None).error() if possible else None


@dataclass(frozen=True)
class Manifest:
    """A manifest that was loaded.

    Attributes:
        source: its component.
        warnings: what is ignored, doubtful or refused in it, each with its place.
        path: its file; None if it was loaded from a text.
        refusals: what has problems, and is not in the source.
        reasons_for_airbyte: what only Airbyte's engine can run, each with its places.
    """

    source: DeclarativeSource
    warnings: list[str]
    path: Path | None = None
    refusals: Sequence[Refusal] = ()
    reasons_for_airbyte: Sequence[str] = ()
    _trusted: tuple[str, ...] = ()
    _templates: Mapping[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def spec(self) -> Spec | None:
        """The specification of the config, if the manifest has one."""
        return self.source.spec

    def stream_template(self, dynamic: DynamicDeclarativeStream) -> dict[str, Any]:
        """Return a copy of what the template of a dynamic stream is built from, to fill it in.

        Types and `$parameters` are written out in it, as in the CDK, so that a path such as
        `retriever.requester.$parameters.name` leads to something.
        """
        return deepcopy(self._templates[dynamic.place])

    def build_stream(
        self, dynamic: DynamicDeclarativeStream, content: Mapping[str, Any]
    ) -> DeclarativeStream:
        """Return a stream that was made of the template of a dynamic stream.

        Args:
            dynamic: the dynamic stream.
            content: its template, with values of one stream.

        Raises:
            ManifestError: the stream has problems; the error lists them.
        """
        shape = fields(DynamicDeclarativeStream)["stream_template"].shape
        place = f"{dynamic.place}.stream_template"
        report = Report()
        propagation = Propagation(report, parents_win=dynamic.use_parent_parameters)
        propagated = propagation.apply(shape, dict(content), place, {})
        stream = Builder(report, self._trusted).convert(shape, propagated, place)
        report.raise_problems(f"the stream {content.get('name')!r} of {dynamic.name or place}")
        assert isinstance(stream, DeclarativeStream)
        return stream


def load(manifest: Path | str, *, trusted: Sequence[str] = ()) -> Manifest:
    """Load a manifest.

    Args:
        manifest: the path of a file, or the text of a manifest. A `str` is a text if it has several lines or
            begins with a brace.
        trusted: the modules whose Python classes the manifest may name, such as "source_x.components"; the
            modules within a package are trusted with it.

    Raises:
        ConfigError: the manifest cannot be used. The error lists all problems, each with its place.
    """
    report, path = Report(), _path(manifest)
    source, builder = _build(manifest, report, trusted)
    if report.refuses("") or source is None or not (source.streams or source.dynamic_streams):
        report.raise_problems(_name(path))
    assert source is not None  # there is no problem of the whole manifest
    refusals = [
        Refusal(place, builder.names.get(place), problems)
        for place, problems in report.refused.items()
    ]
    return Manifest(
        source,
        [*report.warnings, *map(str, refusals)],
        path,
        refusals,
        report.reasons_for_airbyte,
        tuple(trusted),
        builder.templates_of_streams,
    )


def refuse_for_all_engines(manifest: Path | str, trusted: Sequence[str]) -> None:
    """Check that a manifest has nothing that no engine may or can run, such as Python that is not trusted.

    What only the engine of this project refuses is passed over. The arguments are those of `load`.

    Raises:
        ConfigError: it has, or it is not YAML. The error lists each of these with its place.
    """
    report = Report()
    _build(manifest, report, trusted)
    report.raise_refusals(_name(_path(manifest)))


def _path(manifest: Path | str) -> Path | None:
    """Return the path of a manifest; None for the text of one."""
    is_text = isinstance(manifest, str) and ("\n" in manifest or manifest.lstrip()[:1] == "{")
    return None if is_text else Path(manifest)


def _name(path: Path | None) -> str:
    return _TEXT_NAME if path is None else str(path)


def _build(
    manifest: Path | str, report: Report, trusted: Sequence[str]
) -> tuple[DeclarativeSource | None, Builder]:
    """Return the component of a manifest, None if it has problems, which are reported; and its builder."""
    path = _path(manifest)
    name = _name(path)
    document = parse(str(manifest) if path is None else _read(path), name)
    if not isinstance(document.value, dict):
        raise ConfigError(f"{name} is not a manifest: it must be a mapping")
    for place, key in document.repeated:
        report.add_warning(place, f"the key {key!r} is there twice; the last one counts")
    builder = Builder(report, trusted)
    try:
        resolved = resolve(document, report, omitted="definitions")
        return _source(builder, report, resolved, document.value.get("definitions")), builder
    except RecursionError:
        raise ConfigError(f"{name} nests its references too deep") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text in UTF-8"
        raise ConfigError(f"the manifest {path} cannot be read: {reason}") from None


def _source(
    builder: Builder, report: Report, content: Json, definitions: Any
) -> DeclarativeSource | None:
    if content.get("type", NAMES[DeclarativeSource]) != NAMES[DeclarativeSource]:
        report.add_problem("type", f"it must be {NAMES[DeclarativeSource]}")
    if not content.get("streams") and not content.get("dynamic_streams"):
        report.add_problem("", "it has neither `streams` nor `dynamic_streams`")
    version = re.match(r"(\d+)\.(\d+)", str(content.get("version", "")))
    if version and (int(version[1]), int(version[2])) > KNOWN_VERSION:
        known_version = ".".join(map(str, KNOWN_VERSION))
        text = f"the manifest is newer than {known_version}; what is newer in it is not known"
        report.add_warning("version", text)
    return builder.build(DeclarativeSource, {**content, "definitions": definitions}, "", {})
