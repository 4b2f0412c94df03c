"""Random pipelines, and a world in which everything dies between any two statements."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import pytest

from app.admission.control import AdmissionControl
from app.db.pool import Database
from app.db.pooled_connection import PooledConnection
from app.db.transient_errors import TRANSIENT
from app.errors import BadInput
from app.flows.definition import parse
from app.pipelines.feeding import Feeder
from app.queue import reaping
from app.settings import Settings
from tests.flows.pipelines import Json, pipeline, stage
from tests.pipelines.support import Made, World

DEATH = 0.02  # at each statement
_dice: ContextVar[random.Random | None] = ContextVar("dice", default=None)


class Died(BaseException):
    """The process is gone: nothing of it is handled."""


def tree(dice: random.Random) -> Json:
    """The definition of a pipeline of up to seven stages."""
    stages: list[Json] = []
    while not stages or (len(stages) < 7 and dice.random() < 0.85):
        ids = ["input", *(each["id"] for each in stages)]
        new = _stage(dice, f"s{len(stages)}", ids)
        with suppress(BadInput):
            parse(pipeline(*stages, new))
            stages.append(new)
    return pipeline(*stages)


def _stage(dice: random.Random, name: str, ids: list[str]) -> Json:
    after = ids[-1] if dice.random() < 0.6 else dice.choice(ids)
    first = after == "input"
    shapes: list[Json] = [
        {},
        {},
        {"each": "item.list" if first else "json.list", "max": 3},
        {"pack": {"size": dice.randint(1, 3)}},
        {"pack": {"of": dice.choice(ids), "max": dice.choice([2, 1000])}},
        {"pack": {"by": "json.topic", "max": dice.randint(1, 3)}},
    ]
    new = stage(name, after=after) | dice.choice(shapes)
    if not first:
        new |= dice.choice([{}, {"when": "json.sure"}, {"when": "true"}])
        new |= {} if "pack" in new else dice.choice([{}, {"otherwise": "pass"}])
    if dice.random() < 0.3:
        new |= {"escalate": {"model": "large", "when": "not json.sure", "most": dice.choice([0.4, 1.0])}}
    text = "{{item.id}}" if first else '{{text|20|"none"}}'
    if "pack" in new:
        text = "{{count}} {{parts.item.id}}" if first else '{{count}} {{missing}} {{parts.text|9|"none"}}'
    return new | {"body": {"messages": [{"role": "user", "content": text}]}}


@contextmanager
def mortality(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Statements of those who are mortal may be the last of their process, before or after they run."""
    execute: Callable[..., Awaitable[Any]] = PooledConnection.execute

    async def risky(self: PooledConnection, *args: Any, **kwargs: Any) -> Any:
        dice = _dice.get()
        if dice is not None and dice.random() < DEATH:
            raise Died
        found = await execute(self, *args, **kwargs)
        if dice is not None and dice.random() < DEATH:
            raise Died
        return found

    with monkeypatch.context() as patch:
        patch.setattr(PooledConnection, "execute", risky)
        yield


@asynccontextmanager
async def dying(dice: random.Random) -> AsyncIterator[None]:
    """Whoever is inside may die at any statement."""
    token = _dice.set(dice)
    try:
        yield
    except (Died, *TRANSIENT):
        pass
    finally:
        _dice.reset(token)


async def live(database: Database, settings: Settings, dice: random.Random, *pipelines: Made) -> int:
    """Run pipelines with two feeders, two workers and a steward, all of which die now and then. Returns the number of rounds."""
    world = World(database, settings)
    made = {batch_id: n for each in pipelines for n, batch_id in enumerate(each.batches)}

    async def feed() -> None:
        async with dying(dice):
            for _ in range(dice.randint(1, 3)):
                await Feeder(database, settings, AdmissionControl.of(database, settings)).step()

    async def work() -> None:
        for _ in range(2):
            if (lease := await world.claim()) is None:
                return
            alive = False
            async with dying(dice):
                await world.run(lease, made)
                alive = True
            if not alive:
                await _lose(database, lease.worker_id)
                world.workers.clear()
                return

    async def settle() -> None:
        async with dying(dice):
            await world.settle()

    for n in range(2000):
        await asyncio.gather(feed(), feed(), work(), work(), settle())
        async with database.relaxed() as conn:
            query = "select count(*) from pipeline where finalized_at is null"
            if await (await conn.execute(query)).fetchone() == (0,):
                return n
    raise AssertionError("the pipelines do not end")


async def _lose(database: Database, worker_id: int) -> None:
    """A worker is gone: its chunks go back."""
    async with database.durable() as conn:
        await conn.execute(
            "update worker set lease_until = now() - interval '1 second' where worker_id = %s", (worker_id,)
        )
        await reaping.reap(conn)
