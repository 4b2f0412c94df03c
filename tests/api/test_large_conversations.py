"""Claims about conversations of which much is stored: reading one holds up no other request of the process."""

import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from app import off_loop
from app.db.pool import Database
from app.sessions import transcript
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from tests.api.support import MODEL
from tests.gateway.support import Registry

APP = Path(off_loop.__file__).parent
HI = {"role": "user", "content": "hi"}
# A small body may have one of the first; two are large, and the model's window has room for all of them but three of the first.
SMALL, BETWEEN = ({"role": "user", "content": "tide " * count} for count in (12_000, 1_500))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Bodies may be large."""
    return settings.model_copy(update={"json_body_mb": 1})


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    """An engine that is ready. It answers with an echo of the last text."""
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        yield engine


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Who of us has parsed, rendered or written something large in the thread of the loop."""
    found, loop = set[str](), threading.get_ident()

    def watch(owner: Any, name: str, size: Callable[[Any, Any], int]) -> None:
        call = getattr(owner, name)

        def watched(given: Any, *args: Any, **options: Any) -> Any:
            made, caller = call(given, *args, **options), sys._getframe(1).f_code
            ours = Path(caller.co_filename).is_relative_to(APP)
            if ours and threading.get_ident() == loop and size(given, made) > off_loop.SMALL_BYTES:
                found.add(f"{name} in {caller.co_qualname}")
            return made

        monkeypatch.setattr(owner, name, watched)

    dumps = orjson.dumps
    watch(orjson, "loads", lambda given, made: len(given))
    watch(orjson, "dumps", lambda given, made: len(made))
    for name in ("rendered", "shown", "shown_items", "without"):
        watch(transcript, name, lambda given, made: len(dumps(made)))
    return found


async def ok(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text[-300:]
    return answer.json()


async def respond(client: httpx.AsyncClient, text: Any = "hi", **more: Any) -> Any:
    headers = more.pop("headers", None)
    return await ok(await client.post("/v1/responses", json={"model": MODEL, "input": text, **more}, headers=headers))


async def talk_of(client: httpx.AsyncClient, items: int) -> str:
    """A conversation with this many items, each of which has nearly the size of a small body."""
    talk = (await ok(await client.post("/v1/conversations", json={})))["id"]
    for _ in range(items):
        await ok(await client.post(f"/v1/conversations/{talk}/items", json={"items": [SMALL]}))
    return str(talk)


async def test_a_large_conversation_is_listed_and_changed_in_threads(
    client: httpx.AsyncClient, engine: FakeEngine, on_loop: set[str]
) -> None:
    talk = await talk_of(client, 1)
    place = f"/v1/conversations/{talk}"
    await respond(client, [SMALL, BETWEEN, HI], conversation=talk)
    await ok(await client.get(place))
    await ok(await client.post(place, json={"metadata": {"a": "b"}}))
    listed = (await ok(await client.get(f"{place}/items")))["data"]
    assert [item["content"][0]["text"][:4] for item in listed] == ["echo", "hi", "tide", "tide", "tide"]
    await ok(await client.get(f"{place}/items", params={"after": listed[-1]["id"], "order": "asc"}))
    await ok(await client.get(f"{place}/items/{listed[2]['id']}"))
    await ok(await client.delete(f"{place}/items/{listed[2]['id']}"))
    assert len((await ok(await client.get(f"{place}/items")))["data"]) == 4
    await ok(await client.delete(place))
    assert on_loop == set()


async def test_a_turn_of_a_large_conversation_is_prepared_and_kept_in_threads(
    client: httpx.AsyncClient, engine: FakeEngine, on_loop: set[str]
) -> None:
    talk = await talk_of(client, 2)
    for key in ("a", "a", "b"):
        said = await respond(client, conversation=talk, headers={"idempotency-key": key})
    place = f"/v1/responses/{said['id']}"
    await ok(await client.get(place))
    await ok(await client.get(f"{place}/input_items"))
    await ok(await client.delete(place))
    assert len(engine.bodies) == 2
    assert on_loop == set()


async def test_a_large_response_is_continued_listed_and_deleted_in_threads(
    client: httpx.AsyncClient, engine: FakeEngine, on_loop: set[str]
) -> None:
    first = await respond(client, [SMALL, BETWEEN, HI])
    second = await respond(client, previous_response_id=first["id"])
    queued = await respond(client, previous_response_id=second["id"], background=True)
    for said in (first, queued):
        await ok(await client.get(f"/v1/responses/{said['id']}"))
        await ok(await client.get(f"/v1/responses/{said['id']}/input_items"))
    await ok(await client.delete(f"/v1/responses/{first['id']}"))
    assert on_loop == set()


@pytest.mark.parametrize("background", [False, True])
async def test_a_conversation_that_is_too_long_is_refused_in_a_thread(
    client: httpx.AsyncClient, engine: FakeEngine, on_loop: set[str], background: bool
) -> None:
    asked = {"model": MODEL, "input": "hi", "conversation": await talk_of(client, 3), "background": background}
    refused = await client.post("/v1/responses", json=asked)
    assert (refused.status_code, "context window" in refused.text) == (400, True)
    assert on_loop == set()
