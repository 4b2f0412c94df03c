"""What the bridges share: a batch that is submitted once however often its step runs, its answers, and a receiver of its end.

The addresses come from the environment: SLACKWATER_URL (http://127.0.0.1:8700) and SLACKWATER_KEY; BRIDGE_URL is where Slackwater
reaches the receiver (http://127.0.0.1:8720).
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from openai import InvalidWebhookSignatureError, OpenAI
from openai.types import Batch

MODEL = os.environ.get("SLACKWATER_MODEL", "smollm2-135m-instruct")
ENDED = ("completed", "failed", "expired", "cancelled")
EVENTS = tuple(f"batch.{status}" for status in ENDED)
ROUTE = "/v1/chat/completions"


def slackwater() -> OpenAI:
    """OpenAI's client with Slackwater's address."""
    url = os.environ.get("SLACKWATER_URL", "http://127.0.0.1:8700")
    return OpenAI(base_url=f"{url}/v1", api_key=os.environ["SLACKWATER_KEY"])


def lines(prompts: Sequence[str]) -> list[dict[str, object]]:
    """The requests of a batch; `custom_id` is the place of the prompt."""
    bodies = ({"model": MODEL, "messages": [{"role": "user", "content": each}]} for each in prompts)
    return [{"custom_id": str(n), "method": "POST", "url": ROUTE, "body": body} for n, body in enumerate(bodies)]


def submit(client: OpenAI, prompts: Sequence[str], *, key: str, metadata: Mapping[str, str] | None = None) -> Batch:
    """The batch of these prompts. With a key that was used before it is the batch of then, so a step may run twice."""
    return client.batches.create(
        input_file_id="",
        endpoint=ROUTE,
        completion_window="24h",
        metadata=dict(metadata or {}),
        extra_body={"requests": lines(prompts)},
        extra_headers={"Idempotency-Key": key},
    )


def output(batch: Batch) -> str:
    """The id of the file with the answers. An engine's step passes on this, not the answers: engines limit what a step returns.

    Raises RuntimeError if there are none.
    """
    if batch.output_file_id is None:
        raise RuntimeError(f"{batch.id} is {batch.status} without an answer; its error file: {batch.error_file_id}")
    return batch.output_file_id


def answers(client: OpenAI, file_id: str) -> dict[str, str]:
    """The answers in a file by `custom_id`."""
    found = map(json.loads, client.files.content(file_id).text.splitlines())
    return {each["custom_id"]: each["response"]["body"]["choices"][0]["message"]["content"] for each in found}


@contextlib.contextmanager
def told(client: OpenAI, handle: Callable[[Batch, str], None]) -> Iterator[None]:
    """Call `handle(batch, event id)` for each batch that ends while the block runs. If it fails, the event comes again later."""
    url, secrets = os.environ.get("BRIDGE_URL", "http://127.0.0.1:8720"), list[str]()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(_outcome(client, body, dict(self.headers), secrets, handle))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", urlsplit(url).port or 80), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = client.webhooks.create(name="bridge", url=url, event_types=list(EVENTS))
    secrets.append(endpoint.signing_secret)
    try:
        yield
    finally:
        client.webhooks.delete(endpoint.id)
        server.shutdown()
        server.server_close()


def _outcome(
    client: OpenAI,
    body: bytes,
    headers: dict[str, str],
    secrets: Sequence[str],
    handle: Callable[[Batch, str], None],
) -> int:
    """The status for one delivery. Until the secret is known none is accepted, and it comes again."""
    if not secrets:
        return 503
    try:
        event = client.webhooks.unwrap(body, headers, secret=secrets[0])
    except InvalidWebhookSignatureError:
        return 401
    if "test" not in event.type and int(event.data.id.partition("_")[2], 16):  # a test is of no batch
        handle(client.batches.retrieve(event.data.id), event.id)
    return 204
