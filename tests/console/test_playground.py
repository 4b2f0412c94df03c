"""The playground asks both ways with a key of its own, and says what went wrong."""

import html
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from app import processes
from app.access.roles import Role
from app.console import playground as asking
from app.console.playground import Ask, Outcome
from app.console.views import new_batch, playground
from app.db.pool import Database
from app.engines import catalogue
from app.engines import service as engines
from app.settings import Settings
from testing.waiting import eventually
from tests.console.conftest import SignIn

GIVEN = {"model": "smollm2-135m-instruct", "prompt": "Hello", "max_tokens": "5"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Nobody listens on its port, whatever else runs on this machine."""
    return settings.model_copy(update={"port": processes.free_port()})


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.AUDITOR])
async def test_who_may_not_see_answers_cannot_use_it(sign_in: SignIn, role: Role) -> None:
    client = await sign_in(role)
    assert (await client.get("/console/playground")).status_code == 403
    assert (await client.post("/console/playground", data=GIVEN)).status_code == 403


@pytest.mark.parametrize(
    "wrong",
    [{"model": "nothing"}, {"prompt": "  "}, {"max_tokens": "many"}, {"max_tokens": "0"}, {"max_tokens": "5000"}],
)
async def test_what_cannot_be_asked_is_refused_with_its_field(sign_in: SignIn, wrong: dict[str, str]) -> None:
    answer = await (await sign_in(Role.ADMIN)).post("/console/playground", data=GIVEN | wrong)
    assert answer.status_code == 400
    assert next(iter(wrong)) in answer.text


async def test_without_an_api_both_say_so_and_the_key_is_revoked(
    sign_in: SignIn, settings: Settings, database: Database
) -> None:
    answer = await (await sign_in(Role.ADMIN)).post("/console/playground", data=GIVEN)
    assert answer.text.count("The API does not answer") == 2
    async with database.relaxed() as conn:
        rows = await (await conn.execute("select revoked_at is not null from api_key")).fetchall()
    assert rows == [(True,)]


BUDGET = "Budget 'b' is used up: 5 USD of 5 USD spent; it is renewed on Tue 1 Dec 00:00 UTC"
ASK = Ask("acme", GIVEN["model"], "Hello", 5)


async def outcomes(answer: Callable[[httpx.Request], httpx.Response]) -> list[Outcome]:
    """How both requests go at an API that answers so."""
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://api") as client:
        return [await asking._guarded(call, client, ASK) for call in (asking._at_once, asking._queued)]


@pytest.mark.parametrize("status", [400, 401, 403, 429, 503])
async def test_a_refusal_has_the_words_of_the_api_and_says_when_to_try_again(settings: Settings, status: int) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        envelope = {"errors": [{"code": 1, "message": BUDGET}]}
        body = {"error": {"message": BUDGET}} if "chat" in request.url.path else envelope
        return httpx.Response(status, json=body, headers={"retry-after": "7200"} if status in (429, 503) else {})

    shown = playground.answered(catalogue.load(settings.models_file), [], ASK, *await outcomes(answer))
    again = " Try again in 2\u00a0h." if status in (429, 503) else ""
    assert [each["error"] for each in shown["outcomes"]] == [f"{BUDGET}.{again}"] * 2
    assert [each["facts"] for each in shown["outcomes"]] == [[], []]
    assert (shown["title"], shown["rest"]) == ("Neither was answered", "")


async def test_a_queued_request_that_failed_and_one_that_waits_for_money_say_so(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = httpx.Response(500, json={"result": {"responses": [{"success": False, "error": {"message": "too long"}}]}})
    waits = httpx.Response(
        200, json={"result": {"status": "queued", "waiting": {"message": "budget b has 5 USD spent"}}}
    )
    monkeypatch.setattr(asking, "PATIENCE_SECONDS", 0.4)
    said = []
    for polled in (failed, waits):

        def answer(request: httpx.Request, polled: httpx.Response = polled) -> httpx.Response:
            if b"request_id" in request.content:
                return polled
            return httpx.Response(200, json={"result": {"request_id": "1"}})

        _, queued = await outcomes(answer)
        [_, shown] = playground.answered(catalogue.load(settings.models_file), [], ASK, Outcome(), queued)["outcomes"]
        said.append(shown["error"] or shown["waits_for"])
    assert said == ["too long.", "It still waits: budget b has 5 USD spent."]


def test_a_model_that_another_ones_engine_answers_is_served() -> None:
    served, alias, away = "smollm2-135m-instruct", "@cf/openai/gpt-oss-120b", "other"
    models: Any = SimpleNamespace(
        models={name: SimpleNamespace(name=name, served=engine, task="text-generation")
                for name, engine in ((away, away), (alias, served), (served, served))}
    )  # fmt: skip
    shown = playground.empty(models, [served])["models"]
    assert shown == [(served, served), (alias, alias), (away, f"{away} (no engine serves it now)")]


async def test_models_are_offered_once_an_engine_has_served_them(sign_in: SignIn, database: Database) -> None:
    client = await sign_in(Role.ADMIN)
    assert "No engine has served" in (await client.get("/console/playground")).text
    async with database.durable() as conn:
        pool = await engines.ensure_pool(conn, GIVEN["model"])
        await conn.execute(
            "insert into engine (name, pool_id, url, mode) values ('e', %s, 'http://x', 'managed')", [pool]
        )

    async def offers() -> bool:
        return f'<option value="{GIVEN["model"]}"' in (await client.get("/console/playground")).text

    await eventually(offers)
    assert f'"model": "{GIVEN["model"]}"' in html.unescape((await client.get(new_batch.PATH)).text)
