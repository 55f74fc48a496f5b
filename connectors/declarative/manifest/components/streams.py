"""Streams, and what they are made of: retrievers, requesters, routers, cursors, records and schema loaders.

The classes of streams refer to each other in circles, so they are in one module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import field

from connectors.declarative.manifest.components.base import (
    Component,
    Json,
    Unsupported,
    Usual,
)
from connectors.declarative.manifest.components.requests import (
    ApiKeyAuthenticator,
    BasicHttpAuthenticator,
    BearerAuthenticator,
    CompositeErrorHandler,
    Decoder,
    DefaultErrorHandler,
    DefaultPaginator,
    JsonDecoder,
    NoAuth,
    NoPagination,
    OAuthAuthenticator,
    RequestBodyGraphQL,
    RequestBodyJsonObject,
    RequestBodyPlainText,
    RequestBodyUrlEncodedForm,
    RequestOption,
    SessionTokenRequestApiKeyAuthenticator,
    SessionTokenRequestBearerAuthenticator,
    XmlDecoder,
)
from connectors.declarative.manifest.template import Template, TemplateMap


class MinMaxDatetime(Component):
    """A date-time, and bounds for it."""

    datetime: Template
    datetime_format: str = ""
    max_datetime: Template | None = None
    min_datetime: Template | None = None


class Clamping(Component, tag=False):
    """The period, such as WEEK. Slices begin and end at the bounds of this period."""

    target: Template
    target_details: Json | None = None


class DatetimeBasedCursor(Component):
    """A cursor that is a date-time."""

    cursor_field: Template
    datetime_format: str
    start_datetime: MinMaxDatetime | Template
    clamping: Clamping | None = None
    allow_catalog_defined_cursor_field: bool | None = None
    cursor_datetime_formats: tuple[str, ...] | None = None
    start_time_option: RequestOption | None = None
    end_datetime: MinMaxDatetime | Template | None = None
    end_time_option: RequestOption | None = None
    cursor_granularity: str | None = None
    is_data_feed: bool | None = None
    is_client_side_incremental: bool | None = None
    is_compare_strictly: bool = False
    global_substream_cursor: bool = False
    lookback_window: Template | None = None
    partition_field_end: Template | None = None
    partition_field_start: Template | None = None
    step: Template | None = None


class IncrementingCountCursor(Component):
    """A cursor that is a number."""

    cursor_field: Template
    allow_catalog_defined_cursor_field: bool | None = None
    start_value: int | Template | None = None
    start_value_option: RequestOption | None = None


class LegacyToPerPartitionStateMigration(Component):
    """Changes a state whose keys are partitions into one with a list of partitions."""


ValueType = Literal["string", "number", "integer", "boolean"]

# --- extraction -----------------------------------------------------------------------------------


class ResponseToFileExtractor(Component):
    """The rows of a CSV file, which is stored first."""

    preserve_na_values: bool = False


class RecordFilter(Component):
    """The condition of the records that are kept."""

    condition: Template = Template("")


Filter = Annotated[RecordFilter, "CustomRecordFilter"]

# --- transformations ------------------------------------------------------------------------------


class AddedFieldDefinition(Component):
    """A field and its value."""

    path: tuple[str, ...]
    value: Template
    value_type: ValueType | None = None


class AddFields(Component):
    """Fields that are added to records, if a condition holds."""

    fields: tuple[AddedFieldDefinition, ...]
    condition: Template = Template("")


class RemoveFields(Component):
    """Fields that are removed from records, if a condition holds."""

    field_pointers: tuple[tuple[str, ...], ...]
    condition: Template = Template("")


class KeysToLower(Component):
    """Field names in lower case."""


class KeysToSnakeCase(Component):
    """Field names in snake case."""


class FlattenFields(Component):
    """Nested fields on the top level."""

    flatten_lists: bool = True


class KeyTransformation(Component):
    """A prefix and a suffix of field names."""

    prefix: Template | None = None
    suffix: Template | None = None


class DpathFlattenFields(Component):
    """The fields of one nested mapping on the top level."""

    field_path: tuple[Template, ...]
    delete_origin_value: bool | None = None
    replace_record: bool | None = None
    key_transformation: KeyTransformation | None = None


class KeysReplace(Component):
    """Replaces a text in field names by another one."""

    old: Template
    new: Template


Transformation = Annotated[
    AddFields
    | RemoveFields
    | KeysToLower
    | KeysToSnakeCase
    | FlattenFields
    | DpathFlattenFields
    | KeysReplace,
    "CustomTransformation",
]


# --- streams --------------------------------------------------------------------------------------


class DeclarativeStream(Component):
    """A stream: how its records are retrieved, and their schema, key and cursor."""

    retriever: AnyRetriever
    name: str = ""
    incremental_sync: (
        Annotated[DatetimeBasedCursor | IncrementingCountCursor, "CustomIncrementalSync"] | None
    ) = None
    primary_key: str | tuple[str | tuple[str, ...], ...] = ""
    schema_loader: SchemaLoader | tuple[SchemaLoader, ...] | None = None
    transformations: tuple[Transformation, ...] = ()
    state_migrations: tuple[
        Annotated[LegacyToPerPartitionStateMigration, "CustomStateMigration"], ...
    ] = ()
    file_uploader: Annotated[None, "FileUploader"] = None


AnyStream = Annotated[Usual[DeclarativeStream], "StateDelegatingStream"]


# --- records --------------------------------------------------------------------------------------


class DpathExtractor(Component):
    """The records at a path, in which `*` stands for all fields or items."""

    field_path: tuple[Template, ...]
    record_expander: Annotated[None, "RecordExpander"] = None


Extractor = Annotated[Usual[DpathExtractor], "CombinedExtractor", "CustomRecordExtractor"]


class RecordSelector(Component):
    """Extraction, filter and normalization of records."""

    extractor: Extractor
    record_filter: Filter | None = None
    schema_normalization: Annotated[Literal["Default", "None"], "CustomSchemaNormalization"] = (
        "None"
    )
    transform_before_filtering: bool | None = None


# --- retrievers -----------------------------------------------------------------------------------


class SimpleRetriever(Component):
    """Records that are read page by page from one request."""

    record_selector: RecordSelector
    requester: AnyRequester
    decoder: Decoder | None = None
    paginator: DefaultPaginator | Usual[NoPagination] | None = None
    pagination_reset: Annotated[None, "PaginationReset"] = None
    ignore_stream_slicer_parameters_on_paginated_requests: bool = False
    partition_router: PartitionRouter | tuple[PartitionRouter, ...] | None = None
    page_size_reduction: Unsupported = None
    request_window_splitting: Unsupported = None


class AsyncJobStatusMap(Component):
    """The words of an API for the states of a job."""

    running: tuple[str, ...]
    completed: tuple[str, ...]
    failed: tuple[str, ...]
    timeout: tuple[str, ...]
    skipped: tuple[str, ...] | None = None


class AsyncRetriever(Component):
    """Records that a job of the API prepares."""

    record_selector: RecordSelector
    status_mapping: AsyncJobStatusMap
    status_extractor: Extractor
    creation_requester: AnyRequester
    polling_requester: AnyRequester
    download_requester: AnyRequester
    download_target_extractor: Extractor | None = None
    download_extractor: Extractor | ResponseToFileExtractor | None = None
    polling_job_timeout: int | Template | None = None
    failed_retry_wait_time_in_seconds: int | Template | None = None
    download_target_requester: AnyRequester | None = None
    download_paginator: DefaultPaginator | NoPagination | None = None
    abort_requester: AnyRequester | None = None
    delete_requester: AnyRequester | None = None
    partition_router: PartitionRouter | tuple[PartitionRouter, ...] | None = None
    decoder: Decoder | None = None
    download_decoder: Decoder | None = None


AnyRetriever = Annotated[Usual[SimpleRetriever] | AsyncRetriever, "CustomRetriever"]

# --- requesters -----------------------------------------------------------------------------------


class HttpRequester(Component):
    """A request. `url_base` and `path`, and the separate bodies, are older forms of `url` and `request_body`.

    A value of `request_parameters` may be a `QueryProperties`.
    """

    url_base: Template | None = None
    url: Template | None = None
    path: Template | None = None
    http_method: Literal["GET", "POST"] = "GET"
    authenticator: Authenticator | None = None
    fetch_properties_from_endpoint: Annotated[None, "PropertiesFromEndpoint"] = None
    query_properties: Annotated[None, "QueryProperties"] = None
    request_parameters: Annotated[TemplateMap, "QueryProperties"] | Template | None = None
    request_headers: TemplateMap | Template | None = None
    request_body_data: TemplateMap | Template | None = None
    request_body_json: TemplateMap | Template | None = None
    request_body: (
        RequestBodyPlainText
        | RequestBodyUrlEncodedForm
        | RequestBodyJsonObject
        | RequestBodyGraphQL
        | None
    ) = None
    error_handler: (
        Annotated[Usual[DefaultErrorHandler] | CompositeErrorHandler, "CustomErrorHandler"] | None
    ) = None
    use_cache: bool | None = None
    connect_timeout_in_seconds: float | None = None
    read_timeout_in_seconds: float | None = None
    use_tcp_keepalive: bool = (
        False  # without effect: a connection that sends nothing ends by a time-out
    )


AnyRequester = Annotated[HttpRequester, "CustomRequester"]


class SelectiveAuthenticator(Component):
    """One of several authenticators, which a value of the config names."""

    authenticator_selection_path: tuple[str, ...]
    authenticators: Mapping[str, Authenticator]


class SessionTokenAuthenticator(Component):
    """A session token that a request of its own returns."""

    login_requester: HttpRequester
    session_token_path: tuple[str, ...]
    request_authentication: (
        SessionTokenRequestApiKeyAuthenticator | SessionTokenRequestBearerAuthenticator
    )
    expiration_duration: str | None = None
    decoder: JsonDecoder | XmlDecoder | None = None


Authenticator = Annotated[
    ApiKeyAuthenticator
    | BasicHttpAuthenticator
    | BearerAuthenticator
    | OAuthAuthenticator
    | SessionTokenAuthenticator
    | SelectiveAuthenticator
    | NoAuth,
    "JwtAuthenticator",
    "LegacySessionTokenAuthenticator",
    "RateLimitedMultipleTokenAuthenticator",
    "CustomAuthenticator",
]

# --- partition routers ----------------------------------------------------------------------------


class ListPartitionRouter(Component):
    """A partition for each value of a list."""

    cursor_field: Template
    values: Template | tuple[str, ...]
    request_option: RequestOption | None = None


class ParentStreamConfig(Component):
    """A parent stream, and what a child gets from its records."""

    stream: AnyStream
    parent_key: Template
    partition_field: Template
    request_option: RequestOption | None = None
    incremental_dependency: bool = False
    lazy_read_pointer: tuple[Template, ...] = ()
    extra_fields: tuple[tuple[Template, ...], ...] | None = None


class SubstreamPartitionRouter(Component):
    """A partition for each record of parent streams."""

    parent_stream_configs: tuple[ParentStreamConfig, ...]


PartitionRouter = Annotated[
    SubstreamPartitionRouter | ListPartitionRouter,
    "GroupingPartitionRouter",
    "UnionPartitionRouter",
    "CustomPartitionRouter",
]

# --- schema loaders -------------------------------------------------------------------------------


class InlineSchemaLoader(Component):
    """A JSON schema in the manifest."""

    schema: Json = field(default_factory=dict)


class JsonFileSchemaLoader(Component):
    """A JSON schema in a file. Without a path it is in `schemas`, named for the stream."""

    file_path: Template | None = None


class ComplexFieldType(Component, tag=False):
    """A type with items."""

    field_type: str
    items: str | ComplexFieldType | None = None


class TypesMap(Component, tag=False):
    """A type of an API, and the type of a JSON schema that it stands for."""

    target_type: str | tuple[str, ...] | ComplexFieldType
    current_type: str | tuple[str, ...]
    condition: Template | None = None


class SchemaTypeIdentifier(Component):
    """The paths of names and types in a description of fields."""

    key_pointer: tuple[Template, ...]
    schema_pointer: tuple[Template, ...] = ()
    type_pointer: tuple[Template, ...] | None = None
    types_mapping: tuple[TypesMap, ...] | None = None


class DynamicSchemaLoader(Component):
    """A schema from a description that the API returns."""

    retriever: AnyRetriever
    schema_type_identifier: SchemaTypeIdentifier
    schema_filter: Filter | None = None
    schema_transformations: tuple[Transformation, ...] | None = None


SchemaLoader = Annotated[
    InlineSchemaLoader | DynamicSchemaLoader | Usual[JsonFileSchemaLoader], "CustomSchemaLoader"
]
