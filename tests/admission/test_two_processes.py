"""A policy is followed by every process within a second; counted with two real API processes."""

import asyncio
import time

import httpx

from app.db.pool import Database
from app.engines import catalogue
from app.policy import in_force
from app.policy import service as policies
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, eventually
from tests.api.real_process import api
from tests.timing import note

CHAT = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "hello"}]}


async def until(client: httpx.AsyncClient, url: str, status: int) -> None:
    """Wait until the process at `url` answers so."""

    async def answers() -> bool:
        return (await client.post(f"{url}/v1/chat/completions", json=CHAT)).status_code == status

    await eventually(answers, f"{status} from {url}")


async def test_two_processes_follow_a_new_policy_within_a_second_and_a_rollback_too(
    settings: Settings, database: Database, key: str
) -> None:
    models = catalogue.load(settings.models_file)
    quick = settings.model_copy(update={"line_seconds": 0.01})
    headers = {"authorization": f"Bearer {key}"}
    async with (
        api(quick) as (one, _),
        api(quick) as (two, _),
        httpx.AsyncClient(headers=headers, timeout=LIMIT_SECONDS) as client,
    ):
        await asyncio.gather(until(client, one, 503), until(client, two, 503))  # no engine, and no rule
        for text, status in (('[[rule]]\nid = "no"\ndeny = true\n', 403), ("", 503)):
            async with database.transaction() as conn:
                await policies.apply(conn, text, models, "test")
            begun = time.monotonic()
            await asyncio.gather(until(client, one, status), until(client, two, status))
            note(f"two API processes followed a policy after {time.monotonic() - begun:.2f} s")
    assert in_force.REFRESH_SECONDS <= 0.5  # between two looks, so that a second is enough
