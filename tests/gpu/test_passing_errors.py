"""Claims about errors of the database that pass: none of them ends a part of a worker."""

from typing import Any

import pytest
from psycopg import errors

from app.engines import service as engines
from app.headroom import decision_log
from app.queue import heartbeat
from app.queue import service as queue
from tests.gpu.world import World

VERBS = {
    "join": (queue, "register_worker"),
    "take": (engines, "take_engine"),
    "heartbeat": (heartbeat, "send"),
    "decisions": (decision_log, "record"),
    "claim": (queue, "claim"),
    "flush": (queue, "flush"),
    "retire": (queue, "retire_worker"),
}


@pytest.mark.parametrize(
    "error", [errors.SerializationFailure, errors.ForeignKeyViolation, errors.ReadOnlySqlTransaction]
)
async def test_every_verb_of_a_worker_may_meet_an_error_that_passes(
    world: World, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    met: set[str] = set()

    def failing_once(name: str, of: Any, verb: str) -> None:
        works = getattr(of, verb)

        async def fails(*arguments: Any, **named: Any) -> Any:
            if name not in met:
                met.add(name)
                raise error
            return await works(*arguments, **named)

        monkeypatch.setattr(of, verb, fails)

    for name, (of, verb) in VERBS.items():
        failing_once(name, of, verb)
    batch = await world.submit([f"question {n}." for n in range(8)])
    async with world.worker(heartbeat_seconds=0.2) as running:
        await world.finished(batch)
        await world.until("count(*) > 0 from decision")
        assert not running.task.done()
    assert met == set(VERBS)
    assert len(await world.results(batch)) == 8
