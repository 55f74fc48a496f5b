"""A connection of Airbyte, from the answers of its API, for `elt import`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elt_assets.cli.commands.importing.draft import (
    ConnectionDraft,
    Json,
    Remainder,
    convert_basic,
    convert_quartz,
    make_plain_name,
)
from elt_assets.errors import ConfigError

_MODES = {
    "full_refresh_overwrite": ("full_refresh", "overwrite"),
    "full_refresh_overwrite_deduped": ("full_refresh", "overwrite_dedup"),
    "full_refresh_append": ("full_refresh", "append"),
    "incremental_append": ("incremental", "append"),
    "incremental_deduped_history": ("incremental", "append_dedup"),
}
_CONNECTION_IDS = frozenset(
    {
        *("connectionId", "sourceId", "destinationId", "workspaceId", "createdAt", "updatedAt"),
        *("createdBy", "catalogId", "geography", "dataplaneGroupId", "dataResidency"),
        *("breakingChange", "schemaChange", "latestSyncJobStatus", "latestSyncJobCreatedAt"),
        *("isSyncing", "catalogDiff", "source", "sourceCatalogId", "operationIds"),
        *("resourceRequirements", "tags"),
    }
)
"""Keys that identify or describe the connection at Airbyte, and say nothing of its syncs."""
_SOURCE_IDS = frozenset(
    {
        *("sourceId", "name", "workspaceId", "createdAt", "updatedAt", "sourceName", "icon"),
        *("isVersionOverrideApplied", "supportState", "sourceDefinitionId", "definitionId"),
        *("breakingChanges", "isEntitled", "status", "numConnections"),
    }
)
_SCHEMA_CHANGES = {
    "ignore": "freeze",
    "disable": "fail",
    "disable_connection": "fail",
    "propagate_columns": "evolve",
    "propagate_fully": "evolve",
}
_OPERATORS = {"EQUAL": "="}
_STREAM_NAMES = ("name", "namespace")
_STREAM_WITHOUT_EFFECT = ("selected", "aliasName", "suggested", "destinationObjectName")


def import_airbyte(
    documents: Sequence[Any], name: str | None, source: Json | None
) -> ConnectionDraft:
    """Return the connection that answers of Airbyte's API describe.

    Args:
        documents: the connection and its source: two answers, or one that holds both.
        name: the name of the connection; default: that at Airbyte.
        source: what runs in place of Airbyte's image.

    Raises:
        ConfigError: a part is missing, or has another form.
    """
    connection, origin = _find_parts(documents)
    kind, version_lines = _source_attributes(origin)
    draft = ConnectionDraft(
        make_plain_name(name or str(connection.get("name") or origin.get("name") or "")),
        "Airbyte",
        source or kind,
    )
    draft.untranslated += version_lines if source is None else []
    _add_config(draft, origin)
    rest = Remainder(connection, "connection")
    rest.take("name")
    _add_settings(draft, rest)
    draft.streams = list(_streams(rest, draft))
    if not draft.streams:
        raise ConfigError(
            "the connection has no selected stream that can be translated"
            + "".join(f"\n  - {line}" for line in draft.untranslated),
            guidance="select streams at Airbyte, or write defs.yaml yourself",
        )
    draft.untranslated += rest.describe_rest(_CONNECTION_IDS)
    return draft


def _find_parts(documents: Sequence[Any]) -> tuple[Json, Json]:
    """Return the connection and the source."""
    candidates: list[Any] = []
    for document in documents:
        if isinstance(document, Mapping):
            candidates += [document, document.get("connection"), document.get("source")]
    objects = [value for value in candidates if isinstance(value, dict)]
    connection = next((o for o in objects if "configurations" in o or "syncCatalog" in o), None)
    origin = next(
        (o for o in objects if "configuration" in o or "connectionConfiguration" in o), None
    )
    if connection is None or origin is None:
        missing = (
            "connection, with its streams"
            if connection is None
            else "source, with its configuration"
        )
        raise ConfigError(
            f"the file has no {missing}",
            guidance="save the answers of Airbyte's API for the connection and for its source, and give both "
            'files; or one file, {"connection": …, "source": …}',
        )
    return connection, origin


def _source_attributes(origin: Mapping[str, Any]) -> tuple[Json, list[str]]:
    """Return the image of the source, and what is not said of it."""
    repository, tag = origin.get("dockerRepository"), origin.get("dockerImageTag")
    if repository is None and isinstance(origin.get("sourceType"), str):
        repository = f"airbyte/source-{origin['sourceType']}"
    if not isinstance(repository, str):
        name = str(origin.get("sourceName") or "").lower().replace(" ", "-")
        repository = f"airbyte/source-{name}"
    if isinstance(tag, str):
        return {"image": f"{repository}:{tag}"}, []
    return {"image": repository}, [
        "source: the version of the connector is not in the answer; write it behind the name of the image"
    ]


def _add_config(draft: ConnectionDraft, origin: Mapping[str, Any]) -> None:
    rest = Remainder(origin, "source")
    config = rest.take("configuration", "connectionConfiguration")
    rest.take("dockerRepository", "dockerImageTag", "sourceType")
    if not isinstance(config, Mapping):
        raise ConfigError(
            "source.configuration is not an object",
            guidance="save the answer for the source as Airbyte's API gives it",
        )
    draft.hide_secrets(_mark_secrets(config), draft.name)
    draft.untranslated += rest.describe_rest(_SOURCE_IDS)


def _mark_secrets(value: Any) -> Any:
    """Return a config in which a text stands for each reference to a secret that Airbyte stores."""
    if isinstance(value, Mapping):
        if set(value) & {"_secret", "secretCoordinate"}:
            return "*****"
        return {name: _mark_secrets(inner) for name, inner in value.items()}
    return [_mark_secrets(inner) for inner in value] if isinstance(value, list) else value


def _add_settings(draft: ConnectionDraft, rest: Remainder) -> None:
    prefix = rest.take("prefix")
    if prefix:
        draft.settings["prefix"] = prefix
    if rest.take("status") == "inactive":
        draft.settings["enabled"] = False
    change = rest.take("nonBreakingSchemaUpdatesBehavior", "nonBreakingChangesPreference")
    draft.settings["on_schema_change"] = _SCHEMA_CHANGES.get(str(change), "evolve")
    definition, form = rest.take("namespaceDefinition"), rest.take("namespaceFormat")
    if definition in ("custom_format", "customformat") and form:
        if "$" in form or make_plain_name(form) != str(form).lower():
            draft.untranslated.append(
                f"connection.namespaceFormat: {form!r} is made of parts of each stream; write `namespace`"
            )
        else:
            draft.settings["namespace"] = form
    _add_schedule(draft, rest)


def _add_schedule(draft: ConnectionDraft, rest: Remainder) -> None:
    schedule = rest.take("schedule", "scheduleData") or {}
    kind = rest.take("scheduleType") or schedule.get("scheduleType")
    if kind == "manual" or not schedule:
        return
    cron, basic = schedule.get("cron") or schedule, schedule.get("basicSchedule") or schedule
    expression, zone = cron.get("cronExpression"), cron.get("cronTimeZone")
    if expression:
        words = str(expression).split()
        if ("/" in words[-1] and not words[-1][0].isdigit() and "*" not in words[-1]) or words[
            -1
        ] == "UTC":
            zone = words.pop()
        text, converted = str(expression), convert_quartz(" ".join(words))
    else:
        units, unit = basic.get("units"), basic.get("timeUnit")
        text = str(basic.get("basicTiming") or f"{units} {unit}")
        converted = convert_basic(text)
    if converted is None:
        draft.untranslated.append(
            f"connection.schedule: {text!r} has no cron expression; write `schedule`"
        )
        return
    draft.settings["schedule"] = converted
    if zone:
        draft.settings["timezone"] = zone


def _streams(rest: Remainder, draft: ConnectionDraft) -> Iterator[Json]:
    change = draft.settings.pop("on_schema_change")
    configurations, catalog = rest.take("configurations"), rest.take("syncCatalog")
    listed = (configurations or {}).get("streams") or (catalog or {}).get("streams") or []
    for number, entry in enumerate(listed):
        inner = entry.get("config") if isinstance(entry.get("config"), Mapping) else entry
        named = entry.get("stream") if isinstance(entry.get("stream"), Mapping) else entry
        if inner.get("selected") is False:
            continue
        stream = Remainder(
            {**inner, **{key: named.get(key) for key in _STREAM_NAMES}}, f"streams[{number}]"
        )
        settings = _stream(stream, draft)
        if settings is not None:
            yield settings if change == "evolve" else {**settings, "on_schema_change": change}


def _stream(rest: Remainder, draft: ConnectionDraft) -> Json | None:
    name, namespace = rest.take("name"), rest.take("namespace")
    mode, destination = str(rest.take("syncMode")), rest.take("destinationSyncMode")
    modes = _MODES.get(mode)
    if destination is not None:
        modes = (mode, str(destination)) if (mode, str(destination)) in _MODES.values() else None
    if modes is None:
        draft.untranslated.append(
            f"stream {name}: the sync mode {mode} {destination or ''}".rstrip()
        )
        return None
    settings: Json = {"name": name, **({"namespace": namespace} if namespace else {})}
    settings |= {"sync_mode": modes[0], "destination_sync_mode": modes[1]}
    cursor, key = rest.take("cursorField"), rest.take("primaryKey")
    if cursor and modes[0] == "incremental":
        settings["cursor_field"] = cursor
    if key and modes[1].endswith("dedup"):
        settings["primary_key"] = key
    _add_fields(settings, rest, draft)
    place = f"stream {name}"
    draft.untranslated += [
        f"{place}: {line}" for line in rest.describe_rest(_STREAM_WITHOUT_EFFECT)
    ]
    return settings


def _add_fields(settings: Json, rest: Remainder, draft: ConnectionDraft) -> None:
    """Translate the selection of fields, and the mappers."""
    selected, enabled = rest.take("selectedFields"), rest.take("fieldSelectionEnabled")
    fields: Json = {}
    if selected and enabled is not False:
        fields["include"] = [list(item["fieldPath"]) for item in selected]
    hashed = [list(item["fieldPath"]) for item in rest.take("hashedFields") or []]
    renames: Json = {}
    for mapper in rest.take("mappers") or []:
        kind, options = mapper.get("type"), mapper.get("mapperConfiguration") or {}
        target = options.get("targetField")
        if kind == "hashing" and target:
            hashed.append([target])
            draft.untranslated.append(
                f"stream {settings['name']}: the hash of {target} is another one, in a column without suffix"
            )
        elif kind == "field-renaming" and options.get("originalFieldName"):
            renames[options["originalFieldName"]] = options.get("newFieldName")
        elif kind == "field-filtering" and target and "include" not in fields:
            fields.setdefault("exclude", []).append([target])
        elif kind == "row-filtering" and (condition := _condition(options.get("conditions"))):
            settings.setdefault("filter", []).append(condition)
        else:
            draft.untranslated.append(f"stream {settings['name']}: the mapper {kind}")
    if hashed:
        fields["hash"] = hashed
    settings |= {"fields": fields} if fields else {}
    settings |= {"rename": renames} if renames else {}


def _condition(conditions: Any) -> Json | None:
    """Return the condition of rows that are stored; None if it has no counterpart."""
    if not isinstance(conditions, Mapping):
        return None
    inner = conditions.get("conditions")
    is_negated = conditions.get("type") == "NOT" and isinstance(inner, list) and len(inner) == 1
    condition = inner[0] if is_negated and inner else conditions
    if not isinstance(condition, Mapping) or condition.get("type") not in _OPERATORS:
        return None
    operator = "!=" if is_negated else _OPERATORS[condition["type"]]
    return {
        "field": condition.get("fieldName"),
        "operator": operator,
        "value": condition.get("comparisonValue"),
    }
