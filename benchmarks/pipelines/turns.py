"""Arm `turns`: what a conversation costs its turns.

The steps of a turn (read a conversation of up to ten turns, begin a turn of it, end it) are timed in this process. The first
token of a streamed response is timed through the API and a fake engine: in a conversation of up to ten turns, and with the same
turns sent by hand and `store: false`, one after the other in the same run.
"""

import asyncio
import sys
from statistics import median
from time import perf_counter
from typing import Any

import aiohttp

from app import cells, processes
from app.db.pool import Database
from app.policy.vaults import Vaults
from app.sealing.keyring import Keyring
from app.sessions import ending, reading, service
from app.sessions.sealing import CLEAR
from app.sessions.service import Keeper, Known, NewTurn
from app.settings import Settings
from app.tenants import service as tenants
from benchmarks.gateway.installation import RunningGateway, installation, running
from benchmarks.harness import MODEL, SECRET, Testbed, open_testbed, say
from benchmarks.statistics import percentiles

TURNS = 10
_ANSWER = {"status": "completed", "output": [], "usage": {"input_tokens": 50, "output_tokens": 20}}
_INPUT = [{"role": "user", "content": "What came next, and why? " * 20}]


def turns(*, count: int = 500) -> dict[str, Any]:
    """`turn_begin_ms_p50`: to read a conversation and to begin a turn of it. `turn_added_ttft_ms_p50`: what a conversation adds
    to the first token. Over so many turns; milliseconds.
    """
    with open_testbed("") as testbed:
        return {**_begun(testbed, count), **_first_tokens(testbed, count)}


def _begun(testbed: Testbed, count: int) -> dict[str, Any]:
    """Medians and 99th percentiles of the steps of a turn."""
    spent = asyncio.run(_turns(testbed.settings(testbed.database()), count))
    whole = [read + begin for read, begin in zip(spent["read"], spent["begin"], strict=True)]
    figures: dict[str, Any] = {"turns": count, "turn_begin_ms_p50": round(median(whole), 2)}
    for name, each in spent.items():
        p50, p99 = percentiles(each)
        figures |= {f"turn_{name}_only_ms_p50": round(p50, 2), f"turn_{name}_only_ms_p99": round(p99, 2)}
    say(f"turns: {figures}")
    return figures


async def _turns(settings: Settings, count: int) -> dict[str, list[float]]:
    """Milliseconds of each step of `count` turns, of conversations of up to `TURNS`. The first one is warm-up."""
    spent: dict[str, list[float]] = {"read": [], "begin": [], "end": []}
    async with Database.of(settings, "turns") as database:
        async with database.transaction() as conn:
            tenant_id = await tenants.ensure_tenant(conn, "bench")
        keeper = Keeper(database, Keyring.of(settings), Vaults(SECRET.encode(), tenant_id), tenant_id)
        session_id = await service.create(keeper, {}, CLEAR)
        for n in range(count + TURNS):
            if n % TURNS == 0 and n:
                session_id = await service.create(keeper, {}, CLEAR)
            times = [perf_counter()]
            session = await reading.read(keeper, session_id)
            times.append(perf_counter())
            turn = NewTurn(cells.new_id(), tenant_id, MODEL, _INPUT)
            assert await service.begin(keeper, session, turn) is not None
            times.append(perf_counter())
            await ending.end(keeper, turn, session_id, _ANSWER, Known())
            times.append(perf_counter())
            for name, before, after in zip(spent, times, times[1:], strict=False):
                spent[name] += [(after - before) * 1e3] if n >= TURNS else []
    return spent


def _first_tokens(testbed: Testbed, count: int) -> dict[str, Any]:
    """Of the first token, in a conversation and by hand."""
    port = processes.free_port()
    engine = [sys.executable, "-m", "testing.fakes.engine", "--port", str(port), "--latency", "0.02"]
    with running(engine), installation(testbed, [f"http://127.0.0.1:{port}"]) as gateway:
        found = asyncio.run(_both(gateway, count))
    figures: dict[str, Any] = {"turn_responses": count}
    for name, each in found.items():
        p50, p99 = percentiles(each)
        figures |= {f"{name}_ttft_ms_p50": round(p50, 2), f"{name}_ttft_ms_p99": round(p99, 2)}
    figures["turn_added_ttft_ms_p50"] = round(figures["turn_ttft_ms_p50"] - figures["plain_ttft_ms_p50"], 2)
    say(f"first tokens: {figures}")
    return figures


async def _both(gateway: RunningGateway, count: int) -> dict[str, list[float]]:
    """Milliseconds to the first token by hand and with a conversation, in turns. The first conversation is warm-up."""
    found: dict[str, list[float]] = {"plain": [], "turn": []}
    async with aiohttp.ClientSession(gateway.base, headers=dict(gateway.headers)) as client:
        talk, said = "", list[dict[str, Any]]()
        for n in range(count + TURNS):
            if n % TURNS == 0:
                async with client.post("/v1/conversations", json={}) as made:
                    talk, said = (await made.json())["id"], []
            said += _INPUT
            by_hand = await _first_ms(client, {"store": False, "input": said})
            kept = await _first_ms(client, {"conversation": talk, "input": _INPUT})
            said.append({"role": "assistant", "content": f"echo: {_INPUT[0]['content']}"})
            if n >= TURNS:
                found["plain"].append(by_hand)
                found["turn"].append(kept)
    return found


async def _first_ms(client: aiohttp.ClientSession, more: dict[str, Any]) -> float:
    body = {"model": MODEL, "stream": True, **more}
    began, first = perf_counter(), 0.0
    async with client.post("/v1/responses", json=body) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            if not first and b".delta" in line:
                first = perf_counter()
    return (first - began) * 1e3
