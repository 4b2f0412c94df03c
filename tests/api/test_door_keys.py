"""Claims about the route where an engine's door asks for keys and limits."""

from typing import Any

import httpx
import pytest

from app.crypto import secret_key
from app.db.pool import Database
from app.engines.engine_key import door_token, engine_of_door
from app.metering import reports
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.api_key import ApiKey
from app.tenants.key_scope import KeyLimits
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.api.support import RUN
from tests.gateway.support import Registry
from workers.engine.door.keys import MOST_AT_ONCE, PATH

pytestmark = pytest.mark.usefixtures("one_minute")


@pytest.fixture
def door(settings: Settings) -> dict[str, str]:
    return {"authorization": f"Bearer {door_token(secret_key(settings), 'engine-0')}"}


async def key(settings: Settings, database: Database, limit: KeyLimits) -> ApiKey:
    async with database.transaction() as conn:
        return await tenants.create_key(conn, secret_key(settings), "acme", "limited", None, limit)


async def ask(client: httpx.AsyncClient, door: dict[str, str], *questions: dict[str, Any]) -> Any:
    answer = await client.post(PATH, json={"keys": list(questions)}, headers=door)
    assert answer.status_code == 200, answer.text
    return answer.json()["keys"]


@pytest.mark.parametrize(
    "shown", ["", "Bearer engine-0.00", "Bearer .", "Bearer x", "Basic engine-0.00", "Bearer \xff.1"]
)
async def test_only_a_door_may_ask(client: httpx.AsyncClient, shown: str) -> None:
    answer = await client.post(PATH, json={"keys": []}, headers={"authorization": shown.encode("latin-1")})  # type: ignore[dict-item]
    assert answer.status_code == 401


def test_the_token_of_one_engine_is_not_that_of_another(settings: Settings) -> None:
    secret = secret_key(settings)
    token = door_token(secret, "engine.with.dots")
    assert engine_of_door(secret, token) == "engine.with.dots"
    assert engine_of_door(secret, token.replace("engine.with", "engine-with")) is None
    assert engine_of_door(b"another secret of thirty-two bytes", token) is None
    assert secret.hex() not in token


async def test_a_door_learns_account_limits_and_revocation(
    client: httpx.AsyncClient, door: dict[str, str], settings: Settings, database: Database
) -> None:
    made = await key(settings, database, KeyLimits(requests=5))
    known = {"key_id": f"{made.key_id}.0", "account": "acme", "requests_per_minute": 5, "tokens_per_minute": None}
    by_token, nobody, by_id = await ask(
        client, door, {"token": str(made)}, {"token": f"{made}x"}, {"key_id": made.key_id}
    )
    assert by_token.items() >= known.items()
    assert by_id.items() >= known.items()
    assert nobody == {"account": None}
    async with database.transaction() as conn:
        await tenants.revoke_key(conn, made.key_id)
    assert await ask(client, door, {"key_id": made.key_id}) == [{"account": None}]


async def test_what_a_door_let_in_counts_at_the_gateway_and_the_other_way_round(
    client: httpx.AsyncClient, door: dict[str, str], settings: Settings, database: Database
) -> None:
    made = await key(settings, database, KeyLimits(requests=4))
    headers = {"authorization": f"Bearer {made}"}
    say = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 10}
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        assert (await client.post(RUN, json=say, headers=headers)).status_code == 200
        [first] = await ask(client, door, {"token": str(made)})
        assert (first["requests"], 1 <= first["seconds"] <= 60) == (1, True)
        [second] = await ask(client, door, {"key_id": made.key_id, "requests": 7, "tokens": 100})
        assert second["requests"] == 8
        assert second["tokens"] >= 100
        assert (await client.post(RUN, json=say, headers=headers)).status_code == 429


async def test_a_key_without_a_limit_is_not_counted(
    client: httpx.AsyncClient, door: dict[str, str], settings: Settings, database: Database
) -> None:
    made = await key(settings, database, KeyLimits())
    [answer] = await ask(client, door, {"key_id": made.key_id, "requests": 7, "tokens": 100})
    assert "requests" not in answer


async def test_what_a_door_let_through_is_in_the_ledger_of_its_keys_account(
    client: httpx.AsyncClient, door: dict[str, str], settings: Settings, database: Database
) -> None:
    made = await key(settings, database, KeyLimits())
    answered = {"answered": 2, "prompt_tokens": 30, "completion_tokens": 12}
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        await ask(client, door, {"key_id": made.key_id, **answered}, {"key_id": "unknown", **answered})
    [row] = await eventually(lambda: _usage(client))
    found = {
        name: row[name] for name in ("kind", "key", "model", "requests", "ok", "prompt_tokens", "completion_tokens")
    }
    numbers = {"requests": 2, "ok": 2, "prompt_tokens": 30, "completion_tokens": 12}
    assert found == {"kind": "door", "key": made.key_id, "model": "smollm2-135m-instruct", **numbers}
    assert row["cost"] > 0
    async with database.relaxed() as conn:
        assert await reports.check(conn) == []


async def _usage(client: httpx.AsyncClient) -> Any:
    answer = await client.get("/client/v4/accounts/acme/ai/usage", params={"by": "kind,key,model"})
    return answer.json()["result"]["usage"]


@pytest.mark.parametrize(
    "keys", [None, {}, [7], [{"requests": -1}], [{"key_id": "x" * 65}], [{}] * (MOST_AT_ONCE + 1), [{"more": 1}]]
)
async def test_a_wrong_question_is_refused(client: httpx.AsyncClient, door: dict[str, str], keys: Any) -> None:
    assert (await client.post(PATH, json={"keys": keys}, headers=door)).status_code == 400


async def test_the_route_is_not_in_the_document(client: httpx.AsyncClient) -> None:
    assert PATH not in (await client.get("/openapi.json")).json()["paths"]
