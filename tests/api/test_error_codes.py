"""Every code that the API answers: one way to provoke each over HTTP, its status, and the fields that clients use.

Codes and statuses are Cloudflare's where it documents them; 3021, 5006, 7001, 7003 and 10000 are as its clients meet them.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import errors
from app.admission import quotas
from app.crypto import secret_key
from app.db.pool import Database
from app.engines import catalogue
from app.policy import service as policies
from app.settings import DEMO_MODELS, Settings
from app.tenants import service as tenants
from app.tenants.key_scope import KeyLimits
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.api.in_process import running
from tests.api.support import RUN, SUBMIT, SUBSCRIPTIONS
from tests.gateway.support import Registry

MODEL = "smollm2-135m-instruct"
SAY = {"messages": [{"role": "user", "content": "hello"}]}
JSON = {"content-type": "application/json"}
UNQUEUED = """
[models."unqueued"]
serves = "smollm2-135m-instruct"
capabilities = ["json_mode"]
"""


@dataclass
class Scene:
    """The objects that a case can use. `url` is that of one synchronous request, `say` its body."""

    app: ASGIApp
    client: httpx.AsyncClient
    engine: FakeEngine
    settings: Settings
    database: Database
    url: str
    say: dict[str, Any]

    async def post(self, **changes: Any) -> httpx.Response:
        """The request with these fields changed."""
        return await self.client.post(self.url, json={**self.say, **changes})

    async def rule(self, **rule: Any) -> httpx.Response:
        """The request, while the engine does this."""
        self.engine.script(rule)
        return await self.post()


Provoke = Callable[[Scene], Awaitable[httpx.Response]]


@dataclass(frozen=True)
class Case:
    """One way to one code. `again`: whether clients shall try once more; `later`: not soon, but it is said when. `synchronous`:
    OpenAI's routes have it too, under `openai_status` if that is another.
    """

    code: int
    status: int
    how: str
    provoke: Provoke
    again: bool = False
    later: bool = False
    synchronous: bool = True
    openai_status: int | None = None


async def _unknown_model(scene: Scene) -> httpx.Response:
    return await scene.client.post(scene.url.replace(MODEL, "nobody"), json={**scene.say, "model": "nobody"})


async def _no_body(scene: Scene) -> httpx.Response:
    return await scene.client.post(scene.url, content=b"", headers=JSON)


async def _foreign_type(scene: Scene) -> httpx.Response:
    return await scene.client.post(scene.url, content=b"a,b", headers={"content-type": "text/csv"})


async def _limited(scene: Scene, limits: KeyLimits) -> httpx.Response:
    """The answer to a key's third request: even if a minute ended among them, two are of the same one."""
    async with scene.database.transaction() as conn:
        key = await tenants.create_key(conn, secret_key(scene.settings), "acme", "limited", None, limits)
    headers = {"authorization": f"Bearer {key}"}
    answers = [await scene.client.post(scene.url, json=scene.say, headers=headers) for _ in range(3)]
    return answers[-1]


async def _ruled(scene: Scene, actions: str) -> httpx.Response:
    """The answer under a policy of one rule."""
    async with scene.database.transaction() as conn:
        models = catalogue.load(scene.settings.models_file)
        await policies.apply(conn, f'[[rule]]\nid = "one"\n{actions}\n', models, "test")
    await scene.app.state.parts.admission.policy.renew()  # type: ignore[attr-defined]
    return await scene.post()


async def _over_quota(scene: Scene) -> httpx.Response:
    async with scene.database.transaction() as conn:
        await quotas.change(conn, "acme", quotas.Quota(open_items=0))
        key = str(
            await tenants.create_key(conn, secret_key(scene.settings), "acme", "fresh")
        )  # no process has it cached
    headers = {"authorization": f"Bearer {key}"}
    return await scene.client.post(SUBMIT, json={"requests": [{"prompt": "x"}]}, headers=headers)


async def _no_money(scene: Scene) -> httpx.Response:
    put = await scene.client.put("/client/v4/accounts/acme/ai/budgets/b", json={"max_tokens": 100_000})
    assert put.status_code == 200
    async with scene.database.durable() as conn:
        await conn.execute("update budget set spent = max")
    return await eventually(
        scene.post, until=lambda answer: answer.status_code != 200
    )  # the budgets are read once a second


async def _no_engine(scene: Scene) -> httpx.Response:
    async with scene.database.durable() as conn:
        await conn.execute("update engine set state = 'down'")
    return await scene.post()


async def _no_room(scene: Scene) -> httpx.Response:
    """The engine's only place is taken by a request that hangs."""
    scene.engine.script({"mode": "hang"})
    first = asyncio.create_task(scene.post())
    await eventually(lambda: scene.engine.running)
    answer = await scene.post(options={"rejectIfBusy": True})
    first.cancel()
    await asyncio.wait({first})
    return answer


async def _hangs_up(scene: Scene) -> httpx.Response:
    """The client disconnects after the body is sent; the answer that it would have got."""
    scene.engine.script({"mode": "hang"})
    headers = scene.client.headers
    transport = httpx.ASGITransport(app=_Impatient(scene.app))
    async with httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as client:
        return await client.post(scene.url, json=scene.say)


class _Impatient:
    """An application whose client disconnects as soon as the body is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = False

        async def heard() -> Message:
            nonlocal read
            if read:
                return {"type": "http.disconnect"}
            message = await receive()
            read = not message.get("more_body")
            return message

        await self._app(scope, heard, send)


async def _no_key(scene: Scene) -> httpx.Response:
    del scene.client.headers["authorization"]
    return await scene.post()


async def _foreign_account(scene: Scene) -> httpx.Response:
    return await scene.client.post(scene.url.replace("/acme/", "/other/"), json=scene.say)


async def _unqueued(scene: Scene) -> httpx.Response:
    return await scene.client.post(SUBMIT.replace(MODEL, "unqueued"), json={"requests": [SAY]})


async def _unknown_batch(scene: Scene) -> httpx.Response:
    return await scene.client.post(RUN, json={"request_id": str(uuid.uuid4())})


async def _unknown_subscription(scene: Scene) -> httpx.Response:
    return await scene.client.get(f"{SUBSCRIPTIONS}/{uuid.uuid4()}")


CASES = [
    Case(404, 404, "there is no such subscription", _unknown_subscription, synchronous=False),
    Case(3003, 400, "a body is missing", _no_body),
    Case(3003, 415, "the body is of another type", _foreign_type),
    Case(3006, 413, "the body is too large", lambda scene: scene.post(user="x" * (1 << 20))),
    Case(3007, 408, "the engine takes too long", lambda scene: scene.rule(mode="hang")),
    Case(3008, 408, "the caller hangs up", _hangs_up),
    Case(3021, 429, "the key has used up its minute", lambda scene: _limited(scene, KeyLimits(requests=1)), again=True),
    Case(3021, 429, "no minute of the key would be enough", lambda scene: _limited(scene, KeyLimits(tokens=1))),
    Case(3023, 403, "a rule of the policy denies it", lambda scene: _ruled(scene, "deny = true")),
    Case(3036, 429, "the account has used up a quota", _over_quota, synchronous=False),
    Case(3036, 429, "a budget has no money left", _no_money, later=True),
    Case(3040, 429, "the engine is busy", lambda scene: scene.rule(mode="status", status=503), again=True),
    Case(3040, 429, "there is no room and the caller is in a hurry", _no_room, again=True),
    Case(3040, 503, "there is no engine", _no_engine, again=True),
    Case(5018, 403, "a rule allows no such model", lambda scene: _ruled(scene, "allow = { models = [] }")),
    Case(5001, 500, "the engine fails", lambda scene: scene.rule(mode="error")),
    Case(5001, 500, "the engine is lost", lambda scene: scene.rule(mode="die")),
    Case(5006, 400, "a field is wrong", lambda scene: scene.post(temperature="hot")),
    Case(5006, 400, "the engine refuses", lambda scene: scene.rule(mode="status", status=400)),
    Case(5007, 400, "nobody knows the model", _unknown_model, openai_status=404),
    Case(7001, 405, "the method is wrong", lambda scene: scene.client.delete(scene.url)),
    Case(7003, 404, "there is no such route", lambda scene: scene.client.post(f"{scene.url}/x".replace("run", "no"))),
    Case(7003, 404, "there is no such batch", _unknown_batch, synchronous=False),
    Case(7003, 404, "there is no such file", lambda scene: scene.client.get("/v1/files/file-1"), synchronous=False),
    Case(8007, 400, "the model cannot be queued", _unqueued, synchronous=False),
    Case(10000, 401, "there is no key", _no_key),
    Case(10000, 403, "the key is another account's", _foreign_account),
]
WAYS = {
    "run": (RUN, SAY),
    "chat": ("/client/v4/accounts/acme/ai/v1/chat/completions", {**SAY, "model": MODEL}),
}
TABLE = [(case, way) for case in CASES for way in WAYS if case.synchronous or way == "run"]


@asynccontextmanager
async def _scene(
    settings: Settings, key: str, database: Database, way: str, engine: FakeEngine
) -> AsyncIterator[Scene]:
    async with running(settings, key) as (app, client):
        yield Scene(app, client, engine, settings, database, *WAYS[way])


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """Short patience everywhere, and a model that cannot be queued."""
    file = tmp_path / "models.toml"
    file.write_text(DEMO_MODELS.read_text() + UNQUEUED)
    changes = {"models_file": file, "request_timeout_seconds": 1, "line_seconds": 0.2, "json_body_mb": 0.5}
    return settings.model_copy(update=changes)


@pytest.mark.parametrize(("case", "way"), TABLE, ids=lambda x: x if isinstance(x, str) else f"{x.code} {x.how}")
async def test_each_code_comes_with_its_status_and_says_whether_to_try_again(
    settings: Settings, key: str, database: Database, case: Case, way: str
) -> None:
    async with FakeEngine() as engine:
        await Registry(database).ready(engine, slots=1)
        async with _scene(settings, key, database, way, engine) as scene:
            answer = await case.provoke(scene)
    body = answer.json()
    [error] = body["errors"]
    status = case.openai_status if way == "chat" and case.openai_status else case.status
    assert (answer.status_code, error["code"]) == (status, case.code), answer.text
    assert (body["success"], body["result"], body["messages"]) == (False, None, [])
    assert error["message"]
    assert answer.headers["x-should-retry"] == ("true" if case.again else "false")
    assert (case.again or case.later) == ("retry-after" in answer.headers)
    assert way == "run" or body["error"]["message"] == error["message"]


def test_no_code_is_left_without_a_case() -> None:
    families = [errors.SlackwaterError]
    for family in families:
        families += family.__subclasses__()
    assert {family.code for family in families} <= {case.code for case in CASES}


def test_what_shall_be_sent_again_without_a_condition_is_sent_again_by_clients() -> None:
    families = [errors.SlackwaterError]
    for family in families:
        families += family.__subclasses__()
    unconditional = [
        family for family in families if family.fix.startswith("Send it again") and " when " not in family.fix
    ]
    assert errors.NoCapacity in unconditional
    # by these statuses, and by name, `x-should-retry` is true
    assert [each for each in unconditional if each.status not in (429, 503) and each is not errors.KeyInUse] == []
