"""What an account has: one object of every kind that a path can name, and a fingerprint of all of it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants
from tests.api.support import BATCHES, MODEL, SUBMIT, SUBSCRIPTIONS, line, run_all, uploaded
from tests.pipelines.outside import feed

WORDS = "acmes-own-words"  # in every prompt, answer and error
NAMES = "acmes-own-names"  # in every name, label and address
BUDGET = "acmes-budget"  # /metrics names budgets
_OWNED = {
    "tenant_id": "tenant_id = %(tenant)s",
    "batch_id": "batch_id in (select batch_id from batch where tenant_id = %(tenant)s)",
    "endpoint_id": "endpoint_id in (select endpoint_id from endpoint where tenant_id = %(tenant)s)",
}
# What steward and notifier do meanwhile is theirs; samples say only that somebody asked; what a synchronous request used is
# booked a little later.
_MOVING = frozenset({"request_sample", "batch_delta", "sched", "sched_delta", "line", "session_growth"})


@dataclass(frozen=True)
class Belongings:
    """`values`: by the name of a path's parameter. `secrets`: texts and ids that nobody else may see."""

    values: Mapping[str, str]
    secrets: frozenset[str]

    def shown_by(self, text: str, path: str) -> list[str]:
        """Which of them a text shows, without those that the path of the request named itself."""
        for value in self.values.values():
            text = text.replace(value, "") if value in path else text
        return [secret for secret in self.secrets if secret in text]


async def fill(client: httpx.AsyncClient, database: Database, settings: Settings) -> Belongings:
    """Give the account `acme` of this client's key something of everything, with an engine. The queue's work is done."""

    async def posted(path: str, content: dict[str, Any]) -> Any:
        answer = await client.post(path, json=content)
        assert answer.status_code == 200, answer.text
        return answer.json().get("result") or answer.json()

    webhook = {"type": "webhook", "url": "http://127.0.0.1:9/" + NAMES}
    source, events = {"type": "workersAi.model"}, ["batch.queued", "batch.succeeded"]
    wanted = {"name": NAMES, "source": source, "destination": webhook, "events": events}
    subscription = await posted(SUBSCRIPTIONS, wanted)
    asked = [
        {"messages": [{"role": "user", "content": WORDS}], "max_tokens": 5, "external_reference": f"{NAMES} {n}"}
        for n in range(2)
    ]
    batch = await posted(f"{SUBMIT}&tags={NAMES}", {"requests": asked})
    await run_all(database, fail={1}, message=f"the prompt {WORDS} is not good", answer=WORDS)
    assert WORDS in (await client.get(f"{BATCHES}/{batch['request_id']}/results")).text
    response = await posted("/v1/responses", {"model": MODEL, "input": WORDS, "background": True})
    talk = await posted(
        "/v1/conversations", {"items": [{"role": "user", "content": WORDS}], "metadata": {"about": NAMES}}
    )
    await posted("/v1/responses", {"model": MODEL, "input": WORDS, "conversation": talk["id"]})
    items = (await client.get(f"/v1/conversations/{talk['id']}/items")).json()["data"]
    assert WORDS in str(items), "a turn has them"
    file = await uploaded(client, line(1).replace(b"line 1", WORDS.encode()))
    whole = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    created = await posted("/v1/batches", whole | {"metadata": {"about": NAMES}})
    await uploaded(client, line(1).replace(b'"messages"', b'"temperature":"%s","messages"' % WORDS.encode()))
    assert WORDS in (await client.get("/v1/files")).text, "an invalid line is quoted"
    outside = {"id": "first", "external": {"timeout": "1h"}, "body": {"code": f"{WORDS} {{{{item.text}}}}"}}
    asks = {"messages": [{"role": "user", "content": f"{WORDS} {{{{text}}}}"}]}
    flow = {"name": NAMES, "input": {"items": [{"custom_id": NAMES, "text": WORDS}]}}
    pipeline = await posted("/v1/pipelines", flow | {"stages": [outside, {"id": "next", "model": MODEL, "body": asks}]})
    await feed(database, settings)
    assert WORDS in (await client.get(f"/v1/pipelines/{pipeline['id']}/waiting")).text, "an item is parked"
    sent = {"filename": NAMES, "purpose": "batch", "bytes": 100, "mime_type": "application/jsonl"}
    upload = await posted("/v1/uploads", sent)
    own = {"name": NAMES, "url": "http://127.0.0.1:9/" + NAMES, "event_types": ["batch.completed"]}
    endpoint = await posted("/v1/webhook_endpoints", own)
    budget = await client.put("/client/v4/accounts/acme/ai/budgets/" + BUDGET, json={"max_cost": "5 USD"})
    assert budget.status_code == 200, budget.text
    deliveries = (await client.get(f"{SUBSCRIPTIONS}/{subscription['id']}/deliveries")).json()["result"]
    values = {
        **{"account_id": "acme", "account": "acme", "model": MODEL, "verb": "cancel", "seq": "0"},
        **{"request_id": batch["request_id"], "response_id": response["id"], "file_id": file},
        **{"batch_id": created["id"], "upload_id": upload["id"], "endpoint_id": endpoint["id"]},
        **{"conversation_id": talk["id"], "item_id": items[0]["id"]},
        **{"pipeline_id": pipeline["id"], "custom_id": NAMES, "stage": "first", "item": "0"},
        **{"subscription_id": subscription["id"], "delivery_id": str(deliveries[0]["id"]), "name": BUDGET},
    }
    known = {"account_id", "account", "model", "verb", "seq", "delivery_id", "stage", "item"}
    ids = {value for name, value in values.items() if name not in known}
    return Belongings(values, frozenset(ids | {WORDS, NAMES}))


async def fingerprint(database: Database, account: str, *, without: Collection[str] = ()) -> dict[str, str]:
    """A hash of what an account has in each table that names an account, a batch or an endpoint, but in those of `without`."""
    async with database.durable() as conn:
        tenant = await tenants.find_tenant(conn, account)
        columns = await (
            await conn.execute(
                "select table_name, array_agg(column_name::text) from information_schema.columns"
                " where table_schema = 'public' and table_name not like '%%\\_20%%' group by 1"
            )
        ).fetchall()
        found = {}
        for table, names in columns:
            by = next((column for column in _OWNED if column in names), None)
            if by is None or table in _MOVING or table in without:
                continue
            hashed = f"select md5(string_agg(t::text, ',' order by t::text)) from {table} t where {_OWNED[by]}"
            [(digest,)] = await (await conn.execute(hashed.encode(), {"tenant": tenant})).fetchall()
            found[table] = str(digest)
    return found
