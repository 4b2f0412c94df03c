"""Claims about calls of forbidden tools in pipelines: no stage shows them, neither one that made them nor one that has them from
another, nor a copy.
"""

from typing import Any

import httpx

from app.db.pool import Database
from app.settings import Settings
from tests.api.support import MODEL
from tests.api.test_tool_calls import CHAT, DENY, MESSAGES, REFUSAL, TOOLS, Apply, answer_all, apply
from tests.pipelines.outside import feed

__all__ = ["apply"]
ASK = {"id": "ask", "model": MODEL, "body": {"messages": MESSAGES, "tools": TOOLS}}
PASS = {"id": "passed", "model": MODEL, "when": "false", "otherwise": "pass", "body": {"messages": MESSAGES}}
PICK = {"id": "picked", "after": "ask", "pick": {"from": "ask", "index": "item.zero"}}
LINE = {"custom_id": "a", "zero": 0}


async def create(client: httpx.AsyncClient, **definition: Any) -> str:
    made = await client.post("/v1/pipelines", json={"name": "x", "completion_window": "24h"} | definition)
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


async def run(database: Database, settings: Settings) -> None:
    await feed(database, settings)
    await answer_all(database)
    await feed(database, settings)
    await answer_all(database)


async def hides(client: httpx.AsyncClient, path: str) -> None:
    shown = await client.get(path)
    assert shown.status_code == 200, shown.text
    assert "planted" not in shown.text, path
    assert REFUSAL in shown.text, path


async def test_no_stage_shows_a_call_that_a_rule_withholds(
    client: httpx.AsyncClient, database: Database, settings: Settings, apply: Apply
) -> None:
    await apply(DENY)
    pipeline = await create(client, input={"items": [LINE]}, stages=[ASK, PASS, PICK])
    await run(database, settings)
    for stage in (await client.get(f"/v1/pipelines/{pipeline}")).json()["stages"]:
        if stage["id"] == "input":
            continue
        await hides(client, f"/v1/pipelines/{pipeline}/results?stage={stage['id']}")
        batch = (await client.get(f"/v1/batches/{stage['batch']}")).json()
        await hides(client, f"/v1/files/{batch['output_file_id']}/content")


async def test_a_copy_shows_no_call_that_its_source_does_not_show(
    client: httpx.AsyncClient, database: Database, settings: Settings, apply: Apply
) -> None:
    await apply(DENY)
    sent = await client.post(
        "/client/v4/accounts/acme/ai/run/" + MODEL, params={"queueRequest": "true"}, json={"requests": [CHAT]}
    )
    assert sent.status_code == 200, sent.text
    await answer_all(database)
    [batch] = (await client.get("/v1/batches")).json()["data"]
    passed = PASS | {"id": "passed"}
    pipeline = await create(client, input={"batch": batch["id"]}, stages=[passed])
    await run(database, settings)
    await apply("")
    for stage in ("input", "passed"):
        await hides(client, f"/v1/pipelines/{pipeline}/results?stage={stage}")
