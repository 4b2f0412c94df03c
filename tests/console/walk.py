"""The pages that screenshots and the accessibility check walk, on an installation with work in every state."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from app import processes
from app.access.roles import Role
from tests.system.stack import ACCOUNT, MODEL, Stack, wait_for

Addresses = dict[str, str]  # of the batches, by name

# Name, role that looks, and address. A page that another module makes is added here.
PAGES: tuple[tuple[str, Role, Callable[[Addresses], str]], ...] = (
    ("now", Role.OPERATOR, lambda ids: "/console/now?range=15m"),
    ("batches", Role.OPERATOR, lambda ids: "/console/batches"),
    ("batches-saved", Role.ADMIN, lambda ids: "/console/batches?view=all&q=meta.team:underwriting"),
    ("selected", Role.ADMIN, lambda ids: "/console/batches/selected?verb=pause&all=1&view=all"),
    ("batches-ended", Role.VIEWER, lambda ids: "/console/batches?view=ended"),
    ("batch", Role.ADMIN, lambda ids: f"/console/batches/{ids['claims-extract']}"),
    ("batch-failed", Role.ADMIN, lambda ids: f"/console/batches/{ids['moderation']}"),
    ("item", Role.ADMIN, lambda ids: f"/console/batches/{ids['moderation']}/items/7"),
    ("new", Role.ADMIN, lambda ids: "/console/batches/new"),
    ("access", Role.OPERATOR, lambda ids: "/console/access"),
    ("engines", Role.OPERATOR, lambda ids: "/console/engines?range=15m"),
    ("engine", Role.OPERATOR, lambda ids: "/console/engines/engine-0"),
    ("fairness", Role.OPERATOR, lambda ids: "/console/fairness"),
    ("incidents", Role.OPERATOR, lambda ids: "/console/incidents"),
    ("webhooks", Role.OPERATOR, lambda ids: "/console/webhooks"),
    ("webhook", Role.OPERATOR, lambda ids: f"/console/webhooks/{ids['hook']}"),
    ("delivery", Role.OPERATOR, lambda ids: f"/console/webhooks/{ids['hook']}/deliveries/1"),
    ("spend", Role.OPERATOR, lambda ids: "/console/spend"),
    ("sessions", Role.OPERATOR, lambda ids: "/console/sessions"),
    ("policy", Role.OPERATOR, lambda ids: "/console/policy"),
    ("audit", Role.OPERATOR, lambda ids: "/console/audit"),
    ("playground", Role.ADMIN, lambda ids: "/console/playground"),
    ("keys", Role.OPERATOR, lambda ids: "/console/keys"),
    ("find", Role.OPERATOR, lambda ids: "/console/find?q=c"),
    ("find-hits", Role.OPERATOR, lambda ids: "/console/find?q=engine-0"),
)


def work(stack: Stack) -> Addresses:
    """Submit batches: one that runs, one that has ended with failures, one that is paused. Returns their ids by name."""
    rules = [
        {"match": "too long", "mode": "status", "status": 400, "message": "maximum context length is 8192 tokens"},
        {"match": "slowly", "mode": "slow", "seconds": 2},
    ]
    httpx.post(f"http://127.0.0.1:{stack.engine_port}/_script", json=rules, trust_env=False).raise_for_status()
    ids = {"hook": _hook(stack)}  # its address answers nobody
    ids |= {"moderation": submit(stack, "moderation", [f"{n} too long" if n % 9 == 7 else f"{n}" for n in range(60)])}
    _until(stack, ids["moderation"], "completed")
    ids["claims-extract"] = submit(stack, "claims-extract", [f"claim {n} slowly" for n in range(4000)])
    ids["contracts-ner"] = submit(stack, "contracts-ner", [f"contract {n}" for n in range(400)])
    stack.client.post(f"/v1/batches/batch_{ids['contracts-ner'].replace('-', '')}/pause").raise_for_status()
    for n in range(20):
        call(stack, n)
    return ids


def submit(stack: Stack, name: str, prompts: list[str]) -> str:
    """Queue a batch of chats under a name. Returns its id."""
    line: dict[str, Any] = {"method": "POST", "url": "/v1/chat/completions"}
    bodies = [{"model": MODEL, "max_tokens": 20, "messages": [{"role": "user", "content": each}]} for each in prompts]
    lines = [json.dumps({"custom_id": f"{name}-{n}", **line, "body": body}) for n, body in enumerate(bodies)]
    sent = {"file": (f"{name}.jsonl", "\n".join(lines).encode())}
    file = stack.client.post("/v1/files", files=sent, data={"purpose": "batch"}).json()
    order = {
        "input_file_id": file["id"],
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": {"name": name, "team": "underwriting"},
    }
    made = stack.client.post("/v1/batches", json=order).json()
    digits = made["id"].removeprefix("batch_")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _hook(stack: Stack) -> str:
    """A webhook at which nobody listens. Returns its id."""
    path = f"/client/v4/accounts/{ACCOUNT}/event_subscriptions/subscriptions"
    stack.subscribe(f"http://127.0.0.1:{processes.free_port()}/hook")
    return str(stack.client.get(path).json()["result"][0]["id"]).replace("-", "")


def _until(stack: Stack, request_id: str, status: str) -> None:
    address = f"/v1/batches/batch_{request_id.replace('-', '')}"
    wait_for(lambda: stack.client.get(address).json()["status"] == status, what=f"{request_id} {status}")


def call(stack: Stack, number: int) -> None:
    """A synchronous request, streamed, as the latencies are of those."""
    body = {"model": MODEL, "stream": True, "max_tokens": 10, "messages": [{"role": "user", "content": str(number)}]}
    with stack.client.stream("POST", "/v1/chat/completions", json=body) as answer:
        for _ in answer.iter_bytes():
            pass
