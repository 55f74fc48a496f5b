"""Streams, and what refers to streams: retrievers, requesters, partition routers and schema loaders.

These classes refer to each other in circles, so they are in one module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import field

from connectors.declarative.manifest.components.authenticators import (
    ApiKeyAuthenticator,
    BasicHttpAuthenticator,
    BearerAuthenticator,
    CustomAuthenticator,
    JwtAuthenticator,
    LegacySessionTokenAuthenticator,
    NoAuth,
    OAuthAuthenticator,
    RateLimitedMultipleTokenAuthenticator,
    SessionTokenRequestApiKeyAuthenticator,
    SessionTokenRequestBearerAuthenticator,
)
from connectors.declarative.manifest.components.base import (
    Component,
    Custom,
    Json,
    Unsupported,
    Usual,
)
from connectors.declarative.manifest.components.cursors import (
    CustomIncrementalSync,
    CustomStateMigration,
    DatetimeBasedCursor,
    IncrementingCountCursor,
    LegacyToPerPartitionStateMigration,
)
from connectors.declarative.manifest.components.decoders import (
    Decoder,
    JsonDecoder,
    XmlDecoder,
)
from connectors.declarative.manifest.components.errors import (
    CompositeErrorHandler,
    CustomErrorHandler,
    DefaultErrorHandler,
)
from connectors.declarative.manifest.components.pagination import DefaultPaginator, NoPagination
from connectors.declarative.manifest.components.records import (
    CustomRecordExtractor,
    CustomRecordFilter,
    CustomSchemaNormalization,
    ParentFieldPath,
    RecordFilter,
    ResponseToFileExtractor,
    Transformation,
)
from connectors.declarative.manifest.components.requests import (
    RequestBodyGraphQL,
    RequestBodyJsonObject,
    RequestBodyPlainText,
    RequestBodyUrlEncodedForm,
    RequestOption,
)
from connectors.declarative.manifest.template import Template, TemplateMap

# --- streams --------------------------------------------------------------------------------------


class DeclarativeStream(Component):
    """A stream: how its records are retrieved, and their schema, key and cursor."""

    retriever: Usual[SimpleRetriever] | AsyncRetriever | CustomRetriever
    name: str = ""
    incremental_sync: (
        DatetimeBasedCursor | IncrementingCountCursor | CustomIncrementalSync | None
    ) = None
    primary_key: str | tuple[str | tuple[str, ...], ...] = ""
    schema_loader: SchemaLoader | tuple[SchemaLoader, ...] | None = None
    transformations: tuple[Transformation, ...] = ()
    state_migrations: tuple[LegacyToPerPartitionStateMigration | CustomStateMigration, ...] = ()
    file_uploader: FileUploader | None = None


class FileUploader(Component):
    """How the file of a record is downloaded."""

    requester: HttpRequester | CustomRequester
    download_target_extractor: DpathExtractor | CustomRecordExtractor
    filename_extractor: Template | None = None
    file_extractor: Json | None = (
        None  # without effect, as in the CDK: a file is the whole response
    )


class StateDelegatingStream(Component):
    """A stream that is read in full at first and in another way once there is a state."""

    full_refresh_stream: DeclarativeStream
    incremental_stream: DeclarativeStream
    name: str = ""
    api_retention_period: Template | None = None


class ConditionalStreams(Component):
    """Streams that exist if a condition on the config holds."""

    condition: Template
    streams: tuple[DeclarativeStream, ...]


# --- records --------------------------------------------------------------------------------------


class RecordExpander(Component):
    """A list in a record whose items become records."""

    expand_records_from_field: tuple[Template, ...]
    remain_original_record: bool = False
    on_no_records: Literal["skip", "emit_parent"] = "skip"
    parent_fields: tuple[ParentFieldPath, ...] = ()
    merge_parent: bool = False
    truncation_indicator_path: tuple[Template, ...] = ()
    truncated_list_retriever: SimpleRetriever | CustomRetriever | None = None


class DpathExtractor(Component):
    """The records at a path, in which `*` stands for all fields or items."""

    field_path: tuple[Template, ...]
    record_expander: RecordExpander | None = None


class CombinedExtractor(Component):
    """The records of several extractors: all of them, or those of the first one that finds some."""

    extractors: tuple[Extractor, ...]
    mode: Literal["union", "first_match"] = "union"
    skip_empty_records: bool = False


Extractor = Usual[DpathExtractor] | CombinedExtractor | CustomRecordExtractor


class RecordSelector(Component):
    """Extraction, filter and normalization of records."""

    extractor: Extractor
    record_filter: RecordFilter | CustomRecordFilter | None = None
    schema_normalization: Literal["Default", "None"] | CustomSchemaNormalization = "None"
    transform_before_filtering: bool | None = None


# --- retrievers -----------------------------------------------------------------------------------


class PaginationResetLimits(Component):
    """The number of records after which the pages begin again."""

    number_of_records: int | None = None


class PaginationReset(Component):
    """The action when an API has no more pages for a request."""

    action: Literal["SPLIT_USING_CURSOR", "RESET"]
    limits: PaginationResetLimits | None = None


class SimpleRetriever(Component):
    """Records that are read page by page from one request."""

    record_selector: RecordSelector
    requester: HttpRequester | CustomRequester
    decoder: Decoder | None = None
    paginator: DefaultPaginator | Usual[NoPagination] | None = None
    pagination_reset: PaginationReset | None = None
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
    creation_requester: HttpRequester | CustomRequester
    polling_requester: HttpRequester | CustomRequester
    download_requester: HttpRequester | CustomRequester
    download_target_extractor: Extractor | None = None
    download_extractor: Extractor | ResponseToFileExtractor | None = None
    polling_job_timeout: int | Template | None = None
    failed_retry_wait_time_in_seconds: int | Template | None = None
    download_target_requester: HttpRequester | CustomRequester | None = None
    download_paginator: DefaultPaginator | NoPagination | None = None
    abort_requester: HttpRequester | CustomRequester | None = None
    delete_requester: HttpRequester | CustomRequester | None = None
    partition_router: PartitionRouter | tuple[PartitionRouter, ...] | None = None
    decoder: Decoder | None = None
    download_decoder: Decoder | None = None


class CustomRetriever(Custom):
    """A retriever in Python."""


# --- requesters -----------------------------------------------------------------------------------


class JsonSchemaPropertySelector(Component):
    """The properties that the catalog of a sync selects."""

    transformations: tuple[Transformation, ...] | None = None


class GroupByKeyMergeStrategy(Component):
    """The records of several requests, merged by a key."""

    key: str | tuple[str, ...]


class PropertyChunking(Component):
    """A limit of the properties that one request asks for."""

    property_limit_type: Literal["characters", "property_count"]
    property_limit: int | None = None
    record_merge_strategy: GroupByKeyMergeStrategy | None = None


class PropertiesFromEndpoint(Component):
    """The names of properties, from a request of their own."""

    property_field_path: tuple[Template, ...]
    retriever: SimpleRetriever | CustomRetriever


class QueryProperties(Component):
    """The properties that a request asks for, in several requests if they are many."""

    property_list: tuple[str, ...] | PropertiesFromEndpoint
    always_include_properties: tuple[str, ...] | None = None
    property_chunking: PropertyChunking | None = None
    property_selector: JsonSchemaPropertySelector | None = None


class HttpRequester(Component):
    """A request. `url_base` and `path`, and the separate bodies, are older forms of `url` and `request_body`.

    A value of `request_parameters` may be a `QueryProperties`.
    """

    url_base: Template | None = None
    url: Template | None = None
    path: Template | None = None
    http_method: Literal["GET", "POST"] = "GET"
    authenticator: Authenticator | None = None
    fetch_properties_from_endpoint: PropertiesFromEndpoint | None = None
    query_properties: QueryProperties | None = None
    request_parameters: Annotated[TemplateMap, QueryProperties] | Template | None = None
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
        Usual[DefaultErrorHandler] | CompositeErrorHandler | CustomErrorHandler | None
    ) = None
    use_cache: bool | None = None
    connect_timeout_in_seconds: float | None = None
    read_timeout_in_seconds: float | None = None
    use_tcp_keepalive: bool = (
        False  # without effect: a connection that sends nothing ends by a time-out
    )


class CustomRequester(Custom):
    """A requester in Python."""


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


Authenticator = (
    ApiKeyAuthenticator
    | BasicHttpAuthenticator
    | BearerAuthenticator
    | OAuthAuthenticator
    | JwtAuthenticator
    | SessionTokenAuthenticator
    | SelectiveAuthenticator
    | CustomAuthenticator
    | NoAuth
    | LegacySessionTokenAuthenticator
    | RateLimitedMultipleTokenAuthenticator
)

# --- partition routers ----------------------------------------------------------------------------


class ListPartitionRouter(Component):
    """A partition for each value of a list."""

    cursor_field: Template
    values: Template | tuple[str, ...]
    request_option: RequestOption | None = None


class ParentStreamConfig(Component):
    """A parent stream, and what a child gets from its records."""

    stream: Usual[DeclarativeStream] | StateDelegatingStream
    parent_key: Template
    partition_field: Template
    request_option: RequestOption | None = None
    incremental_dependency: bool = False
    lazy_read_pointer: tuple[Template, ...] = ()
    extra_fields: tuple[tuple[Template, ...], ...] | None = None


class SubstreamPartitionRouter(Component):
    """A partition for each record of parent streams."""

    parent_stream_configs: tuple[ParentStreamConfig, ...]


class GroupingPartitionRouter(Component):
    """Groups of another router's partitions."""

    group_size: int
    underlying_partition_router: (
        ListPartitionRouter
        | SubstreamPartitionRouter
        | UnionPartitionRouter
        | CustomPartitionRouter
    )
    deduplicate: bool = True


class UnionPartitionRouter(Component):
    """The partitions of several routers, one after the other."""

    partition_field: Template
    partition_routers: tuple[
        ListPartitionRouter
        | SubstreamPartitionRouter
        | UnionPartitionRouter
        | CustomPartitionRouter,
        ...,
    ]


class CustomPartitionRouter(Custom):
    """A partition router in Python."""

    parent_stream_configs: tuple[ParentStreamConfig, ...] | None = None


PartitionRouter = (
    SubstreamPartitionRouter
    | ListPartitionRouter
    | GroupingPartitionRouter
    | UnionPartitionRouter
    | CustomPartitionRouter
)

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

    retriever: Usual[SimpleRetriever] | AsyncRetriever | CustomRetriever
    schema_type_identifier: SchemaTypeIdentifier
    schema_filter: RecordFilter | CustomRecordFilter | None = None
    schema_transformations: tuple[Transformation, ...] | None = None


class CustomSchemaLoader(Custom):
    """A schema loader in Python."""


SchemaLoader = (
    InlineSchemaLoader | DynamicSchemaLoader | Usual[JsonFileSchemaLoader] | CustomSchemaLoader
)
