"""Yield and resume on a real engine, by the controller outside it (L1): a yielded request has the same answer."""

from typing import Any

import httpx
import pytest

from app import clock
from app.crypto import bearer_token, secret_key
from app.headroom.arrivals import ANNOUNCING
from app.settings import Settings
from testing.waiting import eventually
from tests.engine.continued import Comparison, compared
from tests.gpu.world import World
from tests.timing import note
from workers.gpu import control_loop
from workers.gpu.worker import Worker

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("count", "yielding"), [(20, 15), pytest.param(65, 50, marks=pytest.mark.slow)])
async def test_requests_cut_by_yields_say_what_they_say_in_one_piece(
    world: World, monkeypatch: pytest.MonkeyPatch, count: int, yielding: int
) -> None:
    both: Comparison = await compared(world, count, monkeypatch)
    note(f"yield and resume in float32: {both.summary()}")
    assert len(both.yielded) >= yielding
    assert both.through_characters > 0
    assert both.different == []
    for seq, (cut, whole) in enumerate(zip(both.cut, both.whole, strict=True)):
        assert cut.prompt_tokens == whole.prompt_tokens == len(whole.transcript.prompt_ids)
        assert whole.yields == 0
        assert cut.yields == len(cut.cuts) <= 2
        if seq not in both.gaps:
            assert cut.choice == whole.choice
            assert cut.completion_tokens == whole.completion_tokens == len(whole.transcript.output_ids)


async def test_the_first_decision_after_an_announced_burst_makes_batch_yield(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[tuple[int, str, int, float]] = []
    decide = control_loop.decide

    def watching(state: Any, signals: Any, limits: Any) -> Any:
        state, decision = decide(state, signals, limits)
        decided.append((signals.sync.awaiting_tokens, decision.reason, decision.surplus, clock.monotonic()))
        return state, decision

    batch = await world.submit([{"prompt": f"Tell a tale, number {n}.", "max_tokens": 40} for n in range(12)])
    async with world.worker() as running:
        worker = running.worker
        calls = worker._runner.ledger.calls
        await eventually(lambda: len(calls) >= 4 and all(call.transcript.started for call in calls.values()))
        monkeypatch.setattr(control_loop, "decide", watching)
        began = clock.monotonic()
        burst = {"id": "s1", "event": "arrived", "class": "sync", "prompt_tokens": 8000, "max_tokens": 64}
        await announce(world.settings, worker, burst)
        await eventually(lambda: worker._puller.yields)
        first = next(entry for entry in decided if entry[0])
        assert (first[0], first[1]) == (8000, "yield_burst")
        assert first[2] > 0
        note(f"L1 on the real engine: decided {1000 * (first[3] - began):.0f} ms after an arrival was posted")
        await announce(world.settings, worker, {"id": "s1", "event": "finished"})
        await world.finished(batch)
    assert all(ok for ok, _, _ in (await world.results(batch)).values())


async def announce(settings: Settings, worker: Worker, event: dict[str, Any]) -> None:
    """Post to the worker's arrival endpoint as a gateway does."""
    token = bearer_token(secret_key(settings), ANNOUNCING)
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(headers=headers) as client:
        (await client.post(f"{worker._server._url}/arrivals", json=event)).raise_for_status()
