"""Claims about a deletion that meets another change: whichever comes first, no vault keeps a value of what was deleted."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.api.openai import turns
from app.db.pool import Database
from app.errors import KeysUnavailable
from app.sessions import pruning, reading
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from tests.api.test_conversations import engine, new, say
from tests.api.test_queued_turns import queue, work
from tests.api.test_redaction import apply
from tests.sealing.test_deletion import CANARY, SAID, Client, copies, policy, settings

pytestmark = pytest.mark.usefixtures("engine")
__all__ = ["apply", "engine", "policy", "settings"]
OTHER = "other.person@hidden.example"
Act = Callable[[], Awaitable[Any]]


def once_after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Act) -> None:
    """Do `act` when this coroutine function has done its first work."""
    whole = getattr(owner, name)

    async def meanwhile(*given: Any) -> Any:
        found = await whole(*given)
        monkeypatch.setattr(owner, name, whole)
        await act()
        return found

    monkeypatch.setattr(owner, name, meanwhile)


def deletion(client: Client, response: dict[str, Any]) -> Act:
    async def delete() -> None:
        assert (await client.delete(f"/v1/responses/{response['id']}")).status_code == 200

    return delete


@pytest.mark.parametrize(
    ("owner", "name"), [(turns, "_redacted"), (pruning, "still_known")], ids=["while it runs", "as it is stored"]
)
async def test_an_answer_that_continues_what_is_deleted(
    client: Client,
    database: Database,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
) -> None:
    first = await say(client, SAID)
    once_after(monkeypatch, owner, name, deletion(client, first))
    second = await say(client, "and next?", previous_response_id=first["id"])
    assert second["store"] is True
    assert await copies(database, settings) == []


async def test_a_background_answer_as_it_is_stored(
    client: Client, database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await say(client, SAID)
    second = await queue(client, "and next?", previous_response_id=first["id"])
    once_after(monkeypatch, pruning, "still_known", deletion(client, first))
    await work(database, settings)
    await work(database, settings)
    assert (await client.get(f"/v1/responses/{second['id']}")).json()["status"] == "completed"
    assert await copies(database, settings) == []


async def test_an_answer_that_is_stored_before_the_deletion_commits(
    client: Client, database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await say(client, SAID)

    async def another() -> None:
        await say(client, "and next?", previous_response_id=first["id"])

    once_after(monkeypatch, pruning.Pruning, "prepare", another)
    await deletion(client, first)()
    assert await copies(database, settings) == []


async def test_a_response_that_continues_a_conversation_that_goes(
    client: Client, database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await new(client)
    first = await say(client, SAID, conversation=talk)

    async def another() -> None:
        await say(client, "and next?", previous_response_id=first["id"])

    once_after(monkeypatch, pruning.Pruning, "prepare", another)
    assert (await client.delete(f"/v1/conversations/{talk}")).status_code == 200
    assert await copies(database, settings) == []


async def test_a_turn_that_was_prepared_before_begins_anew(
    client: Client, database: Database, settings: Settings, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await new(client)
    first = await say(client, SAID, conversation=talk)
    once_after(monkeypatch, reading, "read", deletion(client, first))
    await say(client, "and next?", conversation=talk)
    assert CANARY not in json.dumps(engine.bodies[-1])
    assert await copies(database, settings) == []


async def test_a_background_turn_that_was_prepared_before_begins_anew(
    client: Client, database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await new(client)
    first = await say(client, SAID, conversation=talk)
    once_after(monkeypatch, reading, "read", deletion(client, first))
    second = await queue(client, "and next?", conversation=talk)
    await work(database, settings)
    await work(database, settings)
    assert (await client.get(f"/v1/responses/{second['id']}")).json()["status"] == "completed"
    assert await copies(database, settings) == []


async def test_items_that_were_prepared_before_are_not_added_to_what_is_left(
    client: Client, database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await new(client)
    first = await say(client, SAID, conversation=talk)
    for name in ("read", "state"):
        once_after(monkeypatch, reading, name, deletion(client, first))
    items = {"items": [{"role": "user", "content": "and next?"}]}
    added = await client.post(f"/v1/conversations/{talk}/items", json=items)
    assert added.status_code in (200, 409)
    assert await copies(database, settings) == []


async def test_a_deletion_whose_keys_are_away_at_its_end_is_one(
    client: Client, database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> None:
        raise KeysUnavailable("away")

    talk = await new(client)
    await queue(client, SAID * 50, conversation=talk)
    await work(database, settings)
    once_after(monkeypatch, pruning.Pruning, "prepare", away_from_now(monkeypatch, away))
    assert (await client.delete(f"/v1/conversations/{talk}")).status_code == 200
    assert await copies(database, settings) == []


def away_from_now(monkeypatch: pytest.MonkeyPatch, away: Act) -> Act:
    async def set_away() -> None:
        async def prepare(_: Any) -> None:
            await away()

        monkeypatch.setattr(pruning.Pruning, "prepare", prepare)

    return set_away


async def test_two_deletions_at_once(
    client: Client, database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await say(client, f"I am {OTHER}")
    second = await say(client, SAID, previous_response_id=first["id"])
    await say(client, "and then?", previous_response_id=second["id"])
    once_after(monkeypatch, pruning.Pruning, "prepare", deletion(client, second))
    await deletion(client, first)()
    assert await copies(database, settings) == []
