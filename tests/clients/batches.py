"""Batches, prompts and waits that the tests of clients share."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
from openai import OpenAI
from openai.types import Batch

from testing.waiting import LIMIT_SECONDS, wait_for
from tests.system.stack import MODEL

# Prompts that the engine of text never answers, refuses, and answers slowly in a stream.
ENDLESS, REFUSED, SLOW = "never answer this", "refuse this", "take your time"
REFUSAL = "max_tokens is too large: 1000000."
NATIVE = "client/v4"
BASES = ("/v1", f"/{NATIVE}/accounts/{{}}/ai/v1")  # of an account


def line(n: int, text: str | None = None, **changes: Any) -> dict[str, Any]:
    """A line of a batch file that says `text`."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": text or f"line {n}"}]}
    return {"custom_id": f"request-{n}", "method": "POST", "url": "/v1/chat/completions", "body": body} | changes


def uploaded(client: OpenAI, *lines: Any) -> str:
    """The id of a file of these lines; a text is a line as it is."""
    content = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    return client.files.create(file=("input.jsonl", content.encode()), purpose="batch").id


def created(client: OpenAI, file_id: str, endpoint: str = "/v1/chat/completions", **more: Any) -> Batch:
    """A new batch of the file."""
    wish = {"input_file_id": file_id, "endpoint": endpoint, "completion_window": "24h"} | more
    return client.batches.create(**wish)


def ended(client: OpenAI, batch: Batch) -> Batch:
    """Wait until the batch has ended, and return it."""
    final = ("failed", "completed", "expired", "cancelled")
    return wait_for(lambda: client.batches.retrieve(batch.id), until=lambda found: found.status in final)


def lines_of(client: OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    """The lines of a file; empty if there is no file."""
    return [json.loads(each) for each in client.files.content(file_id).text.splitlines()] if file_id else []


def shown(client: OpenAI, path: str) -> dict[str, Any]:
    """The API's raw answer at a path."""
    headers = {"authorization": f"Bearer {client.api_key}"}
    answer = httpx.get(
        f"{client.base_url}{path}", headers=headers, timeout=LIMIT_SECONDS, trust_env=False, verify=False
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def resumed(client: OpenAI, response_id: str, after: int) -> Iterator[Any]:
    """The events of a response behind this number."""
    yield from client.responses.retrieve(response_id, stream=True, starting_after=after)


def watched(client: OpenAI, requests: list[Any], **changes: Any) -> OpenAI:
    """The client with its usual retries; what it sends is noted in `requests`."""
    http_client = openai.DefaultHttpxClient(event_hooks={"request": [requests.append]}, verify=False)
    return client.with_options(http_client=http_client, **{"max_retries": 2} | changes)
