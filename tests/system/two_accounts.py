"""Two accounts of one installation, and the OpenAPI document as the second one's requests name what the first one has."""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import httpx

from app.api.app import create_app
from app.cli.key import create_key
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, wait_for
from tests.system.stack import MODEL, Stack

OWNER, STRANGER = "owner", "stranger"
WORDS = "the-owners-own-words"  # in every prompt of the owner
NAMES = "the-owners-own-names"  # in every name and address
BUDGET = "owners-budget"  # /metrics names budgets
_FEWEST = 8  # characters of a value that cannot be there by chance


@dataclass(frozen=True)
class Belongings:
    """What the owner has. `ids`: by the name of a path's parameter."""

    ids: Mapping[str, str]

    def shown_by(self, text: str, asked: str) -> list[str]:
        """What of it an answer shows that its request did not name."""
        secrets = {WORDS, NAMES, *(each for each in self.ids.values() if len(each) >= _FEWEST and each != BUDGET)}
        return [secret for secret in secrets if secret in text and secret not in asked]


def client_of(stack: Stack, key: str) -> httpx.Client:
    """A client of the installation with this credential."""
    headers = {"authorization": f"Bearer {key}"}
    return httpx.Client(base_url=stack.client.base_url, headers=headers, timeout=LIMIT_SECONDS, trust_env=False)


def key_of(stack: Stack, account: str) -> str:
    """A key that may do everything in its account."""
    return str(create_key(stack.settings, account, "test", 1))


def fill(stack: Stack) -> Belongings:
    """Give the owner one object of every kind that a path can name; its work is done."""
    client, own = client_of(stack, key_of(stack, OWNER)), f"/client/v4/accounts/{OWNER}"

    def made(path: str, content: dict[str, Any], method: str = "POST") -> Any:
        answer = client.request(method, path, json=content)
        assert answer.status_code == 200, answer.text
        return answer.json().get("result") or answer.json()

    webhook = {"type": "webhook", "url": f"http://127.0.0.1:9/{NAMES}"}
    wanted = {
        "name": NAMES,
        "source": {"type": "workersAi.model"},
        "destination": webhook,
        "events": ["batch.succeeded"],
    }
    subscription = made(f"{own}/event_subscriptions/subscriptions", wanted)["id"]
    item = {"messages": [{"role": "user", "content": WORDS}], "max_tokens": 5, "external_reference": NAMES}
    run = f"{own}/ai/run/{MODEL}?queueRequest=true&tags={NAMES}"
    batch = made(run, {"requests": [item]})["request_id"]
    response = made("/v1/responses", {"model": MODEL, "input": WORDS, "background": True})["id"]
    talk = made("/v1/conversations", {"items": [{"role": "user", "content": WORDS}], "metadata": {"about": NAMES}})[
        "id"
    ]
    made("/v1/responses", {"model": MODEL, "input": WORDS, "conversation": talk})
    item_id = client.get(f"/v1/conversations/{talk}/items").json()["data"][0]["id"]
    pipeline = made("/v1/pipelines", _flow())["id"]
    wait_for(lambda: client.get(f"/v1/pipelines/{pipeline}/waiting").json()["data"], "an item that waits outside")
    request = {"custom_id": NAMES, "method": "POST", "url": "/v1/chat/completions"}
    line = json.dumps(request | {"body": {"model": MODEL, "messages": item["messages"]}}).encode() + b"\n"
    file = client.post("/v1/files", data={"purpose": "batch"}, files={"file": (f"{NAMES}.jsonl", line)}).json()["id"]
    whole = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    created = made("/v1/batches", whole | {"metadata": {"about": NAMES}})["id"]
    sent = {"filename": NAMES, "purpose": "batch", "bytes": len(line), "mime_type": "application/jsonl"}
    upload = made("/v1/uploads", sent)["id"]
    part = client.post(f"/v1/uploads/{upload}/parts", files={"data": line}).json()["id"]
    endpoint = {"name": NAMES, "url": f"http://127.0.0.1:9/{NAMES}", "event_types": ["batch.completed"]}
    endpoint_id = made("/v1/webhook_endpoints", endpoint)["id"]
    made(f"{own}/ai/budgets/{BUDGET}", {"max_cost": "5 USD"}, "PUT")
    ended = wait_for(lambda: _ended(client, created, f"{own}/ai/batches/{batch}"), "the owner's batches")
    deliveries = f"{own}/event_subscriptions/subscriptions/{subscription}/deliveries"
    delivery = wait_for(lambda: client.get(deliveries).json()["result"], "a delivery")[0]["id"]
    ids = {"request_id": batch, "response_id": response, "file_id": file, "batch_id": created, "upload_id": upload}
    ids |= {"conversation_id": talk, "item_id": item_id, "pipeline_id": pipeline, "custom_id": NAMES}
    ids |= {"stage": "first", "item": "0"}
    ids |= {"part_id": part, "endpoint_id": endpoint_id, "subscription_id": subscription, "delivery_id": str(delivery)}
    keys = client.get(f"{own}/ai/keys").json()["result"]
    return Belongings(ids | {"output_file_id": ended, "name": BUDGET, "key_id": keys[0]["id"]})


def _flow() -> dict[str, Any]:
    """A pipeline with an item that waits for an answer from outside."""
    outside = {"id": "first", "external": {"timeout": "1h"}, "body": {"code": f"{WORDS} {{{{item.text}}}}"}}
    asks = {"messages": [{"role": "user", "content": f"{WORDS} {{{{text}}}}"}]}
    lines = {"items": [{"custom_id": NAMES, "text": WORDS}]}
    return {"name": NAMES, "input": lines, "stages": [outside, {"id": "next", "model": MODEL, "body": asks}]}


def _ended(client: httpx.Client, created: str, batch: str) -> str:
    """The output file of the batch of the file, once both batches have succeeded."""
    done = client.get(batch).json()["result"]["status"] == "completed"
    return str(client.get(f"/v1/batches/{created}").json()["output_file_id"] or "") if done else ""


def document(belongings: Belongings, account: str) -> dict[str, Any]:
    """The document for a caller who knows all ids of the owner, and tries them wherever a request has room for a text.

    Paths name the owner's things, below this account.
    """
    found = deepcopy(create_app(Settings()).openapi())
    known = {**belongings.ids, "account_id": account, "account": account, "model": MODEL}
    anything = {"enum": sorted({*belongings.ids.values()})}
    for _, operation in operations(found):
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path" and parameter["name"] in known:
                parameter["schema"] = {"const": known[parameter["name"]]}
            elif parameter["in"] == "query" and _is_free(parameter["schema"]):
                parameter["schema"] = {"anyOf": [anything, parameter["schema"]]}
    _offer(found, anything)
    fix(found, "model", {"const": MODEL})
    return found


def operations(found: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each operation of a document, with its path."""
    for path, methods in found["paths"].items():
        for operation in methods.values():
            yield path, operation


def _is_free(schema: Any) -> bool:
    """Whether a schema lets any text through, also one of several forms."""
    if not isinstance(schema, dict):
        return False
    if forms := schema.get("anyOf"):
        return any(_is_free(form) for form in forms)
    return schema.get("type") == "string" and not schema.keys() & {"enum", "const", "format"}


def _offer(value: Any, anything: dict[str, Any]) -> None:
    """Every free text in a body may also be one of these."""
    if isinstance(value, list):
        for each in value:
            _offer(each, anything)
    elif isinstance(value, dict):
        properties = value.get("properties")
        if isinstance(properties, dict):
            for name, schema in properties.items():
                if _is_free(schema):
                    properties[name] = {"anyOf": [anything, schema]}
        for each in value.values():
            _offer(each, anything)


def fix(value: Any, name: str, known: dict[str, Any]) -> None:
    """Every property of this name has this schema."""
    for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        fix(each, name, known)
    if isinstance(value, dict) and isinstance(value.get("properties"), dict) and name in value["properties"]:
        value["properties"][name] = dict(known)
