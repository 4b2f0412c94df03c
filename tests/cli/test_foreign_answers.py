"""Claims about what commands say of answers that the API did not write."""

import httpx
import pytest

from app.cli import foreign_answer
from app.cli.client import ApiError, Client
from app.user_errors import Failure

PAGE = "<html><head><title>{0}</title></head><body><h1>{0}</h1><hr>nginx</body></html>"
SEEN = "http://api/client/v4/accounts answered {}, but not as Slackwater does"


def told(status: int, body: str, **headers: str) -> Failure:
    """What a command says of this answer."""
    answer = httpx.Response(status, text=body, headers=headers)
    with (
        Client("http://api", "key", transport=httpx.MockTransport(lambda _: answer)) as client,
        pytest.raises(Failure) as found,
    ):
        client.get("/ai/batches")
    return found.value


@pytest.mark.parametrize(
    ("status", "words", "what", "fix"),
    [
        (401, "Authorization Required", "asks for a login of its own", "Log in there"),
        (403, "Forbidden", "refuses the request", "Ask who runs it"),
        (413, "Request Entity Too Large", "takes no body of this size", "`client_max_body_size`"),
        (429, "Too Many Requests", "takes no more requests now", "Wait a little"),
        (502, "Bad Gateway", "cannot reach the API", "See whether the API is up"),
        (504, "Gateway Time-out", "has waited too long for the API", "`proxy_read_timeout`"),
    ],
)
def test_the_page_of_a_proxy_is_called_that_with_what_to_do(status: int, words: str, what: str, fix: str) -> None:
    for body in (PAGE.format(f"{status} {words}"), f"{status} {words}\n"):
        failure = told(status, body)
        assert str(failure) == f"{SEEN.format(status)}: a proxy before it {what}. It says: {status} {words}."
        assert fix in failure.remedy


def test_a_redirect_is_named_and_not_followed_with_the_key() -> None:
    failure = told(302, PAGE.format("302 Found"), location="https://login.example/")
    assert str(failure) == f"{SEEN.format(302)}: it redirects to https://login.example/."
    assert "Check SLACKWATER_URL." in failure.remedy


@pytest.mark.parametrize("status", [200, 404])
def test_the_page_of_another_program_is_quoted(status: int) -> None:
    failure = told(status, PAGE.format("Welcome to nginx!"))
    assert str(failure) == f"{SEEN.format(status)}. It says: Welcome to nginx!"
    assert failure.remedy == "Check SLACKWATER_URL."


def test_a_page_that_a_proxy_answers_with_success_is_no_result() -> None:
    page = httpx.Response(200, html=PAGE.format("Sign in"))
    with (
        Client("http://api", "key", transport=httpx.MockTransport(lambda _: page)) as client,
        pytest.raises(Failure, match="not as Slackwater does"),
        client.stream("GET", "/client/v4/accounts/acme/ai/batches/1/results"),
    ):
        pass


@pytest.mark.parametrize("body", ['{"message": "no"}', '{"errors": {}}', '{"errors": ["no"]}', "[]", ""])
def test_json_in_another_form_is_not_taken_for_the_apis(body: str) -> None:
    failure = told(503, body)
    assert not isinstance(failure, ApiError)
    assert "cannot reach the API" in str(failure)


def test_an_error_of_the_api_is_told_in_its_own_words() -> None:
    failure = told(401, '{"errors": [{"code": 10000, "message": "no key"}]}')
    assert isinstance(failure, ApiError)
    assert (str(failure), failure.status, failure.code) == ("no key", 401, 10000)


def test_the_form_that_was_expected_is_named() -> None:
    answer = httpx.Response(200, text="<p>hello", request=httpx.Request("GET", "http://o/v1/files"))
    said = "http://o/v1/files answered 200, but not as OpenAI's API does. It says: hello."
    assert str(foreign_answer.failure(answer, "OpenAI's API", "x")) == said
