"""The pages that screenshots and the accessibility check walk, on an installation with work in every state."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from app import processes
from app.access.roles import Role
from app.console.playground import PATIENCE_SECONDS
from testing.waiting import wait_for
from tests.console.browser import Reader
from tests.system.stack import ACCOUNT, MODEL, Account, Stack

Addresses = dict[str, str]  # of the batches, by name


@dataclass(frozen=True, slots=True)
class Look:
    """A page as somebody sees it. `template`: what it is rendered from. `role`: None: who has not signed in.

    `status`: of the answer to its address. `first`: what is done there before one looks.
    """

    name: str
    template: str
    role: Role | None
    address: Callable[[Addresses], str]
    status: int = 200
    first: Callable[[Reader], None] | None = None

    def open(self, reader: Reader, ids: Addresses) -> None:
        """Bring the page of a reader to what is to be seen."""
        assert reader.open(self.address(ids)) == self.status, self.name
        if self.first:
            self.first(reader)


def _asked_to_cancel(reader: Reader) -> None:
    reader.page.get_by_role("button", name="Cancel", exact=True).click()


def _asked_to_rotate(reader: Reader) -> None:
    reader.page.get_by_role("button", name="Rotate secret", exact=True).click()


def _rotated(reader: Reader) -> None:
    reader.confirm("Rotate secret", "Rotate")
    reader.page.get_by_role("heading", name="The new secret").wait_for()


def _made_a_key(reader: Reader) -> None:
    _fill_a_key(reader, "90d")
    reader.page.get_by_role("heading", name="The key ward 3").wait_for()


def _refused_a_key(reader: Reader) -> None:
    _fill_a_key(reader, "soon")
    reader.page.get_by_role("alert").wait_for()


def _fill_a_key(reader: Reader, expires: str) -> None:
    reader.page.get_by_label("Name").fill("ward 3")
    reader.page.get_by_label("Expires").fill(expires)
    reader.page.get_by_role("button", name="Make the key").click()


def _refused_a_budget(reader: Reader) -> None:
    reader.page.get_by_label("Name").fill("month")
    reader.page.get_by_label("Maximum").fill("a lot")
    reader.page.get_by_role("button", name="Make the budget").click()
    reader.page.get_by_role("alert").wait_for()


def _asked_to_delete(reader: Reader) -> None:
    reader.page.get_by_role("button", name="Delete", exact=True).click()


def _revealed(reader: Reader) -> None:
    reader.page.get_by_role("button", name="Reveal", exact=True).click()
    reader.page.get_by_label("Reason").fill("to look at the page")
    reader.page.locator("[popover]:popover-open").get_by_role("button", name="Reveal").click()
    reader.page.get_by_role("group", name="Answer").wait_for()


def _dropped(reader: Reader) -> None:
    _drop(reader, _lines("fine", ["hello"] * 3))


def _dropped_with_errors(reader: Reader) -> None:
    _drop(reader, [*_lines("some", ["hello"] * 3), "{", '{"custom_id": 7}', *_lines("some", ["again"])])


def _drop(reader: Reader, lines: list[str]) -> None:
    file = {"name": "prompts.jsonl", "mimeType": "application/jsonl", "buffer": "\n".join(lines).encode()}
    reader.page.locator("input[type=file]").set_input_files(file)
    reader.page.wait_for_url("**/console/batches/new?file=*")


def _tried(reader: Reader) -> None:
    reader.page.get_by_role("button", name="Try it").click()
    reader.page.get_by_role("heading", name="The last seven days").wait_for()


def _tried_with_problems(reader: Reader) -> None:
    reader.page.get_by_label("Text of the policy").fill("[[rule]]\nid = 7\n")
    reader.page.get_by_role("button", name="Try it").click()
    reader.page.get_by_text("It is not a policy").wait_for()


def _asked(reader: Reader) -> None:
    reader.page.get_by_label("Model").select_option(MODEL)
    reader.page.get_by_label("Prompt").fill("Why tides?")
    reader.page.get_by_role("button", name="Ask both ways").click()
    answered = reader.page.get_by_role("group", name="Answer, Queued")
    answered.or_(reader.page.get_by_text("It still waits")).wait_for(timeout=2_000 * PATIENCE_SECONDS)


def _invited(reader: Reader) -> None:
    reader.open(reader.invite())


# A page that another module makes is added here.
PAGES: tuple[Look, ...] = (
    Look("now", "now", Role.OPERATOR, lambda ids: "/console/now?range=15m"),
    Look("batches", "batches", Role.OPERATOR, lambda ids: "/console/batches"),
    Look("batches-saved", "batches", Role.ADMIN, lambda ids: "/console/batches?view=all&q=meta.team:underwriting"),
    Look("selected", "selected", Role.ADMIN, lambda ids: "/console/batches/selected?verb=pause&all=1&view=all"),
    Look("batches-ended", "batches", Role.VIEWER, lambda ids: "/console/batches?view=ended"),
    Look("batch", "batch", Role.ADMIN, lambda ids: f"/console/batches/{ids['claims-extract']}"),
    Look(
        "batch-cancel",
        "batch",
        Role.ADMIN,
        lambda ids: f"/console/batches/{ids['contracts-ner']}",
        first=_asked_to_cancel,
    ),
    Look("batch-failed", "batch", Role.ADMIN, lambda ids: f"/console/batches/{ids['moderation']}"),
    Look("item", "item", Role.ADMIN, lambda ids: f"/console/batches/{ids['moderation']}/items/7"),
    Look(
        "item-revealed",
        "item",
        Role.ADMIN,
        lambda ids: f"/console/batches/{ids['moderation']}/items/8",
        first=_revealed,
    ),
    Look(
        "item-revealed-failed",
        "item",
        Role.ADMIN,
        lambda ids: f"/console/batches/{ids['moderation']}/items/7",
        first=_revealed,
    ),
    Look("pipelines", "pipelines", Role.OPERATOR, lambda ids: "/console/pipelines"),
    Look("pipeline", "pipeline", Role.ADMIN, lambda ids: f"/console/pipelines/{ids['tickets']}"),
    Look(
        "pipeline-cancel",
        "pipeline",
        Role.ADMIN,
        lambda ids: f"/console/pipelines/{ids['tickets']}",
        first=_asked_to_cancel,
    ),
    Look("lineage", "lineage", Role.ADMIN, lambda ids: f"/console/pipelines/{ids['tickets']}/item?custom_id=ticket-0"),
    Look("conversations", "conversations", Role.OPERATOR, lambda ids: "/console/conversations"),
    Look("conversation", "conversation", Role.ADMIN, lambda ids: f"/console/conversations/{ids['talk']}"),
    Look("turn", "turn", Role.ADMIN, lambda ids: f"/console/conversations/{ids['talk']}/turns/2", first=_revealed),
    Look("new", "new_batch", Role.ADMIN, lambda ids: "/console/batches/new"),
    Look("new-checked", "new_batch", Role.ADMIN, lambda ids: "/console/batches/new", first=_dropped),
    Look("new-errors", "new_batch", Role.ADMIN, lambda ids: "/console/batches/new", first=_dropped_with_errors),
    Look("access", "access", Role.OPERATOR, lambda ids: "/console/access"),
    Look("engines", "engines", Role.OPERATOR, lambda ids: "/console/engines?range=15m"),
    Look("engine", "engine", Role.OPERATOR, lambda ids: f"/console/engines/{ids['engine']}"),
    Look("fairness", "fairness", Role.OPERATOR, lambda ids: "/console/fairness"),
    Look("duties", "duties", Role.OPERATOR, lambda ids: "/console/duties"),
    Look("incidents", "incidents", Role.OPERATOR, lambda ids: "/console/incidents"),
    Look("webhooks", "webhooks", Role.OPERATOR, lambda ids: "/console/webhooks"),
    Look("webhook", "webhook", Role.OPERATOR, lambda ids: f"/console/webhooks/{ids['hook']}"),
    Look(
        "webhook-rotate", "webhook", Role.ADMIN, lambda ids: f"/console/webhooks/{ids['hook']}", first=_asked_to_rotate
    ),
    Look("webhook-secret", "secret", Role.ADMIN, lambda ids: f"/console/webhooks/{ids['hook']}", first=_rotated),
    Look(
        "delivery",
        "delivery",
        Role.OPERATOR,
        lambda ids: f"/console/webhooks/{ids['hook']}/deliveries/{ids['delivery']}",
    ),
    Look("spend", "spend", Role.OPERATOR, lambda ids: "/console/spend"),
    Look("budget-new", "budget", Role.ADMIN, lambda ids: "/console/spend/budgets/new"),
    Look("budget-refused", "budget", Role.ADMIN, lambda ids: "/console/spend/budgets/new", first=_refused_a_budget),
    Look("budget-of-account", "budget", Role.OPERATOR, lambda ids: "/console/spend/budgets/new"),
    Look("budget", "budget", Role.ADMIN, lambda ids: f"/console/spend/budgets/{ids['budget']}"),
    Look("budget-taken-over", "budget", Role.OPERATOR, lambda ids: f"/console/spend/budgets/{ids['budget']}"),
    Look(
        "budget-delete",
        "budget",
        Role.ADMIN,
        lambda ids: f"/console/spend/budgets/{ids['budget']}",
        first=_asked_to_delete,
    ),
    Look("sessions", "growth", Role.OPERATOR, lambda ids: "/console/sessions"),
    Look("policy", "policy", Role.OPERATOR, lambda ids: "/console/policy"),
    Look("policy-tried", "policy", Role.OPERATOR, lambda ids: "/console/policy", first=_tried),
    Look("policy-problems", "policy", Role.OPERATOR, lambda ids: "/console/policy", first=_tried_with_problems),
    Look("audit", "audit", Role.OPERATOR, lambda ids: "/console/audit"),
    Look("playground", "playground", Role.ADMIN, lambda ids: "/console/playground"),
    Look("playground-answered", "playground", Role.ADMIN, lambda ids: "/console/playground", first=_asked),
    Look("keys", "keys", Role.OPERATOR, lambda ids: "/console/keys"),
    Look("key-new", "key_new", Role.ADMIN, lambda ids: "/console/keys/new"),
    Look("key-refused", "key_new", Role.ADMIN, lambda ids: "/console/keys/new", first=_refused_a_key),
    Look("key-made", "secret", Role.ADMIN, lambda ids: "/console/keys/new", first=_made_a_key),
    Look("webhook-new", "webhook_new", Role.ADMIN, lambda ids: "/console/webhooks/new"),
    Look("find", "find", Role.OPERATOR, lambda ids: "/console/find?q=c"),
    Look("find-hits", "find", Role.OPERATOR, lambda ids: f"/console/find?q={ids['engine']}"),
    Look("login", "login", None, lambda ids: "/console/login"),
    Look("login-link", "login", None, lambda ids: "/console/login", first=_invited),
    Look("login-spent", "login", None, lambda ids: "/console/login?token=spent", status=403),
    Look("forbidden", "error", Role.VIEWER, lambda ids: "/console/batches/new", status=403),
    Look("not-found-alone", "error", None, lambda ids: "/console/login/nowhere", status=404),
    Look("not-found", "error", Role.VIEWER, lambda ids: f"/console/batches/{UUID(int=0)}", status=404),
)


EACH = tuple({page.template: page for page in reversed(PAGES)}.values())[::-1]  # the first look of each template


def opened(
    browser: Any,
    stack: Stack,
    ids: Addresses,
    account: str = ACCOUNT,
    *,
    pages: Sequence[Look] = PAGES,
    script: Path | None = None,
    **look: Any,
) -> Iterator[tuple[Look, Reader]]:
    """Each page, open before who may see it, in a browser that looks so. `script`: is added to every page."""
    readers: dict[Role | None, Reader] = {}
    for page in pages:
        if (role := page.role) not in readers:
            readers[role] = Reader(browser, stack, account, **look)
            if script:
                readers[role].context.add_init_script(path=script)
            if role:
                readers[role].sign_in(role)
        page.open(readers[role], ids)
        yield page, readers[role]
    for reader in readers.values():
        reader.context.close()


def work(stack: Stack, account: Account, many: int = 12_000) -> Addresses:
    """Submit batches: one of many items that runs, one that has ended with failures, one that is paused; and a pipeline, a
    conversation, a webhook, a budget. Returns their ids by name.
    """
    stack.script(
        {"match": "too long", "mode": "status", "status": 400, "message": "maximum context length is 8192 tokens"},
        {"match": "slowly", "mode": "slow", "seconds": 4},
    )
    ids = {"engine": "engine-0", "hook": _hook(account)}  # its address answers nobody
    terms = {"max_tokens": 20_000_000, "workflow": "tagging", "alerts_at": [75, 90]}  # which no request has
    account.client.put(f"{account.path}/ai/budgets/tagging", json=terms).raise_for_status()
    ids["budget"] = str(stack.query("select max(budget_id) from budget")[0][0])
    ids |= {"moderation": submit(account, "moderation", [f"{n} too long" if n % 9 == 7 else f"{n}" for n in range(60)])}
    _until(account, ids["moderation"], "completed")
    first = "select min(delivery_id) from delivery join endpoint using (endpoint_id) where endpoint_id = %s::uuid"
    ids["delivery"] = str(wait_for(lambda: stack.query(first, ids["hook"])[0][0], what="a delivery"))
    ids["claims-extract"] = submit(account, "claims-extract", [f"claim {n} slowly" for n in range(many)])
    ids["contracts-ner"] = submit(account, "contracts-ner", [f"contract {n} slowly" for n in range(400)])
    account.client.post(f"/v1/batches/batch_{ids['contracts-ner'].replace('-', '')}/pause").raise_for_status()
    ids |= {"tickets": _pipeline(account, many), "talk": _talk(account)}
    for n in range(20):
        call(account, n)
    return ids


def _pipeline(account: Account, many: int) -> str:
    """A pipeline some lines of which have passed the first stage, and which stays open while all is looked at. Returns its id."""
    items = [{"custom_id": f"ticket-{n}", "text": "in a moment" if n < 40 else "slowly"} for n in range(many * 2 // 3)]
    again = {"messages": [{"role": "user", "content": "{{text}} slowly"}]}
    first = {"messages": [{"role": "user", "content": "What is this about?\n{{item.text}}"}]}
    stages = [
        {"id": "classify", "model": MODEL, "body": first, "escalate": {"model": MODEL, "when": "not ok", "most": 0.2}},
        {"id": "reply", "model": MODEL, "body": again},
        {
            "id": "summary",
            "after": "classify",
            "model": MODEL,
            "pack": {"size": 20},
            "body": {"messages": [{"role": "user", "content": "{{parts.text}}"}]},
        },
    ]
    order = {
        "name": "tickets",
        "completion_window": "24h",
        "budget": {"usd": 20},
        "input": {"items": items},
        "stages": stages,
    }
    made = account.client.post("/v1/pipelines", json=order)
    made.raise_for_status()
    return str(made.json()["id"])


def _talk(account: Account) -> str:
    """A conversation of three turns. Returns its id."""
    made = account.client.post("/v1/conversations", json={"metadata": {"name": "tides"}})
    made.raise_for_status()
    talk = str(made.json()["id"])
    for text in ("What are tides?", "Who moves the water?", "And twice a day?"):
        said = {"model": MODEL, "conversation": talk, "input": text, "max_output_tokens": 20}
        account.client.post("/v1/responses", json=said).raise_for_status()
    return talk


def submit(account: Account, name: str, prompts: list[str]) -> str:
    """Queue a batch of chats under a name. Returns its id."""
    sent = {"file": (f"{name}.jsonl", "\n".join(_lines(name, prompts)).encode())}
    file = account.client.post("/v1/files", files=sent, data={"purpose": "batch"}).json()
    order = {
        "input_file_id": file["id"],
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": {"name": name, "team": "underwriting"},
    }
    made = account.client.post("/v1/batches", json=order).json()
    digits = made["id"].removeprefix("batch_")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _lines(name: str, prompts: list[str]) -> list[str]:
    line: dict[str, Any] = {"method": "POST", "url": "/v1/chat/completions"}
    bodies = [{"model": MODEL, "max_tokens": 20, "messages": [{"role": "user", "content": each}]} for each in prompts]
    return [json.dumps({"custom_id": f"{name}-{n}", **line, "body": body}) for n, body in enumerate(bodies)]


def _hook(account: Account) -> str:
    """A webhook at which nobody listens. Returns its id."""
    path = f"{account.path}/event_subscriptions/subscriptions"
    account.subscribe(f"http://127.0.0.1:{processes.free_port()}/hook")
    return str(account.client.get(path).json()["result"][0]["id"]).replace("-", "")


def _until(account: Account, request_id: str, status: str) -> None:
    address = f"/v1/batches/batch_{request_id.replace('-', '')}"
    wait_for(lambda: account.client.get(address).json()["status"] == status, what=f"{request_id} {status}")


def call(account: Account, number: int) -> None:
    """A synchronous request, streamed, as the latencies are of those."""
    body = {"model": MODEL, "stream": True, "max_tokens": 10, "messages": [{"role": "user", "content": str(number)}]}
    with account.client.stream("POST", "/v1/chat/completions", json=body) as answer:
        for _ in answer.iter_bytes():
            pass
