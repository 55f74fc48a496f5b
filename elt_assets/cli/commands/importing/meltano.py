"""The extractors of a `meltano.yml` as connections, for `elt import`, and the streams that they select.

First `Selection`, what the `select` and the `metadata` of an extractor configure; then `import_meltano`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from elt_assets.cli.commands.importing.draft import (
    ConnectionDraft,
    Json,
    Remainder,
    convert_interval,
    make_plain_name,
)
from elt_assets.connection.default_attributes import overwrite_attributes, stream_attributes
from elt_assets.errors import ConfigError
from elt_assets.lake.write.sync_columns import check_columns
from elt_assets.protocol.catalog import AirbyteStream, Catalog
from elt_assets.runner.references import looks_secret

_WILDCARD = re.compile(r"[*?\[]")
_DOT = re.compile(r"(?<!\\)\.")
_KEYS = (
    "replication-method",
    "replication-key",
    "table-key-properties",
    "view-key-properties",
    "selected",
)


@dataclass(frozen=True)
class Selection:
    """The selection of an extractor.

    Args:
        patterns: `select`: STREAM.FIELD, with wildcards; with ! before it, what is not selected.
        metadata: the metadata of streams, by patterns of their names.
    """

    patterns: Sequence[str] | None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_catalog(self) -> bool:
        """Return whether the names of the streams are known to the tap alone."""
        return any(_WILDCARD.search(stream) for is_out, stream, _ in self._rules if not is_out)

    @property
    def _rules(self) -> list[tuple[bool, str, str]]:
        """The patterns: whether they exclude, and their patterns of streams and of fields."""
        rules = []
        for pattern in self.patterns or ["*.*"]:
            stream, *rest = _DOT.split(pattern.removeprefix("!"), maxsplit=1)
            fields = rest[0] if rest else "*"
            rules.append((pattern.startswith("!"), stream.replace("\\.", "."), fields))
        return rules

    def configure(self, catalog: Catalog | None, notes: list[str]) -> list[Json]:
        """Return the settings of the selected streams.

        Args:
            catalog: the catalog of the tap; None if it is not known.
            notes: gets a line for each part that has no counterpart.
        """
        by_name = {stream.name: stream for stream in catalog.streams} if catalog is not None else {}
        names = list(by_name) or [stream for is_out, stream, _ in self._rules if not is_out]
        streams = (self._stream(name, by_name.get(name), notes) for name in dict.fromkeys(names))
        notes += [
            f"metadata.{pattern}"
            for pattern in self.metadata
            if not any(fnmatchcase(name, pattern) for name in names)
        ]
        return [stream for stream in streams if stream is not None]

    def _stream(self, name: str, stream: AirbyteStream | None, notes: list[str]) -> Json | None:
        rules = [
            (out, fields) for out, pattern, fields in self._rules if fnmatchcase(name, pattern)
        ]
        included = [fields for is_out, fields in rules if not is_out]
        excluded = [fields for is_out, fields in rules if is_out]
        metadata = self._metadata_of(name)
        if not included or metadata.get("selected") is False or "*" in excluded:
            return None
        settings = self._replication(name, stream, metadata, notes)
        available = list((stream.json_schema.get("properties") or {}) if stream is not None else {})
        fields: Json = {}
        if "*" not in included:
            # What a sync needs is stored as well, as the tap marks it `automatic`.
            needed = [".".join(path) for path in settings.get("primary_key", [])]
            needed += [".".join(settings["cursor_field"])] if "cursor_field" in settings else []
            selected = _expand(included, available, f"{name}: select", notes)
            # An exclusion always takes precedence over what is included: meltano#6401
            selected = [
                path for path in selected if not any(fnmatchcase(path, out) for out in excluded)
            ]
            fields["include"] = list(dict.fromkeys([*selected, *needed]))
        elif excluded:
            fields["exclude"] = _expand(excluded, available, f"{name}: select", notes)
        notes += [f"stream {name}: metadata.{key}" for key in metadata if key not in _KEYS]
        return {**settings, "fields": fields} if any(fields.values()) else settings

    def _metadata_of(self, name: str) -> Json:
        """Return the metadata of a stream; those of an exact name take precedence."""
        matches = [pattern for pattern in self.metadata if fnmatchcase(name, pattern)]
        merged: Json = {}
        for pattern in sorted(matches, key=lambda pattern: not _WILDCARD.search(pattern)):
            merged |= self.metadata[pattern] or {}
        return {key: value for key, value in merged.items() if value is not None}

    @staticmethod
    def _replication(
        name: str, stream: AirbyteStream | None, metadata: Json, notes: list[str]
    ) -> Json:
        method, cursor = metadata.get("replication-method"), metadata.get("replication-key")
        keys = metadata.get("table-key-properties") or metadata.get("view-key-properties") or []
        has_key = bool(keys or (stream is not None and stream.source_defined_primary_key))
        settings = overwrite_attributes(name, stream.namespace if stream is not None else None)
        if method is None and cursor is None:
            own = stream_attributes(stream, check_columns) if stream is not None else None
            if own is None:
                notes.append(f"stream {name}: no replication method is written; it is read whole")
            settings = own or settings
        elif method != "FULL_TABLE":
            settings |= {
                "sync_mode": "incremental",
                "destination_sync_mode": "append_dedup" if has_key else "append",
            }
            settings |= {"replication_method": method} if method == "LOG_BASED" else {}
            settings |= {"cursor_field": [cursor]} if cursor and method != "LOG_BASED" else {}
        if keys and settings["destination_sync_mode"].endswith("dedup"):
            settings["primary_key"] = [[key] for key in keys]
        return settings


def _expand(
    patterns: Sequence[str], available: Sequence[str], place: str, notes: list[str]
) -> list[str]:
    """Return the fields that patterns match; a pattern of fields that are not known is a note."""
    result: list[str] = []
    for pattern in patterns:
        if not _WILDCARD.search(pattern):
            result.append(pattern)
        elif available:
            result += [name for name in available if fnmatchcase(name, pattern)]
        else:
            notes.append(f"stream {place}: the fields of {pattern!r} are not known")
    return list(dict.fromkeys(result))


_WITHOUT_EFFECT = frozenset(
    {
        *("variant", "namespace", "label", "description", "docs", "repo", "logo_url"),
        *("settings_group_validation", "capabilities", "hidden", "maintenance_status"),
        *("quality", "keywords", "domain_url", "definition", "usage", "next_steps", "prereq"),
        *("use_cached_catalog", "load_schema"),
    }
)
_PROJECT_IDS = ("version", "default_environment", "project_id", "send_anonymous_usage_stats")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[\w,]+\])?==[A-Za-z0-9.!+_-]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PYTHON = re.compile(r"(?:python)?(3\.\d+)")
_SECRET_KINDS = ("password",)


def import_meltano(document: Any) -> tuple[list[tuple[ConnectionDraft, Selection]], list[str]]:
    """Return a connection for each extractor, whose streams are not configured yet, and what is left over.

    Raises:
        ConfigError: it is not the content of a `meltano.yml`, or it has no extractor.
    """
    rest = Remainder(document, "meltano.yml")
    plugins = Remainder(rest.take("plugins") or {}, "plugins")
    extractors = plugins.take("extractors") or []
    if not extractors:
        raise ConfigError(
            "meltano.yml has no extractors", guidance="give the file of a Meltano project"
        )
    by_name = {str(extractor.get("name")): extractor for extractor in extractors}
    schedules, left = _schedules(rest)
    drafts = [_extractor(_inherit(extractor, by_name), schedules) for extractor in extractors]
    left += plugins.describe_rest()
    left += rest.describe_rest(_PROJECT_IDS)
    return drafts, left


def _inherit(extractor: Json, by_name: Mapping[str, Json], depth: int = 0) -> Json:
    """Return an extractor with what it inherits from another one of the file."""
    base = by_name.get(str(extractor.get("inherit_from")))
    if base is None or depth > len(by_name):
        return extractor
    parent = _inherit(base, by_name, depth + 1)
    merged = {**parent, **extractor}
    for key in ("config", "metadata"):
        if key in parent or key in extractor:
            merged[key] = {**(parent.get(key) or {}), **(extractor.get(key) or {})}
    return merged


def _extractor(extractor: Json, schedules: Mapping[str, str]) -> tuple[ConnectionDraft, Selection]:
    rest = Remainder(extractor, str(extractor.get("name")))
    name = str(rest.take("name"))
    draft = ConnectionDraft(make_plain_name(name.removeprefix("tap-")), "meltano.yml", {})
    draft.source = _source(name, rest, draft)
    _add_config(name, rest, draft)
    if name in schedules:
        draft.settings["schedule"] = schedules[name]
    selection = Selection(rest.take("select"), rest.take("metadata") or {})
    draft.untranslated += rest.describe_rest(_WITHOUT_EFFECT)
    return draft, selection


def _source(name: str, rest: Remainder, draft: ConnectionDraft) -> Json:
    """Return the tap: a package of an exact version, or else the program."""
    url, program = rest.take("pip_url"), rest.take("executable")
    inherited = rest.take("inherit_from")
    words = str(url or "").split()
    python = _PYTHON.fullmatch(str(rest.take("python") or ""))
    options: Json = {"python": python[1]} if python is not None else {}
    if len(words) == 1 and _PINNED.fullmatch(words[0]) and "[" not in words[0]:
        return {"tap": words[0], **options}
    command = str(program or inherited or name)
    if words:
        draft.untranslated.append(
            f"{name}.pip_url: it names no exact version of one package; install it, so that {command} is on "
            "the PATH, or write `tap: NAME==VERSION`"
        )
    return {"tap": [command]}


def _add_config(name: str, rest: Remainder, draft: ConnectionDraft) -> None:
    """Add the config. Meltano joins the names of nested settings by dots."""
    kinds = {str(setting.get("name")): setting for setting in rest.take("settings") or []}
    nested: Json = {}
    for key, value in (rest.take("config") or {}).items():
        *above, last = str(key).split(".")
        inner = nested
        for step in above:
            inner = inner.setdefault(step, {})
        inner[last] = _reference(value, f"{name}.config.{key}", draft)
    secret = {
        key.split(".")[-1]
        for key, setting in kinds.items()
        if setting.get("kind") in _SECRET_KINDS or setting.get("sensitive")
    }
    for key in sorted(secret - {str(key).split(".")[-1] for key in _keys(nested)}):
        nested[key] = {"env": _variable(name, key)}
        draft.variables[_variable(name, key)] = f"config.{key}"
    # With the name of the extractor they are the variables that Meltano reads, so its `.env` holds here.
    draft.hide_secrets(nested, name, lambda field: field in secret or looks_secret(field))
    environment = rest.take("env")
    if environment:
        draft.source["environment"] = {
            key: _reference(str(value), f"{name}.env.{key}", draft)
            for key, value in environment.items()
        }


def _variable(name: str, key: str) -> str:
    """Return the variable from which Meltano reads a setting."""
    return re.sub(r"\W", "_", f"{name}_{key}", flags=re.ASCII).upper()


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and set(value) != {"env"}:
        for key, inner in value.items():
            yield key
            yield from _keys(inner)


def _reference(value: Any, place: str, draft: ConnectionDraft) -> Any:
    """Return a value with references to variables in our form."""
    if isinstance(value, Mapping):
        return {key: _reference(inner, f"{place}.{key}", draft) for key, inner in value.items()}
    if isinstance(value, list):
        return [_reference(inner, place, draft) for inner in value]
    match = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        variable = match[1] or match[2]
        draft.variables[variable] = place.partition(".")[2]
        return {"env": variable}
    if isinstance(value, str) and _VARIABLE.search(value):
        draft.untranslated.append(
            f"{place}: a variable within a text is not replaced; write the whole value"
        )
    return value


def _schedules(rest: Remainder) -> tuple[dict[str, str], list[str]]:
    """Return the cron expression of each extractor, and the schedules that have no counterpart."""
    jobs = {str(job.get("name")): job.get("tasks") for job in rest.take("jobs") or []}
    schedules: dict[str, str] = {}
    left = [f"jobs.{name}" for name in jobs]
    for schedule in rest.take("schedules") or []:
        tasks = jobs.get(str(schedule.get("job")))
        words = str(tasks if isinstance(tasks, str) else (tasks or [""])[0]).strip("[]'\"").split()
        extractor = schedule.get("extractor") or (words[0] if words else "")
        interval = convert_interval(str(schedule.get("interval")))
        if interval is None or not extractor:
            left.append(
                f"schedules.{schedule.get('name')}: the interval {schedule.get('interval')!r}"
            )
        else:
            schedules[str(extractor)] = interval
    return schedules, left
