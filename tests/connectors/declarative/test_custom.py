"""Components in Python: how their classes are found and made, and what their methods do in a read."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from connectors.declarative.cursors.build import Cursors
from connectors.declarative.cursors.slices import Slice
from connectors.declarative.custom import PythonComponents
from connectors.declarative.custom.responses import shown
from connectors.declarative.manifest import components
from connectors.declarative.manifest.loader import load
from connectors.declarative.requests import build_retriever, load_schema
from connectors.declarative.source import ManifestSource
from connectors.sdk.http import Request, Response
from connectors.sdk.items import Record
from connectors.sdk.reports import FAILED
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from tests.connectors.declarative.requests.support import Reading
from tests.connectors.support import call, catalog, records
from tests.programs.json_api import Answer
from tests.programs.recording_api import RecordingApi, in_turn, serving

pytestmark = pytest.mark.unit

MODULE = "source_declarative_manifest.components"
SECRET = "hunter2-abc"
ROWS = {"data": [{"id": 1}, {"id": 2}, {"id": 3}]}


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Reading]:
    with serving(RecordingApi()) as api:
        found = Reading(api, tmp_path)
        found.answer(ROWS)
        yield found
        found.environment.close()


class Connector:
    """A manifest with a file components.py beside it, in the folder of the reading.

    Args:
        reading: the server.
        python: the text of the file.
        stream: what the stream has besides its retriever, as YAML.
    """

    def __init__(self, reading: Reading, python: str, stream: str = "", **retriever: Any):
        folder = reading.environment.folder
        assert folder is not None
        (folder / "components.py").write_text(dedent(python))
        self.file = folder / "manifest.yaml"
        requester = {"url_base": "{{ config['url'] }}", "path": "orders"}
        requester |= retriever.pop("requester", {})
        selector = {"extractor": {"type": "DpathExtractor", "field_path": ["data"]}}
        selector |= retriever.pop("record_selector", {})
        written = {
            "name": "orders",
            **(yaml.safe_load(dedent(stream)) or {}),
            "retriever": {
                "type": "SimpleRetriever",
                "requester": {"type": "HttpRequester", **requester},
                "record_selector": {"type": "RecordSelector", **selector},
                **retriever,
            },
        }
        manifest = {
            "type": "DeclarativeSource",
            "check": {"type": "CheckStream", "stream_names": ["orders"]},
            "streams": [written],
        }
        self.file.write_text(yaml.safe_dump(manifest))
        self.custom = PythonComponents(reading.environment.config, folder)
        self.environment = reading.environment
        self.environment.custom = self.custom

    @property
    def stream(self) -> components.DeclarativeStream:
        found = load(self.file, trusted=[MODULE, "components"]).source.streams[0]
        assert isinstance(found, components.DeclarativeStream)
        return found

    def read(self, each: Slice | None = None, **settings: Any) -> list[Record]:
        """The records of a slice."""
        stream = self.stream
        retriever = build_retriever(
            stream.retriever,
            self.environment,
            name="orders",
            transformations=stream.transformations,
            **settings,
        )
        return [record for page in retriever.pages(each or Slice()) for record in page]

    def error(self) -> EltError:
        """The error with which the read of a slice ends."""
        with pytest.raises(EltError) as caught:
            self.read()
        return caught.value


def python(kind: str, of: str, **fields: Any) -> dict[str, Any]:
    """A component in Python."""
    return {"type": kind, "class_name": f"{MODULE}.{of}", **fields}


# --- what the methods do ------------------------------------------------------------------------


def test_records_are_extracted_filtered_and_transformed(reading: Reading) -> None:
    classes = """
        from dataclasses import InitVar, dataclass, field
        from typing import Any, Mapping

        @dataclass
        class Extractor:
            config: Mapping[str, Any]
            parameters: InitVar[Mapping[str, Any]]
            name: str
            places: list = field(default_factory=list)

            def __post_init__(self, parameters):
                self.suffix = parameters["suffix"]

            def extract_records(self, response):
                for each in response.json()[self.name]:
                    origin = self.config["region"] + self.suffix
                    yield {"id": each["id"], "from": origin, "places": self.places}

        class Odd:
            def filter_records(self, records, stream_state, stream_slice=None, next_page_token=None):
                assert stream_slice["partition"] == "p" and next_page_token is None
                return (each for each in records if each["id"] % 2)

        class Upper:
            def __init__(self, factor=10, **kwargs):
                self.factor = factor

            def transform(self, record, config=None, stream_state=None, stream_slice=None):
                record["id"] *= self.factor
                record["slice"] = stream_slice.cursor_slice["start_time"] + config["region"]
    """
    fields = {"name": "data", "places": ["a", "{{ x }}"], "unknown": 1}
    extractor = python("CustomRecordExtractor", "Extractor", **fields)
    extractor["$parameters"] = {"suffix": "!"}
    selector = {"extractor": extractor, "record_filter": python("CustomRecordFilter", "Odd")}
    stream = f"transformations: [{python('CustomTransformation', 'Upper', factor=100)}]"
    connector = Connector(reading, classes, stream, record_selector=selector)
    reading.configure(region="eu")
    each = Slice({"partition": "p"}, {"start_time": "2024-"})
    common = {"from": "eu!", "places": ["a", "{{ x }}"], "slice": "2024-eu"}
    assert connector.read(each) == [{"id": 100, **common}, {"id": 300, **common}]


def test_a_record_may_be_any_mapping_but_nothing_else(reading: Reading) -> None:
    classes = """
        from collections import OrderedDict, UserDict

        class Extractor:
            def extract_records(self, response):
                yield UserDict(id=1)
                yield OrderedDict(id=2)

        class Texts:
            def extract_records(self, response):
                return ["a"]
    """
    selector = {"extractor": python("CustomRecordExtractor", "Extractor")}
    found = Connector(reading, classes, record_selector=selector).read()
    assert found == [{"id": 1}, {"id": 2}] and {type(each) for each in found} == {dict}
    selector = {"extractor": python("CustomRecordExtractor", "Texts")}
    error = Connector(reading, classes, record_selector=selector).error()
    assert "a record of" in error.message and "is not an object but" in error.message


def test_a_body_is_decoded(reading: Reading) -> None:
    classes = """
        class Pairs:
            def decode(self, response):
                for line in response.iter_lines():
                    name, _, value = line.decode().partition("=")
                    yield {name: value}
    """
    reading.answer(Answer(200, b"a=1\nb=2\n"))
    decoder = python("CustomDecoder", "Pairs")
    selector = {"extractor": {"type": "DpathExtractor", "field_path": []}}
    paginator = {
        "type": "DefaultPaginator",
        "pagination_strategy": {
            "type": "CursorPagination",
            "cursor_value": "{{ response.a }}",
            "stop_condition": "{{ response.a == '1' }}",
        },
    }
    found = Connector(
        reading, classes, decoder=decoder, record_selector=selector, paginator=paginator
    )
    assert found.read() == [{"a": "1"}, {"b": "2"}]


def test_pages_follow_each_other(reading: Reading) -> None:
    classes = """
        class Pages:
            initial_token = 0

            def __init__(self, page_size, config):
                self.page_size = page_size

            def get_page_size(self):
                return self.page_size

            def next_page_token(self, response, last_page_size, last_record, last_page_token_value):
                if last_page_size < self.page_size or not response.ok:
                    return None
                return f"{last_page_token_value}-{last_record['id']}"

        class Old:
            def next_page_token(self, response, last_page_size):
                return "more" if "token" not in response.url else None

            def get_page_size(self):
                return None
    """
    paginator = {
        "type": "DefaultPaginator",
        "pagination_strategy": python("CustomPaginationStrategy", "Pages", page_size=3),
        "page_size_option": {"inject_into": "request_parameter", "field_name": "size"},
        "page_token_option": {
            "type": "RequestOption",
            "inject_into": "request_parameter",
            "field_name": "token",
        },
    }
    reading.answer(in_turn(ROWS, {"data": [{"id": 4}]}))
    assert len(Connector(reading, classes, paginator=paginator).read()) == 4
    assert reading.api.urls == ["/orders?size=3&token=0", "/orders?size=3&token=0-3"]
    reading.api.requests.clear()
    del paginator["page_size_option"]
    paginator["pagination_strategy"] = python("CustomPaginationStrategy", "Old")
    Connector(reading, classes, paginator=paginator).read()
    assert reading.api.urls == ["/orders", "/orders?token=more"]


@pytest.mark.parametrize("has_requests", [True, False])
def test_requests_are_authenticated_and_errors_hide_the_credentials(
    reading: Reading, has_requests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("requests")
    if not has_requests:
        monkeypatch.delitem(sys.modules, "requests")
    classes = """
        class Headers:
            def __init__(self, config):
                self.config, self.calls = config, 0

            def get_auth_header(self):
                self.calls += 1
                return {"X-Token": self.config["token"], "X-Call": self.calls}

            def get_request_params(self):
                return {"key": self.config["token"]}

        class Token:
            auth_header = "Authorization"

            def __init__(self, config):
                self.token = "Bearer " + config["token"]

        class Signed:
            token, auth_header = None, "Authorization"

            def __init__(self, config, part):
                self.secret, self.part = config["token"], part

            def __call__(self, request):
                if self.part == "url":
                    request.url = f"{request.url}?key={self.secret}"
                elif self.part == "body":
                    request.body += b"&signed"
                else:
                    request.headers.update({"X-Signed": request.method + self.secret})
                return request

        class Nothing:
            pass
    """
    reading.configure(token=SECRET)

    def connector(name: str, **fields: str) -> Connector:
        requester: dict[str, Any] = {"authenticator": python("CustomAuthenticator", name, **fields)}
        if fields.get("part") in ("body", "neither"):
            requester |= {"http_method": "POST", "request_body_json": {"a": 1}}
        return Connector(reading, classes, requester=requester)

    def signed(part: str) -> Connector:
        return connector("Signed", part=part)

    with_headers = connector("Headers")
    with_headers.read()
    with_headers.read()
    first, second = reading.api.requests
    assert (first.headers["x-token"], first.params) == (SECRET, {"key": SECRET})
    assert [first.headers["x-call"], second.headers["x-call"]] == ["1", "2"]
    connector("Token").read()
    assert reading.api.requests[-1].headers["authorization"] == f"Bearer {SECRET}"
    signed("headers").read()
    assert reading.api.requests[-1].headers["x-signed"] == f"GET{SECRET}"
    assert "authorization" not in reading.api.requests[-1].headers
    signed("url").read()
    assert reading.api.urls[-1] == f"/orders?key={SECRET}"
    signed("neither").read()
    assert reading.api.requests[-1].json == {"a": 1}
    if has_requests:
        signed("body").read()
        assert reading.api.requests[-1].body == b'{"a":1}&signed'
    reading.answer(Answer(403, {"message": f"no GET{SECRET}"}))
    for found in (connector("Headers"), connector("Token"), *map(signed, ("url", "headers"))):
        assert SECRET not in str(found.error())
    error = connector("Nothing").error()
    assert isinstance(error, ConfigError) and "is no authenticator" in error.message


def test_failures_are_handled_and_waited_for(reading: Reading) -> None:
    classes = """
        from enum import Enum

        class ResponseAction(Enum):
            IGNORE = 1
            RETRY = 2
            FAIL = 3

        class FailureType(Enum):
            transient_error = "transient_error"

        class Resolution:
            def __init__(self, action=None, kind=None, message=None):
                self.response_action, self.failure_type, self.error_message = action, kind, message

        class Wait:
            def __init__(self, seconds):
                self.seconds = seconds

            def backoff_time(self, response_or_exception, attempt_count):
                if not hasattr(response_or_exception, "headers"):
                    return None
                return float(response_or_exception.headers["x-wait"]) * self.seconds * attempt_count

        class Handler:
            max_retries = 2

            def __init__(self):
                self.backoff_strategies = [Wait(1000)]

            def interpret_response(self, response_or_exception):
                status = response_or_exception.status_code
                if status == 404:
                    return Resolution(ResponseAction.IGNORE)
                if status == 409:
                    return Resolution(ResponseAction.RETRY)
                if status == 410:
                    return Resolution(ResponseAction.FAIL, FailureType.transient_error, "it is gone")
                return Resolution("LAUGH" if status == 411 else None)
    """
    busy = Answer(503, headers={"X-Wait": "3"})
    reading.answer(in_turn(busy, busy, ROWS))
    strategies = {"backoff_strategies": [python("CustomBackoffStrategy", "Wait", seconds=2)]}
    requester = {"error_handler": {"type": "DefaultErrorHandler", **strategies}}
    assert len(Connector(reading, classes, requester=requester).read()) == 3
    assert reading.waits == [(6, FAILED), (12, FAILED)]

    handled = Connector(
        reading, classes, requester={"error_handler": python("CustomErrorHandler", "Handler")}
    )
    reading.answer(Answer(404))
    assert handled.read() == []
    reading.waits.clear()
    reading.answer(Answer(409, headers={"X-Wait": "1"}))
    assert "in 3 attempts" in handled.error().message
    assert reading.waits == [(1000, FAILED), (2000, FAILED)]
    reading.answer(Answer(410))
    error = handled.error()
    assert isinstance(error, TransientError) and "it is gone" in error.message
    reading.answer(Answer(411))
    assert "returned the action 'LAUGH'" in handled.error().message
    reading.answer(Answer(403))
    assert isinstance(handled.error(), ConfigError)


def test_a_schema_is_loaded_and_records_are_cast_to_it(reading: Reading) -> None:
    classes = """
        from dataclasses import dataclass
        from typing import Any, Mapping, Optional

        @dataclass
        class Schema:
            config: Mapping[str, Any]
            default: Any = None

            def get_json_schema(self):
                properties = {name: {"type": "string"} for name in self.config["fields"]}
                return {"properties": {**self.default.get_json_schema()["properties"], **properties}}

        class Cast:
            def __init__(self, *args, **kwargs):
                assert not kwargs

            def transform(self, record, schema):
                for name in schema["properties"]:
                    record[name] = f"<{record.get(name)}>"
    """
    inline = {"type": "InlineSchemaLoader", "schema": {"properties": {"at": {}}}}
    stream = f"schema_loader: {python('CustomSchemaLoader', 'Schema', default=inline)}"
    selector = {"schema_normalization": python("CustomSchemaNormalization", "Cast")}
    connector = Connector(reading, classes, stream, record_selector=selector)
    reading.configure(fields=["id"])
    schema = load_schema(connector.stream.schema_loader, connector.environment, "orders")
    assert schema == {"properties": {"at": {}, "id": {"type": "string"}}}
    assert connector.read(schema=lambda: schema)[0] == {"id": "<1>", "at": "<None>"}
    assert connector.read()[0] == {"id": 1}


def test_partitions_and_old_states(reading: Reading) -> None:
    classes = """
        class StreamSlice(dict):
            def __init__(self, partition, extra_fields=None):
                super().__init__(partition)
                self.partition, self.extra_fields = partition, extra_fields

        class Router:
            def __init__(self, config):
                self.config = config

            def stream_slices(self):
                for each in self.config["stores"]:
                    yield StreamSlice(partition={"store": each}, extra_fields={"name": each.upper()})
                yield {"store": "last"}

            def get_request_params(self, stream_state=None, stream_slice=None, next_page_token=None):
                return {"store": stream_slice["store"], "none": None}

        class Bad:
            def stream_slices(self):
                return ["a"]

        class Migration:
            def should_migrate(self, stream_state):
                return "old" in stream_state

            def migrate(self, stream_state):
                return {"new": stream_state["old"]}
    """
    router = python("CustomPartitionRouter", "Router")
    stream = f"state_migrations: [{python('CustomStateMigration', 'Migration')}]"
    connector = Connector(reading, classes, stream, partition_router=router)
    reading.configure(stores=["a", "b"])

    def cursors(of: Connector) -> Cursors:
        return Cursors(of.environment.config, lambda *_: iter(()), of.custom)

    chosen, cursor, state = cursors(connector).choose(connector.stream, {"old": 7})
    assert state == {"new": 7}
    assert cursors(connector).choose(chosen, {"x": 1})[2] == {"x": 1}
    progress = cursor.begin(state)
    found = list(progress.slices())
    assert [dict(each.partition) for each in found] == [
        {"store": "a"},
        {"store": "b"},
        {"store": "last"},
    ]
    assert found[0].extra == {"name": "A"}
    assert [tuple(option) for option in progress.options(found[0])] == [
        ("request_parameter", ("store",), "a")
    ]
    contexts = cursor.contexts()
    assert contexts is not None and list(contexts)[1] == {"store": "b"}
    assert [dict(each.partition) for each in cursor.begin({}).slices([{"store": "b"}])] == [
        {"store": "b"}
    ]
    bad = Connector(reading, classes, partition_router=python("CustomPartitionRouter", "Bad"))
    with pytest.raises(ConfigError, match="stream_slices gives str"):
        list(cursors(bad).of(bad.stream).begin({}).slices())


def test_configs_are_changed_and_checked(tmp_path: Path) -> None:
    classes = """
        class Change:
            def transform(self, config):
                config["region"] = config.pop("area")

        class Check:
            def validate(self, value):
                if value < 1:
                    raise ValueError("the number of days is less than 1")
    """
    (tmp_path / "components.py").write_text(dedent(classes))
    custom = PythonComponents({}, tmp_path)
    change = custom(
        components.CustomConfigTransformation(class_name=f"{MODULE}.Change", place="spec.x")
    )
    config = {"area": "eu"}
    change(config)
    assert config == {"region": "eu"}
    with pytest.raises(SystemFailure, match=r"spec\.x: .*Change\.transform raised KeyError"):
        change({})
    check = custom(
        components.CustomValidationStrategy(class_name=f"{MODULE}.Check", place="spec.y")
    )
    check(3)
    with pytest.raises(ConfigError, match=r"spec\.y: the number of days is less than 1"):
        check(0)


@pytest.mark.parametrize("kind", ["CustomRetriever", "CustomRequester", "CustomIncrementalSync"])
def test_components_that_send_requests_or_keep_states_of_their_own_are_refused(
    kind: str, tmp_path: Path
) -> None:
    component = getattr(components, kind)(class_name="source_x.components.It", place="streams[0]")
    with pytest.raises(ConfigError, match=rf"streams\[0\]: {kind} is not supported") as caught:
        PythonComponents({}, tmp_path)(component)
    assert "use " in str(caught.value.guidance)


def test_a_source_with_python_is_read_as_any_other(reading: Reading, tmp_path: Path) -> None:
    classes = """
        class Halves:
            def stream_slices(self):
                yield {"half": "first"}
                yield {"half": "second"}

            def get_request_params(self, stream_slice):
                return dict(stream_slice)

        class Double:
            def transform(self, record, config):
                record["id"] *= config["factor"]
    """
    router = python("CustomPartitionRouter", "Halves")
    stream = f"transformations: [{python('CustomTransformation', 'Double')}]"
    connector = Connector(reading, classes, stream, partition_router=router)
    files = {"config": {"url": reading.api.url, "factor": 2}, "catalog": catalog("orders")}
    code, messages = call(ManifestSource(connector.file, [MODULE]), tmp_path, "read", **files)
    assert (code, [each["id"] for each in records(messages)]) == (0, [2, 4, 6, 2, 4, 6])
    assert reading.api.urls == ["/orders?half=first", "/orders?half=second"]
    code, messages = call(ManifestSource(connector.file), tmp_path, "read", **files)
    (error,) = [each["trace"]["error"] for each in messages if each["type"] == "TRACE"]
    assert code == 1 and error["failure_type"] == "config_error"
    assert f"the class '{MODULE}.Halves' is Python; it runs only if its module is trusted" in str(
        error
    )


# --- how the objects are made -------------------------------------------------------------------


def made(folder: Path, classes: str, name: str = "It", **options: Any) -> Any:
    """Return an object that is an extractor in Python."""
    (folder / "components.py").write_text(dedent(classes))
    component = components.CustomRecordExtractor(
        class_name=name if "." in name else f"{MODULE}.{name}", place="here", options=options
    )
    found = PythonComponents({"a": 1}, folder)(component)
    request = Request("GET", "http://api.test/x")
    return list(found(Response(200, content=b'{"id": 1}', request=request)))


def test_a_class_gets_what_it_has_parameters_or_annotations_for(tmp_path: Path) -> None:
    classes = """
        from __future__ import annotations
        from typing import TYPE_CHECKING, Optional
        if TYPE_CHECKING:
            from nowhere import Thing

        class Base:
            first: str
            thing: Thing

        class It(Base):
            def __init__(self, second, config, third=3, **kwargs):
                self.given = {"second": second, "config": config, "third": third, **kwargs}

            def extract_records(self, response):
                yield self.given
    """
    assert made(tmp_path, classes, first="f", second="s", fourth="x") == [
        [{"second": "s", "config": {"a": 1}, "third": 3, "first": "f"}]
    ]
    with pytest.raises(ConfigError, match=r"here: the class '.*It' needs second"):
        made(tmp_path, classes)


def test_a_class_that_cannot_be_made_is_an_error_with_its_place(tmp_path: Path) -> None:
    classes = """
        class It:
            def __init__(self):
                raise RuntimeError("no way")
    """
    with pytest.raises(SystemFailure, match=r"here: .* cannot be made: RuntimeError: no way"):
        made(tmp_path, classes)


def test_nested_components_are_given_as_objects(reading: Reading) -> None:
    classes = """
        from dataclasses import dataclass
        from typing import Any, List, Optional

        class RecordFilter: ...
        class AddFields: ...

        class Prefix:
            def __init__(self, text):
                self.text = text

            def transform(self, record, config=None, stream_state=None, stream_slice=None):
                record["text"] = self.text

        @dataclass
        class It:
            decoder: Any
            extractor: Any
            prefix: Any
            kept: Optional[RecordFilter]
            added: List[AddFields]
            plain: Any

            def extract_records(self, response):
                (whole,) = self.decoder.decode(response)
                assert whole["data"] and self.plain == {"a": [{"b": "c"}]}
                for each in self.kept.filter_records(self.extractor.extract_records(response)):
                    for change in [self.prefix, *self.added]:
                        change.transform(each)
                    yield each
    """
    extractor = python(
        "CustomRecordExtractor",
        "It",
        extractor={"type": "DpathExtractor", "field_path": ["data"]},
        prefix=python("CustomTransformation", "Prefix", text="t"),
        kept={"condition": "{{ record.id > 1 }}"},
        added=[{"fields": [{"path": ["more"], "value": "{{ record.id + 1 }}"}]}],
        plain={"a": [{"b": "c"}]},
    )
    connector = Connector(
        reading, classes, decoder={"type": "JsonDecoder"}, record_selector={"extractor": extractor}
    )
    assert connector.read() == [
        {"id": 2, "text": "t", "more": 3},
        {"id": 3, "text": "t", "more": 4},
    ]


def test_a_nested_component_that_needs_the_cdk_is_refused_without_it(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "airbyte_cdk", raising=False)
    classes = "class It:\n    def __init__(self, requester): ...\n"
    requester = {"type": "HttpRequester", "url": "https://api.test"}
    extractor = python("CustomRecordExtractor", "It", requester=requester)
    error = Connector(reading, classes, record_selector={"extractor": extractor}).error()
    assert isinstance(error, ConfigError)
    assert "can get a HttpRequester only as an object of the Airbyte CDK" in error.message
    assert "airbyte-cdk" in str(error.guidance)


FACTORY = """
class ModelToComponentFactory:
    TYPE_NAME_TO_MODEL = {"HttpRequester": "model"}

    def create(self, model, config, *, name, decoder=None): ...

    @property
    def PYDANTIC_MODEL_TO_CONSTRUCTOR(self):
        return {"model": self.create}

    def create_component(self, model, definition, config, **more):
        if definition.get("http_method") == "POST":
            raise ValueError("no POST")
        return [model, definition, config, more]
"""


@pytest.fixture
def cdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with the part of the CDK that makes objects of components; it returns what it was given."""
    parsers = tmp_path / "site" / "airbyte_cdk" / "sources" / "declarative" / "parsers"
    parsers.mkdir(parents=True)
    (parsers / "model_to_component_factory.py").write_text(FACTORY)
    present = {name: each for name, each in sys.modules.items() if name.startswith("airbyte_cdk")}
    for name in present:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    importlib.invalidate_caches()
    yield
    for name in [each for each in sys.modules if each.startswith("airbyte_cdk")]:
        del sys.modules[name]
    sys.modules.update(present)


@pytest.mark.usefixtures("cdk")
def test_nested_components_are_objects_of_the_cdk_if_the_module_uses_it(reading: Reading) -> None:
    classes = """
        import airbyte_cdk

        class It:
            def __init__(self, requester):
                self.requester = requester

            def extract_records(self, response):
                model, definition, config, more = self.requester
                yield {"model": model, "definition": definition, "url": config["url"], "more": more}
    """
    requester = {
        "type": "HttpRequester",
        "url": "https://api.test/{{ config['x'] }}",
        "request_parameters": {"a": "{{ 1 }}", "b": 2},
        "authenticator": {"type": "BearerAuthenticator", "api_token": "{{ config['t'] }}"},
        "error_handler": {"response_filters": [{"http_codes": [404], "action": "IGNORE"}]},
    }
    extractor = python("CustomRecordExtractor", "It", requester=requester)
    extractor["$parameters"] = {"name": "orders"}
    (found,) = Connector(reading, classes, record_selector={"extractor": extractor}).read()
    definition = found["definition"]
    assert (found["model"], found["url"], found["more"]) == (
        "model",
        reading.api.url,
        {"name": "orders"},
    )
    assert definition["request_parameters"] == {"a": "{{ 1 }}", "b": 2}
    assert definition["url"] == "https://api.test/{{ config['x'] }}"
    assert definition["authenticator"]["type"] == "BearerAuthenticator"
    assert definition["authenticator"]["api_token"] == "{{ config['t'] }}"
    assert definition["error_handler"]["type"] == "DefaultErrorHandler"
    (each,) = definition["error_handler"]["response_filters"]
    assert (each["http_codes"], each["action"]) == ([404], "IGNORE")
    assert definition["$parameters"] == {"name": "orders"}
    extractor["requester"] = {**requester, "http_method": "POST"}
    error = Connector(reading, classes, record_selector={"extractor": extractor}).error()
    assert isinstance(error, ConfigError)
    assert (
        "the Airbyte CDK does not make a HttpRequester of it: ValueError: no POST" in error.message
    )


# --- where the classes are ----------------------------------------------------------------------

IT = """
class It:
    def extract_records(self, response):
        yield {{"name": {name}}}
"""


def test_manifests_have_files_of_their_own_under_the_same_name(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        (folder / f"beside_{folder.name}.py").write_text(f"NAME = {folder.name!r}")
    before = list(sys.path)
    for module in (MODULE, "components", "source_unheard_of.components"):
        for folder in (first, second, first):
            beside = f"from beside_{folder.name} import NAME\n{IT.format(name='NAME')}"
            assert made(folder, beside, f"{module}.It") == [[{"name": folder.name}]]
    assert sys.path == before


def test_a_module_may_be_an_installed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "source_installed_here"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "components.py").write_text(IT.format(name="'installed'"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    importlib.invalidate_caches()
    for name in ("source_installed_here.components.It",):
        assert made(tmp_path, IT.format(name="'beside'"), name) == [[{"name": "installed"}]]


@pytest.mark.parametrize(
    ("name", "message", "guidance"),
    [
        ("source_unheard_of.parts.It", "there is no module 'source_unheard_of.parts'", "install"),
        (f"{MODULE}.Other", f"the module '{MODULE}' has no class 'Other'", "correct `class_name`"),
    ],
)
def test_a_class_that_is_not_there_is_an_error(
    tmp_path: Path, name: str, message: str, guidance: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        made(tmp_path, IT.format(name="'x'"), name)
    assert caught.value.message.startswith("here: ") and message in caught.value.message
    assert guidance in str(caught.value.guidance)


@pytest.mark.parametrize(
    ("missing", "package"), [("airbyte_cdk", "airbyte-cdk"), ("no_such_package", "no_such_package")]
)
def test_a_package_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    classes = f"from {missing}.sources.declarative import parts\n{IT.format(name=1)}"
    with pytest.raises(ConfigError) as caught:
        made(tmp_path, classes)
    assert f"needs the module '{missing}" in caught.value.message
    assert f"pip install {package}" in str(caught.value.guidance)


def test_a_module_that_fails_is_an_error_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match="cannot be imported: ZeroDivisionError"):
            made(tmp_path, "1 / 0")
    assert MODULE not in sys.modules or "It" in vars(sys.modules[MODULE])


# --- errors and responses -----------------------------------------------------------------------


def test_errors_of_a_class_name_the_place_and_say_who_must_act(tmp_path: Path) -> None:
    classes = """
        from enum import Enum

        class FailureType(Enum):
            config_error = "config_error"

        class Traced(Exception):
            message = "the account is closed"
            failure_type = FailureType.config_error

        class Raises:
            def extract_records(self, response):
                yield {"id": 1}
                raise ValueError("no such field")

        class Closed:
            def extract_records(self, response):
                raise Traced()

        class Status:
            def extract_records(self, response):
                import requests
                raise requests.HTTPError("404 for http://x?key=" + "-".join(["hunter2", "abc"]))

        class Without:
            pass
    """
    with pytest.raises(SystemFailure) as caught:
        made(tmp_path, classes, "Raises")
    assert caught.value.message == (
        f"here: {MODULE}.Raises.extract_records raised ValueError: no such field"
    )
    assert "components.py" in str(caught.value.detail)
    with pytest.raises(ConfigError, match="the account is closed"):
        made(tmp_path, classes, "Closed")
    with pytest.raises(ConfigError, match="has no method 'extract_records'"):
        made(tmp_path, classes, "Without")
    with pytest.raises(SystemFailure, match="raised HTTPError") as caught:
        made(tmp_path, classes, "Status")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("has_requests", [True, False])
def test_a_response_is_as_the_library_requests_has_it(
    has_requests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = importlib.import_module("requests")
    if not has_requests:
        monkeypatch.delitem(sys.modules, "requests")
    request = Request("POST", "http://api.test/x?a=1", headers={"X-A": "b"}, content=b"body")
    headers = [("Content-Type", "application/json; charset=utf-8"), ("X-Next", "7")]
    headers.append(("Link", '<http://api.test/y>; rel="next"'))
    response = Response(200, headers=headers, content='{"n": "é"}\n'.encode(), request=request)
    found = shown(response)
    assert isinstance(found, library.Response) == has_requests
    assert found.json() == {"n": "é"} and found.json() is not found.json()
    assert (found.text, found.content) == ('{"n": "é"}\n', '{"n": "é"}\n'.encode())
    assert (found.status_code, found.ok, bool(found), found.reason) == (200, True, True, "OK")
    assert found.url == "http://api.test/x?a=1" and found.headers["x-next"] == "7"
    assert found.links["next"]["url"] == "http://api.test/y"
    assert list(found.iter_lines()) == ['{"n": "é"}'.encode()]
    assert list(found.iter_lines(decode_unicode=True)) == ['{"n": "é"}']
    assert b"".join(found.iter_content(4)) == found.content
    assert (found.request.method, found.request.headers["x-a"]) == ("POST", "b")
    found.raise_for_status()
    found.close()
    with pytest.raises(ValueError, match=r"."):
        shown(Response(200, content=b"<html>", request=request)).json()
    failed = shown(Response(404, request=request))
    assert not failed and not failed.ok
    with pytest.raises((EltError, library.HTTPError)):
        failed.raise_for_status()
