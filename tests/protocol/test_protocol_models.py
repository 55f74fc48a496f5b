"""Every field and every value that the newest published models of the protocol have is classified here.

A new release of the models with a new field or value fails this test, until it is decided what becomes of it.
"""

from __future__ import annotations

import enum
import inspect
from typing import Any

import airbyte_protocol.models as published
import pydantic
import pytest
from msgspec import structs

from elt_assets.protocol import catalog, codec, messages
from elt_assets.protocol.catalog import find_modes
from elt_assets.protocol.message_rules import GLOBAL, LEGACY, STREAM
from elt_assets.protocol.wire import Wire

STRUCTS: dict[str, type[Wire]] = {
    "AirbyteMessage": messages.Message,
    "AirbyteRecordMessage": messages.Record,
    "AirbyteStateMessage": messages.State,
    "AirbyteStreamState": messages.StreamState,
    "AirbyteGlobalState": messages.GlobalState,
    "AirbyteStateStats": messages.StateStats,
    "AirbyteLogMessage": messages.Log,
    "AirbyteTraceMessage": messages.Trace,
    "AirbyteErrorTraceMessage": messages.ErrorTrace,
    "AirbyteEstimateTraceMessage": messages.EstimateTrace,
    "AirbyteStreamStatusTraceMessage": messages.StreamStatusTrace,
    "AirbyteStreamStatusReason": messages.StreamStatusReason,
    "AirbyteAnalyticsTraceMessage": messages.AnalyticsTrace,
    "AirbyteControlMessage": messages.Control,
    "AirbyteControlConnectorConfigMessage": messages.ConnectorConfig,
    "AirbyteConnectionStatus": messages.ConnectionStatus,
    "AirbyteCatalog": catalog.Catalog,
    "AirbyteStream": catalog.AirbyteStream,
    "StreamDescriptor": catalog.StreamDescriptor,
    "ConfiguredAirbyteCatalog": catalog.ConfiguredCatalog,
    "ConfiguredAirbyteStream": catalog.ConfiguredStream,
    "ConnectorSpecification": messages.Specification,
    "DestinationCatalog": messages.DestinationCatalog,
}
"""The structs whose typed fields are accepted; other fields of a message are kept and passed on."""

PASSED_ON = "kept in the JSON value that contains it, byte for byte"
REFUSED = "refused, with an error that names it"
HARMLESS = "not used: it describes user interfaces, logins of a platform, or a discarded feature"

FIELDS = {
    "ConnectorSpecification.authSpecification": HARMLESS,
    "AirbyteRecordMessageMeta": PASSED_ON,
    "AirbyteRecordMessageMetaChange": PASSED_ON,
    "AirbyteRecordMessageFileReference": "read by `message_rules`, and passed on byte for byte",
    "AirbyteStreamStatusRateLimitedReason": PASSED_ON,
    "AirbyteStateBlob": PASSED_ON,
    "AdvancedAuth": HARMLESS,
    "AuthSpecification": HARMLESS,
    "OAuth2Specification": HARMLESS,
    "OAuthConfigSpecification": HARMLESS,
    "OauthConnectorInputSpecification": HARMLESS,
    "State": HARMLESS,
    "DestinationOperation": "of a destination's `discover`, which `elt-destination` does not have",
}
"""Treatment of the other fields, by class and name, or by class alone."""

ACCEPTED_VALUES: dict[str, set[str]] = {
    "Type": {
        *("RECORD", "STATE", "LOG", "SPEC", "CONNECTION_STATUS", "CATALOG"),
        *("TRACE", "CONTROL", "DESTINATION_CATALOG"),
    },
    "AirbyteStateType": {STREAM, GLOBAL, LEGACY},
    "TraceType": {codec.ERROR, codec.STREAM_STATUS, "ESTIMATE", "ANALYTICS"},
    "AirbyteStreamStatus": {"STARTED", "RUNNING", "COMPLETE", "INCOMPLETE"},
    "AirbyteStreamStatusReasonType": {"RATE_LIMITED"},
    "EstimateType": {"STREAM", "SYNC"},
    "FailureType": {"system_error", "config_error", "transient_error"},
    "OrchestratorType": {"CONNECTOR_CONFIG"},
    "Status": {"SUCCEEDED", "FAILED"},
    "SyncMode": {catalog.FULL_REFRESH, catalog.INCREMENTAL},
    "DestinationSyncMode": {name for name, mode in find_modes().items() if mode.is_standard},
    "Level": {"FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"},
}
OTHER_VALUES = {
    "DestinationSyncMode.update": REFUSED,
    "DestinationSyncMode.soft_delete": "accepted in a catalog: tests/destination/test_write.py",
    "Change": PASSED_ON,
    "Reason": PASSED_ON,
    "AuthFlowType": HARMLESS,
    "AuthType": HARMLESS,
    "Integer1": "a value of a data type: tests/lake/test_conform.py",
    "Number1": "a value of a data type: tests/lake/test_conform.py",
}


def classes(base: type[Any]) -> list[type[Any]]:
    """Return the classes of the published models that extend a class, except for data types."""
    every = (model for _, model in inspect.getmembers(published, inspect.isclass))
    return [
        model
        for model in every
        if issubclass(model, base)
        and model.__module__.startswith("airbyte_protocol")
        and not issubclass(model, pydantic.RootModel)
        and model.__name__ != "AirbyteProtocol"
    ]


@pytest.mark.spec("protocol.78")
@pytest.mark.parametrize("model", classes(pydantic.BaseModel), ids=lambda model: model.__name__)
def test_every_field_of_the_published_models_is_classified(model: type[Any]) -> None:
    struct = STRUCTS.get(model.__name__)
    typed = set() if struct is None else {field.encode_name for field in structs.fields(struct)}
    for name, field in model.model_fields.items():
        published_name = field.alias or name
        is_classified = {model.__name__, f"{model.__name__}.{published_name}"} & FIELDS.keys()
        assert published_name in typed or is_classified, published_name


@pytest.mark.spec("protocol.78")
@pytest.mark.parametrize("values", classes(enum.Enum), ids=lambda values: values.__name__)
def test_every_value_of_the_published_models_is_classified(values: type[enum.Enum]) -> None:
    accepted = ACCEPTED_VALUES.get(values.__name__, set())
    for member in values:
        is_classified = {values.__name__, f"{values.__name__}.{member.value}"} & OTHER_VALUES.keys()
        assert member.value in accepted or is_classified, member.value
