"""A batch API of OpenAI's shape, ours or another: files in, batches, files out. Only what `slackwater shadow` needs of it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import orjson

from app.causes import cause
from app.cli import foreign_answer
from app.cli.results import split_lines
from app.sentences import ended
from app.user_errors import Failure

_TIMEOUT = httpx.Timeout(30, read=300, write=300)
_PASSING = (429, 500, 502, 503, 504)
_TRIES = 6
_PAUSE_SECONDS = 2.0  # before the second try; each further one is twice as long
_REMEDIES = {
    401: "Correct the key that is sent to {name}.",
    403: "Correct the key that is sent to {name}.",
    404: "Correct the URL; it ends in /v1.",
}
ENDED = ("completed", "failed", "expired", "cancelled")


class BatchApi:
    """One side. Use as a context manager. Every call raises Failure, which names the side by its host.

    What only reads is tried again while the API is busy or away.
    """

    def __init__(self, url: str, key: str, pause: Callable[[float], None] = time.sleep) -> None:
        try:
            self.url = httpx.URL(url.rstrip("/"))
            self._http = httpx.Client(
                base_url=self.url, headers={"authorization": f"Bearer {key}"}, timeout=_TIMEOUT, follow_redirects=True
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise Failure(f"{url} with that key: {error}", "Name the URL of an API, which ends in /v1.") from error
        if self.url.scheme not in ("http", "https"):
            raise Failure(f"{url} is not the URL of an API.", "It begins with http:// or https://, and ends in /v1.")
        self.name = self.url.netloc.decode()
        self._pause = pause

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def submit(self, file: Path, endpoint: str) -> str:
        """Upload a file and create a batch of it. Returns the batch's id."""
        with file.open("rb") as content:
            form = {"data": {"purpose": "batch"}, "files": {"file": (file.name, content, "application/jsonl")}}
            uploaded = self._call("POST", "/files", tries=1, **form)
        wanted = {"input_file_id": uploaded["id"], "endpoint": endpoint, "completion_window": "24h"}
        return str(self._call("POST", "/batches", tries=1, json=wanted)["id"])

    def check(self) -> None:
        """Whether it answers, and takes the key."""
        self._call("GET", "/batches", tries=1, params={"limit": 1})

    def cancel(self, batch_id: str) -> None:
        """Let the batch end."""
        self._call("POST", f"/batches/{batch_id}/cancel", tries=1)

    def batch(self, batch_id: str) -> dict[str, Any]:
        """The batch now."""
        return self._call("GET", f"/batches/{batch_id}")

    def lines(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The lines of the batch's output file, then those of its error file."""
        for file_id in (batch.get("output_file_id"), batch.get("error_file_id")):
            if file_id:
                with self._answer("GET", f"/files/{file_id}/content", _TRIES) as answer:
                    yield from (orjson.loads(line) for line in split_lines(answer.iter_bytes()) if line.strip())

    def _call(self, method: str, path: str, *, tries: int = _TRIES, **options: Any) -> dict[str, Any]:
        with self._answer(method, path, tries, **options) as answer:
            answer.read()
            return self._object(answer)

    @contextmanager
    def _answer(self, method: str, path: str, tries: int, **options: Any) -> Iterator[httpx.Response]:
        pause = _PAUSE_SECONDS
        for left in reversed(range(tries)):
            try:
                answer = self._http.send(self._http.build_request(method, f"{self.url}{path}", **options), stream=True)
            except httpx.TransportError as error:
                if not left:
                    raise Failure(
                        ended(f"{self.name} does not answer: {cause(error)}"), "Correct its URL, or try later."
                    ) from error
            else:
                if not (left and answer.status_code in _PASSING):
                    break
                answer.close()
            self._pause(pause)
            pause *= 2
        try:
            if answer.is_error:
                answer.read()
                raise self._refusal(answer)
            yield answer
        except httpx.TransportError as error:
            raise Failure(ended(f"{self.name} broke off its answer: {error}"), "Run the command again.") from error
        finally:
            answer.close()

    def _object(self, answer: httpx.Response) -> dict[str, Any]:
        try:
            body = answer.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise foreign_answer.failure(answer, "OpenAI's API", "Correct the URL; it ends in /v1.")
        return body

    def _refusal(self, answer: httpx.Response) -> Failure:
        error = self._object(answer).get("error")
        message = error.get("message") if isinstance(error, dict) else None
        remedy = _REMEDIES.get(answer.status_code, "").format(name=self.name)
        return Failure(ended(f"{self.name} answered {answer.status_code}: {message or answer.text[:200]}"), remedy)
