"""The playground asks both ways with a key of its own, and says what went wrong."""

import html
from types import SimpleNamespace
from typing import Any

import pytest

from app import processes
from app.access.roles import Role
from app.console.views import new_batch, playground
from app.db.pool import Database
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
