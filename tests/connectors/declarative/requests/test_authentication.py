"""Authentication: where credentials stand, and how tokens are fetched, kept, shared and renewed."""

from __future__ import annotations

import base64
import copy
import datetime as dt
import threading
from typing import Any

import pytest

from connectors.declarative.cursors.slices import Slice
from connectors.declarative.manifest import clock
from elt_assets.errors import ConfigError, SystemFailure, TransientError
from tests.connectors.declarative.requests.support import NOON, Reading, together
from tests.programs.json_api import Answer
from tests.programs.recording_api import Received, in_turn, routes

ONE = {"data": [{"id": 1}]}
KEY = "a-key-that-is-long-enough-for-any-hash"


def auth(text: str, method: str = "GET", more: str = "") -> str:
    return f"requester: {{http_method: {method}, authenticator: {{{text}}}{more}}}"


@pytest.fixture(autouse=True)
def one_record(reading: Reading) -> None:
    reading.answer(ONE)
    reading.configure(key="007", user="Ada", password="hunter2", store="eu")


@pytest.mark.parametrize(
    ("text", "header", "value"),
    [
        ('type: BearerAuthenticator, api_token: "{{ config.key }}"', "authorization", "Bearer 007"),
        (
            'type: ApiKeyAuthenticator, header: X-Key, api_token: "Token {{ config.key }}"',
            "x-key",
            "Token 007",
        ),
        (
            (
                'type: ApiKeyAuthenticator, api_token: "{{ config.key }}", inject_into: '
                '{type: RequestOption, inject_into: header, field_name: "X-{{ config.store }}"}'
            ),
            "x-eu",
            "007",
        ),
        (
            'type: BasicHttpAuthenticator, username: "{{ config.user }}", password: "{{ config.password }}"',
            "authorization",
            f"Basic {base64.b64encode(b'Ada:hunter2').decode()}",
        ),
        (
            'type: BasicHttpAuthenticator, username: "{{ config.user }}"',
            "authorization",
            f"Basic {base64.b64encode(b'Ada:').decode()}",
        ),
    ],
)
def test_credentials_stand_in_a_header(
    reading: Reading, text: str, header: str, value: str
) -> None:
    assert reading.records(auth(text)) == [{"id": 1}]
    assert reading.api.requests[0].headers[header] == value


def test_no_authentication_is_possible(reading: Reading) -> None:
    reading.records(auth("type: NoAuth"))
    assert "authorization" not in reading.api.requests[0].headers


def key_in(inject_into: str, where: str) -> str:
    option = f"{{type: RequestOption, inject_into: {inject_into}, {where}}}"
    return f'type: ApiKeyAuthenticator, api_token: "{{{{ config.key }}}}", inject_into: {option}'


def test_a_key_may_be_a_parameter(reading: Reading) -> None:
    parameters = ", request_parameters: {a: x y, b: 2}"
    reading.records(auth(key_in("request_parameter", "field_name: key"), more=parameters))
    assert reading.api.requests[0].target == "/orders?a=x+y&b=2&key=007"


def test_a_key_may_be_in_the_body(reading: Reading) -> None:
    form = ", request_body_data: {a: 1}"
    reading.records(auth(key_in("body_data", "field_name: key"), "POST", form))
    reading.records(auth(key_in("body_data", "field_name: key"), "POST"))
    body = ", request_body_json: {a: {b: 1}}"
    reading.records(auth(key_in("body_json", "field_path: [a, key]"), "POST", body))
    reading.records(auth(key_in("body_json", "field_name: key"), "POST"))
    first, second, third, fourth = reading.api.requests
    assert (first.form, second.form) == ([("a", "1"), ("key", "007")], [("key", "007")])
    assert (third.json, fourth.json) == ({"a": {"b": 1, "key": "007"}}, {"key": "007"})
    assert third.headers["content-type"] == "application/json"
    assert int(third.headers["content-length"]) == len(third.body)


@pytest.mark.parametrize(
    "text",
    [
        "type: ApiKeyAuthenticator, api_token: x",
        (
            "type: ApiKeyAuthenticator, api_token: x, header: a, inject_into: "
            "{type: RequestOption, inject_into: header, field_name: b}"
        ),
    ],
)
def test_a_key_has_one_place(reading: Reading, text: str) -> None:
    with pytest.raises(ConfigError, match=r"needs either `inject_into` or the older `header`"):
        reading.retriever(auth(text))


def test_the_config_selects_the_authenticator(reading: Reading) -> None:
    text = """
        requester:
          authenticator:
            type: SelectiveAuthenticator
            authenticator_selection_path: [credentials, kind]
            authenticators:
              key: {type: ApiKeyAuthenticator, header: X-Key, api_token: "1"}
              token: {type: BearerAuthenticator, api_token: "2"}
        """
    reading.configure(credentials={"kind": "token"})
    reading.records(text)
    assert reading.api.requests[0].headers["authorization"] == "Bearer 2"
    reading.configure(credentials={"kind": "other"})
    with pytest.raises(ConfigError, match="names no authentication") as caught:
        reading.retriever(text.replace('"2"', '"3"'))
    assert "'key', 'token'" in str(caught.value.guidance)
    reading.configure(credentials={})
    with pytest.raises(ConfigError, match=r"has no 'credentials\.kind'"):
        reading.retriever(text.replace('"2"', '"4"'))


# --- OAuth ----------------------------------------------------------------------------------------

OAUTH = """
    requester:
      authenticator:
        type: OAuthAuthenticator
        token_refresh_endpoint: "{{ config.url }}/token"
        client_id: "{{ config.client }}"
        client_secret: "{{ config.secret }}"
        refresh_token: "{{ config.refresh }}"
    """


class TokenApi:
    """A token endpoint, and resources that need the newest token."""

    def __init__(self, **answer: Any):
        self.issued = 0
        self.answer = answer
        self.lock = threading.Lock()

    def __call__(self, request: Received) -> Any:
        with self.lock:
            if request.path == "/token":
                self.issued += 1
                return {"access_token": f"access-{self.issued}", "expires_in": 3600, **self.answer}
        if request.headers.get("authorization") != f"Bearer access-{self.issued}":
            return Answer(401)
        return ONE


@pytest.fixture
def tokens(reading: Reading) -> TokenApi:
    found = TokenApi()
    reading.answer(found)
    reading.configure(client="c-1", secret="s-1", refresh="r-1")
    return found


def test_an_access_token_is_fetched_with_the_refresh_token(
    reading: Reading, tokens: TokenApi
) -> None:
    assert reading.records(OAUTH) == [{"id": 1}]
    token, orders = reading.api.requests
    assert (token.method, token.path) == ("POST", "/token")
    assert token.form == [
        *(("grant_type", "refresh_token"), ("client_id", "c-1"), ("client_secret", "s-1")),
        ("refresh_token", "r-1"),
    ]
    assert orders.headers["authorization"] == "Bearer access-1"


def test_names_grant_and_further_fields_are_those_of_the_manifest(reading: Reading) -> None:
    reading.configure(client="c-1", secret="s-1")
    reading.answer(routes({"/token": {"result": [{"jwt": "t", "life": "100"}]}, "/orders": ONE}))
    reading.records(
        OAUTH
        + """
        client_id_name: app
        client_secret_name: app_secret
        grant_type_name: kind
        grant_type: client_credentials
        access_token_name: jwt
        expires_in_name: life
        scopes: [a, b]
        refresh_request_body: {audience: "{{ config.store }}", kind: ignored}
        refresh_request_headers: {X-App: "5"}
    """.replace("\n    ", "\n    ")
    )
    token, orders = reading.api.requests
    assert token.form == [
        *(("kind", "client_credentials"), ("app", "c-1"), ("app_secret", "s-1")),
        *(("scopes", "a"), ("scopes", "b"), ("audience", "eu")),
    ]
    assert token.headers["x-app"] == "5"
    assert orders.headers["authorization"] == "Bearer t"


def test_the_client_may_stand_in_a_header_and_all_else_in_the_query(
    reading: Reading, tokens: TokenApi
) -> None:
    reading.records(
        OAUTH
        + """
        send_refresh_request_as_query_params: true
        refresh_request_headers: {Authorization: "Basic {{ (config.client ~ ':x') | base64encode }}"}
    """
    )
    token = reading.api.requests[0]
    assert token.query == [("grant_type", "refresh_token"), ("refresh_token", "r-1")]
    assert (token.body, token.headers["authorization"]) == (b"", "Basic Yy0xOng=")
    assert "content-type" not in token.headers


def test_streams_share_a_token_and_threads_wait_for_it(reading: Reading, tokens: TokenApi) -> None:
    retrievers = [reading.retriever(OAUTH) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda each=each: list(each.pages(Slice()))) for each in retrievers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tokens.issued == 1
    assert len(reading.api.requests) == 5


def test_a_token_that_is_refused_is_renewed_once(reading: Reading, tokens: TokenApi) -> None:
    orders = reading.retriever(OAUTH)
    list(orders.pages(Slice()))
    tokens.issued += 1  # the API no longer accepts the first one
    assert list(orders.pages(Slice())) == [[{"id": 1}]]
    assert [request.path for request in reading.api.requests] == [
        *("/token", "/orders", "/orders", "/token", "/orders"),
    ]
    reading.answer(routes({"/token": {"access_token": "x"}, "/orders": Answer(401)}))
    error = reading.error(OAUTH)
    assert isinstance(error, ConfigError)
    assert "refused the credentials (401)" in error.message


def test_a_filter_can_renew_a_token(reading: Reading, tokens: TokenApi) -> None:
    orders = in_turn(Answer(403), ONE)
    reading.answer(lambda request: tokens(request) if request.path == "/token" else orders(request))
    handler = """
      error_handler:
        type: DefaultErrorHandler
        response_filters: [{action: REFRESH_TOKEN_THEN_RETRY, http_codes: [403]}]
    """
    assert reading.records(OAUTH + handler) == [{"id": 1}]
    assert [request.headers.get("authorization") for request in reading.api.requests] == [
        *(None, "Bearer access-1", None, "Bearer access-2"),
    ]


def test_a_token_that_expires_between_two_pages_is_replaced(
    reading: Reading, tokens: TokenApi
) -> None:
    tokens.answer["expires_in"] = "0"

    def script(request: Received) -> Any:
        answer, page = tokens(request), int(request.params.get("page", 0))
        return {"data": [{"id": page}] if page < 2 else []} if answer is ONE else answer

    reading.answer(script)
    pages = """
      paginator:
        type: DefaultPaginator
        page_token_option: {type: RequestOption, inject_into: request_parameter, field_name: page}
        pagination_strategy: {type: PageIncrement, page_size: 1}
    """
    assert reading.records(together(OAUTH, pages)) == [{"id": 0}, {"id": 1}]
    assert [request.path for request in reading.api.requests] == ["/token", "/orders"] * 3


@pytest.mark.parametrize(
    "life", [{}, {"expires_in": None}, {"expires_in": "3600"}, {"expires_in": 3600.5}]
)
def test_the_life_of_a_token_may_be_missing_a_text_or_a_fraction(
    reading: Reading, life: dict[str, Any]
) -> None:
    reading.configure(client="c-1", secret="s-1", refresh="r-1")
    reading.answer(routes({"/token": {"access_token": "t", **life}, "/orders": ONE}))
    assert [reading.records(OAUTH) for _ in range(2)] == [[{"id": 1}]] * 2
    assert [request.path for request in reading.api.requests] == ["/token", "/orders", "/orders"]


@pytest.mark.parametrize(
    ("written", "form"),
    [
        (str(int(NOON.timestamp()) + 600), "%s"),
        ("2024-05-17T12:10:00Z", "%Y-%m-%dT%H:%M:%SZ"),
        ("17.05.2024 12:10", "%d.%m.%Y %H:%M"),
        ("2024-05-17T14:10:00+02:00", "%d.%m.%Y"),
    ],
)
def test_the_expiry_may_be_a_date(
    reading: Reading, tokens: TokenApi, written: str, form: str
) -> None:
    tokens.answer["expires_in"] = written
    text = OAUTH + f'    token_expiry_date_format: "{form}"\n'
    with clock.frozen(NOON):
        reading.records(text)
        reading.records(text)
        assert tokens.issued == 1
    tokens.answer["expires_in"] = "2024-05-17T11:00:00Z"
    reading.environment.config["client"] = "c-2"
    with clock.frozen(NOON + dt.timedelta(hours=1)):
        reading.records(text.replace("r-1", "r-2") + "    # another authenticator\n")


def test_a_refresh_token_that_is_used_once_is_saved_in_the_config(reading: Reading) -> None:
    tokens = TokenApi(refresh_token="r-2")
    reading.answer(tokens)
    saved: list[dict[str, Any]] = []
    reading.environment.on_config = lambda config: saved.append(copy.deepcopy(dict(config)))
    reading.configure(
        credentials={"client_id": "c-1", "client_secret": "s-1", "refresh_token": "r-1", "kind": 1}
    )
    text = """
    requester:
      authenticator:
        type: OAuthAuthenticator
        token_refresh_endpoint: "{{ config.url }}/token"
        refresh_token_updater: {}
    """
    with clock.frozen(NOON):
        reading.records(text)
    assert reading.api.requests[0].form[1:] == [
        *(("client_id", "c-1"), ("client_secret", "s-1"), ("refresh_token", "r-1")),
    ]
    (config,) = saved
    assert config["credentials"] == {
        "client_id": "c-1",
        "client_secret": "s-1",
        "refresh_token": "r-2",
        "kind": 1,
        "access_token": "access-1",
        "token_expiry_date": "2024-05-17T13:00:00.000Z",
    }
    tokens.issued += 1
    reading.records(text)
    assert dict(reading.api.requests[-2].form)["refresh_token"] == "r-2"


def test_an_access_token_of_the_config_is_used_while_it_is_valid(reading: Reading) -> None:
    tokens = TokenApi()
    tokens.issued = 7
    reading.answer(tokens)
    until = (clock.now() + dt.timedelta(hours=1)).isoformat()
    reading.configure(
        credentials={"access_token": "access-7", "token_expiry_date": until, "refresh_token": "r"}
    )
    text = """
    requester:
      authenticator:
        type: OAuthAuthenticator
        client_id: c
        token_refresh_endpoint: "{{ config.url }}/token"
        refresh_token_updater: {}
    """
    assert reading.records(text) == [{"id": 1}]
    assert [request.path for request in reading.api.requests] == ["/orders"]


def test_an_access_token_without_an_endpoint_is_never_renewed(reading: Reading) -> None:
    reading.configure(token="t-1")
    text = auth(
        'type: OAuthAuthenticator, access_token_value: "{{ config.token }}", client_id: a, '
        "client_secret: b, grant_type: x"
    )
    assert reading.records(text) == [{"id": 1}]
    reading.answer(Answer(401))
    assert "there is no endpoint for a new one" in reading.error(text).message


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (
            Answer(400, {"error": "invalid_grant"}),
            ConfigError,
            "refuses the refresh token (invalid_grant)",
        ),
        (Answer(401, {"error": "invalid_client"}), ConfigError, "issued no access token (401)"),
        (Answer(200, {"token": "abc"}), SystemFailure, "has no 'access_token'; it has 'token'"),
        (
            Answer(200, {"access_token": "x", "expires_in": "soon"}),
            SystemFailure,
            "'expires_in' of the token",
        ),
        (Answer(503), TransientError, "failed (503 in 6 attempts)"),
        (Answer(404), SystemFailure, "(404)"),
    ],
)
def test_a_token_endpoint_that_issues_no_token_is_a_clear_error(
    reading: Reading, answer: Answer, kind: type[Exception], message: str
) -> None:
    reading.configure(client="c-1", secret="s-hunter2", refresh="r-hunter2")
    reading.answer(routes({"/token": answer}))
    error = reading.error(OAUTH)
    assert isinstance(error, kind)
    assert message in error.message
    assert "hunter2" not in str(error) and "abc" not in str(error)


@pytest.mark.parametrize("missing", ["client", "refresh"])
def test_credentials_that_the_config_lacks_are_an_error_before_a_request(
    reading: Reading, missing: str
) -> None:
    reading.configure(**{"client": "c", "secret": "s", "refresh": "r", missing: ""})
    with pytest.raises(ConfigError, match=r"there is no value for (client_id|refresh_token)"):
        reading.retriever(OAUTH)
    assert not reading.api.requests


def test_an_empty_refresh_token_of_the_manifest_is_left_to_the_endpoint(
    reading: Reading, tokens: TokenApi
) -> None:
    written = OAUTH.replace('"{{ config.refresh }}"', '""')
    assert written != OAUTH
    reading.records(written)
    assert ("refresh_token", "") in reading.api.requests[0].form


# --- sessions -------------------------------------------------------------------------------------

SESSION = """
    requester:
      authenticator:
        type: SessionTokenAuthenticator
        login_requester:
          type: HttpRequester
          url_base: "{{ config.url }}"
          path: login
          http_method: POST
          authenticator: {type: NoAuth}
          request_body_json: {user: "{{ config.user }}", password: "{{ config.password }}"}
        session_token_path: [result, token]
        request_authentication: %s
    """


def sessions(request: Received) -> Any:
    return {"result": {"token": "session-1"}} if request.path == "/login" else ONE


def test_a_session_token_comes_from_a_login(reading: Reading) -> None:
    reading.answer(sessions)
    reading.records(SESSION % "{type: Bearer}")
    reading.records(SESSION % "{type: Bearer}")
    login, orders, _ = reading.api.requests
    assert login.json == {"user": "Ada", "password": "hunter2"}
    assert orders.headers["authorization"] == "Bearer session-1"


@pytest.mark.parametrize(
    ("wanted", "header"),
    [
        (
            "{type: ApiKey, inject_into: {type: RequestOption, inject_into: header, field_name: X-S}}",
            "session-1",
        ),
        (
            (
                '{type: ApiKey, api_token: "Token {{ session_token }}", '
                "inject_into: {type: RequestOption, inject_into: header, field_name: X-S}}"
            ),
            "Token session-1",
        ),
    ],
)
def test_a_session_token_may_be_a_key(reading: Reading, wanted: str, header: str) -> None:
    reading.answer(sessions)
    reading.records(SESSION % wanted)
    assert reading.api.requests[1].headers["x-s"] == header


def test_a_login_is_repeated_when_the_token_is_refused_or_expires(reading: Reading) -> None:
    answers = in_turn(ONE, Answer(401), ONE, ONE)
    reading.answer(
        lambda request: sessions(request) if request.path == "/login" else answers(request)
    )
    orders = reading.retriever(SESSION % "{type: Bearer}")
    list(orders.pages(Slice()))
    assert list(orders.pages(Slice())) == [[{"id": 1}]]
    paths = [request.path for request in reading.api.requests]
    assert paths == ["/login", "/orders", "/orders", "/login", "/orders"]
    short = SESSION % "{type: Bearer}\n        expiration_duration: PT0S"
    reading.records(short)
    reading.records(short)
    assert [request.path for request in reading.api.requests][5:] == ["/login", "/orders"] * 2


def test_a_login_without_a_token_is_a_clear_error(reading: Reading) -> None:
    reading.answer({"result": {}})
    error = reading.error(SESSION % "{type: Bearer}")
    assert "has no session token at 'result.token'" in error.message
    reading.answer(Answer(401))
    assert "hunter2" not in str(reading.error(SESSION % "{type: Bearer}"))
