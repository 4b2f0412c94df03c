"""Batch work gives way on the real vLLM: frozen and evicted by the scheduler inside, yielded by the controller outside it."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
import pytest

from app import clock
from app.crypto import bearer_token, secret_key
from app.headroom.arrivals import ANNOUNCING
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, eventually, wait_for
from tests.engine.continued import Comparison, compared
from tests.gpu.world import World
from tests.system.stack import ACCOUNT, MODEL, Stack
from tests.timing import note
from workers.engine.control_page import Report
from workers.engine.page_folder import PageFolder
from workers.gpu import control_loop
from workers.gpu.worker import Worker

pytestmark = pytest.mark.slow

SLOTS, RESERVE = 32, 2
SYNC_TOKENS = 48
Seen = TypeVar("Seen")
ITEMS = [{"prompt": f"Count up from {n}.", "max_tokens": 40, "temperature": 0, "ignore_eos": True} for n in range(40)]
FROZEN = "slackwater_worker_harvest_frozen_requests"
EVICTIONS = "slackwater_worker_harvest_evictions_total"


class Page:
    """The engine's control page, read as the worker reads it."""

    def __init__(self, stack: Stack) -> None:
        [folder] = (stack.settings.data_dir / "run").glob(f"{stack.settings.engine_name}.*.pages")
        self._folder = PageFolder(folder)
        self._folder.look()

    def read(self) -> Report:
        [page] = self._folder.pages
        report = page.report()
        assert report is not None
        return report

    def close(self) -> None:
        self._folder.close()


@pytest.fixture
def page(stack: Stack, engine_url: str) -> Iterator[Page]:
    page = Page(stack)
    yield page
    page.close()


def worker_metrics(stack: Stack) -> dict[str, float]:
    """Metrics of the worker without a label beside the engine's, by name."""
    [(url,)] = stack.query("select arrival_url from engine")
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    pairs = [line.split(" ") for line in lines if line.startswith("slackwater_") and "," not in line]
    return {name.partition("{")[0]: float(value) for name, value in pairs}


def ask(stack: Stack, number: int) -> dict[str, Any]:
    """One synchronous request through the gateway."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"What is {number} plus one?"}],
        "max_tokens": SYNC_TOKENS,
        "ignore_eos": True,
        "temperature": 0,
    }
    url = f"/client/v4/accounts/{ACCOUNT}/ai/v1/chat/completions"
    answer = stack.client.post(url, json=body, timeout=LIMIT_SECONDS)
    assert answer.status_code == 200, answer.text
    said: dict[str, Any] = answer.json()
    return said


@contextmanager
def asking(stack: Stack, count: int) -> Iterator[list[Any]]:
    """So many at once; their answers, as they come to be."""
    with ThreadPoolExecutor(count) as pool:
        yield [pool.submit(ask, stack, n) for n in range(count)]


@contextmanager
def repeating(look: Callable[[], Seen]) -> Iterator[list[Seen]]:
    """What a look shows, again and again, in a thread of its own: a fast engine answers between two slow looks."""
    seen: list[Seen] = []
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(0.001):
            seen.append(look())

    with ThreadPoolExecutor(1) as pool:
        looks = pool.submit(repeat)
        try:
            yield seen
        finally:
            ended.set()
        looks.result()


def texts(result: dict[str, Any]) -> list[str]:
    assert all(response["success"] for response in result["responses"])
    return [str(response["result"]["response"]) for response in result["responses"]]


def test_synchronous_requests_freeze_and_evict_batch_and_every_answer_is_right(stack: Stack, page: Page) -> None:
    before = page.read()
    request_id = stack.submit(ITEMS)
    wait_for(lambda: page.read().batch_running >= SLOTS - RESERVE, "every free slot taken by batch")
    with (
        repeating(page.read) as seen,
        repeating(lambda: worker_metrics(stack)) as shown,
        asking(stack, 2 * RESERVE + 2) as answers,
    ):
        served = [answer.result() for answer in answers]
    assert [answer["usage"]["completion_tokens"] for answer in served] == [SYNC_TOKENS] * len(served)
    beside = [report.batch_frozen for report in seen if report.sync_running]
    result = wait_for(lambda: stack.poll(request_id))
    after, metrics = page.read(), worker_metrics(stack)
    evictions = after.evictions - before.evictions
    note(
        f"managed engine, {len(ITEMS)} batch items and {len(served)} synchronous at once: up to {max(beside)} batch requests "
        f"frozen, {evictions} evicted, {after.faults} faults"
    )
    assert max(beside) > 0
    assert max(look[FROZEN] for look in shown) > 0
    assert evictions > 0
    assert metrics[EVICTIONS] == after.evictions
    assert (after.supported, after.tripped, after.faults) == (True, False, 0)
    undisturbed = stack.submit(ITEMS)
    calm = wait_for(lambda: stack.poll(undisturbed))
    assert result["usage"]["completion_tokens"] == calm["usage"]["completion_tokens"] == 40 * len(ITEMS)
    different = sum(one != other for one, other in zip(texts(result), texts(calm), strict=True))
    note(f"of {len(ITEMS)} frozen or evicted answers {different} differ from the undisturbed ones")
    assert different <= 1  # a near-tie; see test_continue for their rate


def test_while_the_worker_is_stopped_batch_stands_still_and_synchronous_requests_are_served(
    stack: Stack, page: Page, engine_url: str, engine_token: str
) -> None:
    request_id = stack.submit(ITEMS)
    wait_for(lambda: page.read().batch_running > 4, "batch in the engine")
    [worker] = stack.pids("gpu-worker")
    os.kill(worker, signal.SIGSTOP)
    try:
        wait_for(lambda: page.read().silent, "the scheduler misses its worker")
        held = "select exists (select from engine join worker using (worker_id) where lease_until > now())"
        wait_for(lambda: stack.query(held) == [(False,)], "the worker's lease over")
        tokens = page.read().batch_tokens
        body = {"model": MODEL, "prompt": "The tide", "max_tokens": 16, "ignore_eos": True}
        shown = {"authorization": f"Bearer {engine_token}"}
        asked = httpx.post(f"{engine_url}/v1/completions", json=body, headers=shown, timeout=LIMIT_SECONDS)
        answer = asked.raise_for_status().json()
        assert answer["usage"]["completion_tokens"] == 16
        report = page.read()
        assert (report.batch_tokens, report.silent) == (tokens, True)
        assert report.batch_frozen == report.batch_running
    finally:
        os.kill(worker, signal.SIGCONT)
    result = wait_for(lambda: stack.poll(request_id))
    assert result["usage"]["completion_tokens"] == 40 * len(ITEMS)
    assert len(texts(result)) == len(ITEMS)
    assert stack.pids("gpu-worker") == [worker]
    assert page.read().faults == 0


@pytest.mark.parametrize(("count", "yielding"), [(20, 15), (65, 50)])
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
