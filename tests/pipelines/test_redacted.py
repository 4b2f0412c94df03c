"""Claims about values behind placeholders in pipelines: whatever a stage asks, tests, cuts or groups, they stay there."""

import base64
from typing import Any

import httpx
import orjson
import pytest

from app.db.pool import Database
from app.policy.vaults import OF_FILE, Vaults, of_item
from app.settings import Settings
from tests.api.support import MODEL
from tests.api.test_redaction import Apply, apply, reader
from tests.pipelines.outside import feed, rows

__all__ = ["apply", "reader"]
MAIL, OTHER, CARD = "alice.secret@clinic.example", "bob.secret@clinic.example", "4111111111111111"
TEXT = f"{CARD} {MAIL} says hello"
RULE = '[[rule]]\nid = "hide"\nsensitive = "tokenize"\n'


@pytest.fixture(autouse=True)
async def policy(apply: Apply) -> None:
    await apply(RULE)


async def create(client: httpx.AsyncClient, items: list[dict[str, Any]], *stages: dict[str, Any]) -> str:
    body = {"name": "x", "completion_window": "24h", "input": {"items": items}, "stages": stages}
    made = await client.post("/v1/pipelines", json=body)
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


def outside(name: str = "x", **more: Any) -> dict[str, Any]:
    return {"id": name, "external": {"timeout": "1h"}, **more}


async def waiting(
    client: httpx.AsyncClient, database: Database, settings: Settings, pipeline: str
) -> list[dict[str, Any]]:
    await feed(database, settings)
    found = await client.get(f"/v1/pipelines/{pipeline}/waiting?limit=100")
    assert found.status_code == 200, found.text
    assert not any(value in found.text for value in (MAIL, OTHER, CARD, "secret@"))
    return list(found.json()["data"])


async def values_of(database: Database, settings: Settings, seq: int = 0) -> dict[str, str]:
    """What the placeholders of an item of the last stage stand for."""
    [(batch_id, tenant_id, vault)] = await rows(
        database,
        "select batch_id, tenant_id, vault from item_payload join batch using (batch_id) where seq = %s"
        " order by batch_id desc limit 1",
        seq,
    )
    return dict(
        Vaults(settings.secret_key.get_secret_value().encode(), tenant_id).opened(vault, of_item(batch_id, seq))
    )


async def test_no_template_shows_a_value_and_none_cuts_a_placeholder(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    cuts = {f"c{most}": f"{{{{item.text|{most}}}}}" for most in range(1, len(TEXT))}
    whole = dict.fromkeys(("whole", "response_format", "guided_regex"), "{{item.text}}")
    pipeline = await create(client, [{"custom_id": "a", "text": TEXT}], outside(body=cuts | whole))
    [item] = await waiting(client, database, settings, pipeline)
    hidden = "[CARD_1] [EMAIL_1] says hello"
    assert {item["body"][name] for name in whole} == {hidden}
    for most in range(1, len(hidden)):
        kept = item["body"][f"c{most}"].partition(" […cut")[0]
        assert hidden.startswith(kept)
        assert kept.count("[") == kept.count("]")
    assert set((await values_of(database, settings)).values()) == {CARD, MAIL}


async def test_no_condition_tells_whether_a_guess_of_a_value_is_right(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    lines = [{"custom_id": "a", "text": TEXT}]
    for guess in ("alice.secret@clin", "secret", "4111"):
        stage = outside(when=f"{orjson.dumps(guess).decode()} in item.text", body={"p": "yes"})
        assert await waiting(client, database, settings, await create(client, lines, stage)) == []
    known = outside(when='"[EMAIL_1] says" in item.text', body={"p": "yes"})
    assert len(await waiting(client, database, settings, await create(client, lines, known))) == 1


@pytest.mark.parametrize("field", ["response_format", "guided_json", "tools", "functions", "text"])
async def test_a_line_has_no_field_that_is_not_searched(
    client: httpx.AsyncClient, database: Database, settings: Settings, field: str
) -> None:
    deep = {"type": "x", "format": {"a": TEXT}, "parameters": {"a": TEXT}, "schema": [TEXT]}
    await create(client, [{"custom_id": "a", field: deep}], outside(body={"p": "x"}))
    [(body,)] = await rows(database, "select body from item_payload where seq = 0 order by batch_id limit 1")
    assert b"secret@" not in body
    assert CARD.encode() not in body


async def test_what_a_pack_joins_has_one_mapping(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    lines = [{"custom_id": f"{n}", "mail": mail} for n, mail in enumerate((MAIL, OTHER, MAIL, "[EMAIL_1]"))]
    pack = outside("x", pack={"size": 4}, body={"all": "{{parts.item.mail}}"})
    [item] = await waiting(client, database, settings, await create(client, lines, pack))
    names = item["body"]["all"].split()
    assert names == ["[EMAIL_1]", "[EMAIL_2]", "[EMAIL_1]", "[LITERAL_1]"]
    values = await values_of(database, settings)
    assert [values[name] for name in names] == [MAIL, OTHER, MAIL, "[EMAIL_1]"]


async def test_a_pack_by_value_has_those_of_equal_values_and_shows_none(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    lines = [{"custom_id": f"{n}", "mail": mail} for n, mail in enumerate((MAIL, OTHER, MAIL))]
    pack = outside("x", pack={"by": "item.mail"}, body={"all": "{{parts.item.mail}}", "count": "{{count}}"})
    found = await waiting(client, database, settings, await create(client, lines, pack))
    assert sorted(item["body"]["count"] for item in found) == ["1", "2"]


async def test_the_vault_of_a_file_line_opens_in_no_inline_item(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    await create(client, [{"custom_id": "a", "text": MAIL}], outside(body={"p": "x"}))
    [(tenant_id,)] = await rows(database, "select tenant_id from tenant where account_id = 'acme'")
    safe = Vaults(settings.secret_key.get_secret_value().encode(), tenant_id)
    vault = base64.b64encode(safe.sealed({"[EMAIL_1]": MAIL}, OF_FILE)).decode()
    stolen = await create(
        client, [{"custom_id": "b", "text": "[EMAIL_1]", "vault": vault}], outside(body={"t": "{{item.text}}"})
    )
    [item] = await waiting(client, database, settings, stolen)
    assert MAIL not in (await values_of(database, settings)).values()
    assert item["body"]["t"] == "[LITERAL_1]"


async def test_an_answer_from_outside_is_redacted_and_the_next_stage_has_its_values(
    client: httpx.AsyncClient, reader: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    lines = [{"custom_id": "a", "text": MAIL}]
    messages = [{"role": "user", "content": "{{json.mail}} {{json.other}} {{item.text}}"}]
    ask = {"id": "ask", "after": "x", "model": MODEL, "body": {"messages": messages}}
    pipeline = await create(client, lines, outside(body={"of": "{{item.text}}"}), ask)
    [item] = await waiting(client, database, settings, pipeline)
    said = {"answer": {"mail": MAIL, "other": OTHER, "response_format": {"card": CARD}}}
    path = f"/v1/pipelines/{pipeline}/items/{item['id']}/answer"
    for _ in range(2):
        answered = await client.post(path, json=said)
        assert answered.status_code == 200, answered.text
    other = await client.post(path, json={"answer": {"mail": OTHER}})
    assert other.status_code == 409, other.text
    stored = await rows(database, "select body from item_result")
    assert not any(value.encode() in bytes(body) for (body,) in stored for value in (MAIL, OTHER, CARD))
    hidden = (await client.get(f"/v1/pipelines/{pipeline}/results?stage=x")).text
    shown = (await reader.get(f"/v1/pipelines/{pipeline}/results?stage=x")).text
    assert [value in hidden for value in (MAIL, OTHER, CARD)] == [False] * 3
    assert [value in shown for value in (MAIL, OTHER, CARD)] == [True] * 3
    await feed(database, settings)
    values = await values_of(database, settings)
    [(body,)] = await rows(database, "select body from item_payload order by batch_id desc limit 1")
    names = orjson.loads(body)["messages"][0]["content"].split()
    assert [values[name] for name in names] == [MAIL, OTHER, MAIL]
