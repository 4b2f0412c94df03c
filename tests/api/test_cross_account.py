"""Every operation of the OpenAPI document with every credential that is not the account's: it sees and changes nothing.

Also within an account: who may not read prompts and answers finds none on any route.
"""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from app.access import operator_tokens, sessions
from app.access.roles import Grant, Role
from app.crypto import secret_key
from app.db.pool import Database
from app.engines.engine_key import door_token
from app.engines.requests import CHAT
from app.queue import pool_status
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.key_scope import KeyRole, KeyScope, networks_of
from testing.fakes.engine import FakeEngine
from tests.api.belongings import BUDGET, WORDS, Belongings, fill, fingerprint
from tests.api.operations import Operation, ask, bodies_with, every_operation, filled, make_key, make_operator
from tests.api.support import BATCHES, MODEL, SUBSCRIPTIONS
from tests.gateway.support import Registry

OTHER = "other"
USED = {"api_key"}  # when a key was used last
ALONE = {"account_id", "model", "verb", "seq", "name"}  # parameters that name nothing of an account, or by its words


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"line_seconds": 0.0})


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    """An engine that a live worker has reported ready, for synchronous requests. The steward has looked at its pool."""
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        async with database.relaxed() as conn:
            await pool_status.write(conn)
        yield engine


@pytest.fixture
async def theirs(client: httpx.AsyncClient, database: Database, settings: Settings, engine: FakeEngine) -> Belongings:
    return await fill(client, database, settings)


async def strangers(settings: Settings, database: Database) -> dict[str, str]:
    """Live keys of another account, by what they may do."""
    scopes = {str(role): KeyScope(role) for role in KeyRole}
    scopes["restore"] = KeyScope(KeyRole.ADMIN, restore=True)
    scopes["models"] = KeyScope(KeyRole.ADMIN, models=frozenset({MODEL}))
    scopes["no models"] = KeyScope(KeyRole.ADMIN, models=frozenset())
    scopes["endpoints"] = KeyScope(KeyRole.ADMIN, endpoints=frozenset({CHAT}))
    scopes["networks"] = KeyScope(KeyRole.ADMIN, networks=networks_of(["127.0.0.0/8"]))
    return {name: await make_key(settings, database, OTHER, scope) for name, scope in scopes.items()}


async def dead(settings: Settings, database: Database) -> dict[str, str]:
    """What opens nothing: keys of the account itself that no longer work, and credentials of other kinds."""
    found = {name: await make_key(settings, database, "acme", KeyRole.ADMIN) for name in ("expired", "revoked", "old")}
    network = KeyScope(KeyRole.ADMIN, networks=networks_of(["10.0.0.0/8"]))
    found["of another network"] = await make_key(settings, database, "acme", network)
    ids = {name: key.split("_")[2] for name, key in found.items()}
    async with database.transaction() as conn:
        await conn.execute("update api_key set expires_at = now() where key_id = %s", (ids["expired"],))
        assert await tenants.revoke_key(conn, ids["revoked"])
        await tenants.rotate_key(conn, secret_key(settings), ids["old"], timedelta(0))
        link = await sessions.invite(conn, Grant("ann", Role.ADMIN, await tenants.find_tenant(conn, "acme")))
        session = await sessions.begin(conn, link)
        token_id, found["expired operator"] = await operator_tokens.create(
            conn, secret_key(settings), "bob", Role.OPERATOR, timedelta(days=1), "test"
        )
        await conn.execute("update operator_token set expires_at = now() where token_id = %s", (token_id,))
    assert session
    live = await make_key(settings, database, "acme", KeyRole.ADMIN)
    forged = f"sk_op_{live.removeprefix('sk_sw_')}"
    return {
        **found,
        **{"none": "", "junk": "x" * 60, "forged operator": forged, "wrong secret": live[:-1] + "!"},
        **{"session": session, "invitation": link, "door": door_token(secret_key(settings), "a")},
    }


async def test_no_role_of_another_account_sees_or_changes_anything(
    client: httpx.AsyncClient, settings: Settings, database: Database, theirs: Belongings
) -> None:
    keys = await strangers(settings, database)
    before, wrong, asked = await fingerprint(database, "acme"), [], 0
    assert len(before) > 15
    for operation in every_operation():
        for account in ("acme", OTHER) if "{account_id}" in operation.path else ("acme",):
            path = filled(operation.path, {**theirs.values, "key_id": "0" * 12, "account_id": account})
            for name, key in keys.items():
                answer = await ask(client, operation, path, key)
                asked += 1
                if problem := _opened(operation, answer, account) or _shown(theirs, answer, path):
                    wrong.append((name, operation.method, path, answer.status_code, problem))
    assert wrong == []
    assert asked > 1_000
    assert await fingerprint(database, "acme") == before
    assert (await client.get(f"{BATCHES}/{theirs.values['request_id']}")).status_code == 200


def _opened(operation: Operation, answer: httpx.Response, account: str) -> str:
    """What a key of another account got of this answer that it may not have; empty: nothing."""
    named = set(re.findall(r"{(\w+)}", operation.path))
    if answer.status_code >= 500:
        return "fails"
    if operation.security == "operator":
        return "" if answer.status_code == 401 else "opened"
    if "account_id" in named and account == "acme":
        return "" if answer.status_code == 403 else "opened"
    return "found" if named - ALONE and answer.status_code < 400 else ""


def _shown(theirs: Belongings, answer: httpx.Response, path: str) -> set[str]:
    """What an answer shows that it may not. The metrics name budgets."""
    return set(theirs.shown_by(answer.text, path)) - ({BUDGET} if path == "/metrics" else set())


async def test_what_is_no_live_credential_opens_no_route(
    client: httpx.AsyncClient, settings: Settings, database: Database, theirs: Belongings
) -> None:
    tokens = await dead(settings, database)
    tokens |= {f"live {role}": await make_operator(settings, database, role) for role in (Role.OPERATOR, Role.AUDITOR)}
    before, wrong = await fingerprint(database, "acme", without=USED), []
    for operation in every_operation():
        path = filled(operation.path, {**theirs.values, "key_id": "0" * 12})
        for name, token in tokens.items():
            if name.startswith("live") and operation.security == "operator":
                continue
            answer = await ask(client, operation, path, token)
            refused = {403} if name == "of another network" and operation.security == "key" else {401}
            expected = {200} if operation.security == "none" else refused
            if answer.status_code not in expected or _shown(theirs, answer, path):
                wrong.append((name, operation.method, path, answer.status_code, answer.text[:200]))
    assert wrong == []
    assert await fingerprint(database, "acme", without=USED) == before


async def test_an_id_of_another_account_reads_as_one_that_does_not_exist(
    client: httpx.AsyncClient, settings: Settings, database: Database, theirs: Belongings
) -> None:
    key = await make_key(settings, database, OTHER, KeyRole.ADMIN)
    of_other = {"account_id": OTHER, "key_id": "0" * 12}
    unknown = {name: _altered(value) if name not in ALONE else value for name, value in theirs.values.items()}
    different = []
    for operation in every_operation():
        if operation.security != "key" or not set(re.findall(r"{(\w+)}", operation.path)) - ALONE:
            continue
        answers = []
        for values in (theirs.values, unknown):
            path = filled(operation.path, {**values, **of_other})
            answers.append(_comparable(await ask(client, operation, path, key), values))
        if answers[0] != answers[1]:
            different.append((operation.method, operation.path, *answers))
    assert different == []


async def test_ids_of_another_account_open_nothing_in_a_query_or_a_body(
    client: httpx.AsyncClient, settings: Settings, database: Database, theirs: Belongings
) -> None:
    key = await make_key(settings, database, OTHER, KeyRole.ADMIN)
    own = theirs.values | {"account_id": OTHER, "key_id": "0" * 12}
    ids = [value for name, value in theirs.values.items() if len(value) > 5 and name not in ALONE]
    before, wrong, asked = await fingerprint(database, "acme"), [], 0
    for operation in every_operation():
        if operation.security != "key" or "/ai/v1/" in operation.path:
            continue
        path = filled(operation.path, own)
        for value in ids:
            queries = [replace(operation, query={**operation.query, name: value}) for name in operation.free]
            bodies = [replace(operation, body=body) for body in bodies_with(operation.body, value)]
            for case in (*queries, *bodies):
                answer = await ask(client, case, path, key)
                asked += 1
                shown = set(theirs.shown_by(answer.text, path)) - {value}
                if shown or answer.status_code >= 500:
                    wrong.append((case.method, path, case.query, case.body, answer.status_code, shown))
    assert wrong == []
    assert asked > 500
    assert await fingerprint(database, "acme") == before


def _altered(value: str) -> str:
    """A value of the same form."""
    return value[:-1] + ("1" if value[-1] != "1" else "2")


def _comparable(answer: httpx.Response, values: Mapping[str, str]) -> tuple[int, str]:
    text = answer.text
    for name, value in sorted(values.items(), key=lambda pair: -len(pair[1])):
        text = text.replace(value, f"<{name}>") if len(value) > 5 else text
    return answer.status_code, text


async def test_a_delivery_of_another_account_is_not_found_below_ones_own_subscription(
    client: httpx.AsyncClient, settings: Settings, database: Database, theirs: Belongings
) -> None:
    key = await make_key(settings, database, OTHER, KeyRole.ADMIN)
    headers = {"authorization": f"Bearer {key}"}
    webhook = {"type": "webhook", "url": "http://127.0.0.1:9/hook"}
    wanted = {"name": "mine", "source": {"type": "workersAi.model"}, "destination": webhook, "events": ["batch.queued"]}
    below = SUBSCRIPTIONS.replace("acme", OTHER)
    own = (await client.post(below, json=wanted, headers=headers)).json()["result"]["id"]
    address = f"{below}/{own}/deliveries/{theirs.values['delivery_id']}"
    unknown = f"{below}/{own}/deliveries/123456"
    assert (await client.get(address, headers=headers)).status_code == 404
    again, never = [await client.post(f"{each}/redeliver", headers=headers) for each in (address, unknown)]
    assert (again.status_code, again.text) == (never.status_code, never.text)
    assert again.status_code >= 400


async def test_who_may_not_read_bodies_finds_no_word_of_one_on_any_route(
    client: httpx.AsyncClient, settings: Settings, database: Database, theirs: Belongings
) -> None:
    viewer = await make_key(settings, database, "acme", KeyRole.VIEWER)
    operators = [await make_operator(settings, database, role) for role in (Role.OPERATOR, Role.AUDITOR)]
    shown, seen = [], 0
    for operation in every_operation():
        path = filled(operation.path, {**theirs.values, "key_id": "0" * 12})
        readers = {"key": [viewer], "operator": operators if operation.method == "get" else []}
        for token in readers.get(operation.security, [""]):
            answer = await ask(client, operation, path, token)
            seen += answer.status_code == 200
            if WORDS in answer.text:
                shown.append((operation.method, path, answer.text[:300]))
    assert shown == []
    assert seen > 60
