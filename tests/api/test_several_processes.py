"""Claims about an API of several processes, and about several APIs: each request of a caller may reach another one."""

import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from prometheus_client import REGISTRY, Gauge
from prometheus_client.parser import text_string_to_metric_families

from app import processes
from app.crypto import secret_key
from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.key_scope import KeyLimits
from testing.fakes.engine import FakeEngine
from testing.waiting import LIMIT_SECONDS, eventually
from tests.api.real_process import api
from tests.api.support import BATCHES, RUN, SUBMIT, line
from tests.gateway.support import Registry

ONE = {"requests": [{"prompt": "hi"}]}
SAY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 10}


class TakingTurns(httpx.AsyncBaseTransport):
    """A proxy without sticky sessions: each request goes to the next API, by a connection of its own."""

    def __init__(self, urls: list[str]) -> None:
        self._turns = itertools.cycle(httpx.URL(url) for url in urls)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        target = next(self._turns)
        request.url = request.url.copy_with(host=target.host, port=target.port)
        async with httpx.AsyncHTTPTransport() as transport:
            answer = await transport.handle_async_request(request)
            await answer.aread()
        return answer


def client_of(urls: list[str], key: str) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.AsyncClient(
        transport=TakingTurns(urls), base_url="http://proxy", headers=headers, timeout=LIMIT_SECONDS
    )


@asynccontextmanager
async def two_apis(settings: Settings, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose requests go to two APIs in turn."""
    async with api(settings) as (one, _), api(settings) as (two, _), client_of([one, two], key) as client:
        yield client


async def sample(client: httpx.AsyncClient, name: str, **labels: str) -> float:
    page = (await client.get("/metrics")).text
    samples = [each for family in text_string_to_metric_families(page) for each in family.samples]
    [value] = [each.value for each in samples if each.name == name and labels.items() <= each.labels.items()]
    return value


def processes_of(settings: Settings) -> list[int]:
    """The API's processes that serve, without their parent and multiprocessing's helper."""
    found = processes.marked("SLACKWATER_DATA_DIR", str(settings.data_dir))
    return [pid for pid in found if b"spawn_main" in open(f"/proc/{pid}/cmdline", "rb").read()]


@pytest.mark.slow
async def test_whatever_a_caller_does_each_of_its_requests_may_reach_another_api(settings: Settings, key: str) -> None:
    async with two_apis(settings, key) as client:
        whole = line(1) + line(2)
        wish = {"filename": "in.jsonl", "purpose": "batch", "bytes": len(whole), "mime_type": "application/jsonl"}
        upload = (await client.post("/v1/uploads", json=wish)).json()["id"]
        parts = [
            (await client.post(f"/v1/uploads/{upload}/parts", files={"data": ("part", content)})).json()["id"]
            for content in (line(1), line(2))
        ]
        done = (await client.post(f"/v1/uploads/{upload}/complete", json={"part_ids": parts})).json()
        body = {
            "input_file_id": done["file"]["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        batch = (await client.post("/v1/batches", json=body)).json()
        seen = [(await client.get(f"/v1/batches/{batch['id']}")).json()["request_counts"]["total"] for _ in range(2)]
        assert seen == [2, 2]

        once = {"idempotency-key": "order-1"}
        ids = {(await client.post(SUBMIT, json=ONE, headers=once)).json()["result"]["request_id"] for _ in range(4)}
        assert len(ids) == 1
        states = {
            (await client.post(RUN, json={"request_id": each})).json()["result"]["status"] for each in ids for _ in "ab"
        }
        assert states == {"queued"}
        assert (await client.post(f"{BATCHES}/{ids.pop()}/cancel")).status_code == 200


@pytest.mark.slow
async def test_a_keys_limit_is_one_over_all_apis_and_a_revoked_key_is_refused_by_each(
    settings: Settings, database: Database, key: str
) -> None:
    async with database.transaction() as conn:
        limited = str(await tenants.create_key(conn, secret_key(settings), "acme", "x", None, KeyLimits(requests=3)))
    async with FakeEngine() as engine, two_apis(settings, limited) as client:
        await Registry(database).ready(engine)
        allowed: Counter[float] = Counter()
        for _ in range(12):
            minute = time.time() // 60
            answer = await client.post(RUN, json=SAY)
            allowed[minute] += answer.status_code == 200 and minute == time.time() // 60
        assert max(allowed.values()) == 3
        async with database.transaction() as conn:
            assert await tenants.revoke_key(conn, limited.split("_")[2])

        async def statuses() -> set[int]:
            return {(await client.post(SUBMIT, json=ONE)).status_code for _ in range(2)}

        await eventually(statuses, until=lambda found: found == {401})


@pytest.mark.slow
async def test_the_metrics_of_several_processes_add_up_and_survive_the_death_of_one(
    settings: Settings, key: str
) -> None:
    several = settings.model_copy(update={"api_processes": 2})
    async with api(several) as (url, parent), client_of([url], key) as client:
        running = await eventually(lambda: processes_of(settings), until=lambda found: len(found) >= 2)

        async def submits() -> set[float]:
            """What several scrapes say, which any process may answer."""
            pages = [await sample(client, "slackwater_submits_total", outcome="accepted") for _ in range(8)]
            return set(pages)

        for _ in range(20):
            assert (await client.post(SUBMIT, json=ONE)).status_code == 200
        assert await submits() == {20}
        assert await sample(client, "slackwater_build_info", part="api") == 1

        os.kill(running[0], signal.SIGKILL)
        await eventually(lambda: len(set(processes_of(settings)) - {running[0]}) >= 2)
        assert await submits() == {20}
        parent.terminate()
        assert await parent.wait() == 0
        assert processes_of(settings) == []


@pytest.mark.slow
async def test_no_process_of_an_api_outlives_the_killed_parent(settings: Settings) -> None:
    async with api(settings.model_copy(update={"api_processes": 2})) as (_, parent):
        assert processes_of(settings)
        parent.kill()
        await parent.wait()
        await eventually(lambda: not processes.marked("SLACKWATER_DATA_DIR", str(settings.data_dir)))


def test_every_gauge_of_the_api_says_how_those_of_its_processes_are_added_up() -> None:
    modes = {each._name: each._multiprocess_mode for each in REGISTRY._collector_to_names if isinstance(each, Gauge)}
    assert {"slackwater_open_requests", "slackwater_build_info"} <= modes.keys()
    assert {name for name, mode in modes.items() if not mode.startswith("live")} == set()
