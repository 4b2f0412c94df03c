"""The HTTP client that the commands use to call the API with one account's key.

An error response, or no response, becomes a Failure that names a remedy.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import httpx

from app.cli import credentials, foreign_answer
from app.cli.api_away import api_away
from app.errors import PolicyDenied
from app.settings import Settings
from app.user_errors import Failure

WARNING = "x-slackwater-warning"
_TIMEOUT = httpx.Timeout(30, read=120)
_REMEDIES = {
    401: "Check SLACKWATER_API_KEY, or run `slackwater login`.",
    403: "Use a key of that account: SLACKWATER_API_KEY or `slackwater login`.",
    503: "`slackwater status` shows what is wrong.",
}


class ApiError(Failure):
    """The API answered with an error. `status` is the HTTP status, `code` the API's error code."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message, "" if code == PolicyDenied.code else _REMEDIES.get(status, ""))
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list, and the cursor of the next one; empty at the end."""

    rows: list[dict[str, Any]]
    cursor: str


class Client:
    """Calls one installation's API. Use as a context manager. Every call raises Failure.

    `warning`: what the API warned of in its last answer; empty: nothing.
    """

    warning = ""

    def __init__(
        self,
        url: str,
        key: str,
        transport: httpx.BaseTransport | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._settings = settings
        self.url = url
        headers = {"authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=_TIMEOUT, transport=transport)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """A client for the URL and key of the environment or the stored credentials. Raises Failure if there is no key."""
        return cls(*credentials.find(settings), settings=settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    @cached_property
    def account(self) -> str:
        """The account that the key belongs to."""
        with self.stream("GET", "/client/v4/accounts") as response:
            return str(response_json(response)["result"][0]["id"])

    def get(self, path: str, **params: Any) -> Any:
        """The `result` at a path below the account, such as `/ai/batches`. Parameters that are None are left out."""
        return self.call("GET", path, params=params)

    def page(self, path: str, **params: Any) -> ListPage:
        """One page of the list at a path below the account."""
        body = self._answer("GET", path, params=params)
        return ListPage(body["result"], str((body.get("result_info") or {}).get("cursor") or ""))

    def call(self, method: str, path: str, **options: Any) -> Any:
        """The `result` of any call below the account. `options` are passed to httpx."""
        return self._answer(method, path, **options).get("result")

    @contextmanager
    def stream(self, method: str, path: str, **options: Any) -> Iterator[httpx.Response]:
        """A successful response to any path of the API; its body is not read yet."""
        if isinstance(options.get("params"), Mapping):
            options["params"] = {name: value for name, value in options["params"].items() if value is not None}
        try:
            with self._http.stream(method, path, **options) as response:
                if not response.is_success or "html" in response.headers.get("content-type", ""):
                    raise _refusal(response)
                yield response
        except httpx.UnsupportedProtocol as error:
            raise Failure(
                f"{self.url} is not the URL of an API.", "The URL must begin with http:// or https://."
            ) from error
        except httpx.LocalProtocolError as error:  # its message may contain the key
            raise Failure(
                "The request could not be sent: a header contains a character that is not allowed."
            ) from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise api_away(self.url, error, self._settings) from error

    def below_account(self, path: str) -> str:
        """The full path of a path below the account."""
        return f"/client/v4/accounts/{self.account}{path}"

    def _answer(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        with self.stream(method, self.below_account(path), **options) as response:
            self.warning = response.headers.get(WARNING, "")
            return response_json(response)


def response_json(response: httpx.Response) -> dict[str, Any]:
    """The body of a response, which must be a JSON object. Raises Failure."""
    body = _object(response)
    if body is None:
        raise _foreign(response)
    return body


def _object(response: httpx.Response) -> dict[str, Any] | None:
    response.read()
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _refusal(response: httpx.Response) -> Failure:
    """The Failure for an answer that is no success: in the API's words, or about whoever else wrote it."""
    try:
        first = (_object(response) or {})["errors"][0]
        return ApiError(response.status_code, int(first["code"]), str(first["message"]))
    except (KeyError, IndexError, TypeError, ValueError):
        return _foreign(response)


def _foreign(response: httpx.Response) -> Failure:
    return foreign_answer.failure(response, "Slackwater", "Check SLACKWATER_URL.")
