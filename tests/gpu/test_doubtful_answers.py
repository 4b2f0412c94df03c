"""What one answer says about the engine: nothing, unless a one-token request fails too."""

from dataclasses import replace
from typing import Any

import pytest

from app.db.pool import Database
from app.engines.client import EngineClient
from app.engines.continuation import Continuation
from app.engines.outcome import EngineDown
from app.settings import Settings
from testing.waiting import eventually
from tests.gpu.test_dialects import attached
from tests.gpu.world import Running, World
from tests.queue import support
from workers.gpu.tuning import WorkerTuning

PAGE = "<html>\r\n<head><title>403 Forbidden</title></head>\r\n<body><hr>firewall</body></html>"
QUICK = WorkerTuning(health_seconds=0.05, inspection_seconds=0.1, probe_pause_seconds=0.01)
BLOCKED = '{"error": {"message": "blocked", "code": 403}}'
BAD = "a <script> in a prompt"


def page(status: int, body: str = PAGE, **more: Any) -> dict[str, Any]:
    return {"match": "<script>", "mode": "status", "status": status, "body": body, **more}


async def other_account(world: World) -> World:
    """The same world, for another account."""
    async with world.database.durable() as conn:
        return replace(world, tenant=await support.make_tenant(conn, "other"))


# What something between worker and engine answers for one line, and which of its words the owner reads.
BETWEEN: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "403": (page(403), ("403", "403 Forbidden")),
    "401": (page(401), ("401", "403 Forbidden")),
    "403 in JSON": (page(403, '{"message": "Forbidden"}'), ("403", "Forbidden")),
    "a redirect": (page(302, "Found\nelsewhere", type="text/plain"), ("302", "Found")),
    "404 on a route that is served": (page(404), ("404", "403 Forbidden")),
    "a proxy's key": (page(407), ("407", "403 Forbidden")),
    "400 as a page": (page(400), ("400", "403 Forbidden")),
    "502": (page(502), ("502", "403 Forbidden")),
    "503": (page(503), ("503", "403 Forbidden")),
    "503 in text": (page(503, "no healthy upstream", type="text/plain"), ("503", "no healthy upstream")),
    "429 as a page": (page(429), ("429", "403 Forbidden")),
    "504": (page(504, "upstream timed out", type="text/plain"), ("504", "upstream timed out")),
    "200 as a page": (page(200), ("200", "403 Forbidden")),
    "cut JSON": (page(200, '{"choices": [', type="application/json"), ("200", '{"choices": [')),
    "200 without a body": (page(200, "", type="text/plain"), ("200",)),
    "200 that says 403": (page(200, BLOCKED, type="application/json"), ("403", "blocked")),
}


async def test_what_refuses_a_line_fails_it_with_its_own_words_and_no_other_line_notices(world: World) -> None:
    bad = {f"{BAD} that meets {name}.": of for name, of in BETWEEN.items()}
    world.engine.script(*(rule | {"match": prompt} for prompt, (rule, _) in bad.items()))
    neighbours, others = [f"question {n}." for n in range(6)], [f"another {n}." for n in range(12)]
    world.engine.token_seconds = 0.01
    async with world.worker(tuning=QUICK):
        await world.finished(await world.submit(["first."]))
        batch = await world.submit([*neighbours, *bad])
        theirs = await (await other_account(world)).submit(others)
        await world.finished(batch)
        await world.finished(theirs)
        assert not await world.fetch("select 1 from engine where state <> 'ready'")
    results = await world.results(batch)
    for seq, (prompt, (_, told)) in enumerate(bad.items(), len(neighbours)):
        ok, tries, error = results.pop(seq)
        assert (ok, tries, world.engine.count[prompt]) == (0, 4, 4), f"{prompt} three times more, and no further"
        assert all(word in error["message"] for word in told), (prompt, error)
        assert "<" not in error["message"]
    ended = [*results.values(), *(await world.results(theirs)).values()]
    assert [(ok, tries) for ok, tries, _ in ended] == [(1, 1)] * len([*neighbours, *others])
    assert {world.engine.count[prompt] for prompt in (*neighbours, *others)} == {1}, "sent exactly once each"


async def test_a_line_for_which_no_connection_can_be_made_to_a_living_engine_fails_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a firewall that resets one request's TLS connection."""
    stream, refused = EngineClient.stream, list[str]()

    async def streamed(client: EngineClient, transcript: Continuation, *rest: Any, **more: Any) -> Any:
        if BAD in transcript.request.body.decode():
            refused.append(BAD)
            return EngineDown("cannot connect: 10.0.0.1", suspect=False, words="Connection refused")
        return await stream(client, transcript, *rest, **more)

    monkeypatch.setattr(EngineClient, "stream", streamed)
    batch = await world.submit([BAD, *(f"question {n}." for n in range(6))])
    async with world.worker(tuning=QUICK):
        await world.finished(batch)
        assert not await world.fetch("select 1 from engine where state <> 'ready'")
    results = await world.results(batch)
    ok, tries, error = results.pop(0)
    assert (ok, tries, len(refused)) == (0, 4, 4)
    assert error["message"].endswith("lets no connection through: Connection refused")
    assert {(ok, tries) for ok, tries, _ in results.values()} == {(1, 1)}
    assert {world.engine.count[f"question {n}."] for n in range(6)} == {1}


@pytest.mark.parametrize("status", [413, 414])
async def test_what_is_too_large_for_somebody_between_is_the_lines_error_at_once(world: World, status: int) -> None:
    world.engine.script(page(status, PAGE.replace("403 Forbidden", "Too Large")))
    batch = await world.submit([BAD, "hello"])
    async with world.worker(tuning=QUICK):
        await world.finished(batch)
    ok, tries, error = (await world.results(batch))[0]
    assert (ok, tries, error) == (0, 1, {"code": 5006, "message": f"HTTP {status}: Too Large"})


async def test_a_passing_refusal_of_something_between_costs_the_line_only_its_retries(world: World) -> None:
    world.engine.script(page(403, times=2))
    batch = await world.submit([BAD, "hello"])
    async with world.worker(tuning=QUICK):
        await world.finished(batch)
    results = await world.results(batch)
    assert (results[0][:2], results[1][:2]) == ((1, 3), (1, 1))


@pytest.mark.parametrize("name", ["vllm", "openai"])
async def test_a_route_that_the_engine_lacks_is_the_lines_error_and_the_engine_stays_in_use(
    name: str, settings: Settings, database: Database
) -> None:
    async with attached(name, settings, database) as world:
        await _lacks_a_route(world)


async def _lacks_a_route(world: World) -> None:
    world.engine.lacking = {"/v1/responses"}
    if world.engine.model not in world.engine.serves:
        world.engine.serves.append(world.engine.model)
    batch = await world.submit([{"input": "hi", "prompt": None}, *(f"question {n}." for n in range(6))])
    async with world.worker(tuning=QUICK):
        await world.finished(batch)
        assert not await world.fetch("select 1 from engine where state <> 'ready'")
    results = await world.results(batch)
    assert results.pop(0) == (0, 1, {"code": 5006, "message": "the engine does not serve /v1/responses"})
    assert all((ok, tries) == (1, 1) for ok, tries, _ in results.values())
    assert {world.engine.count[f"question {n}."] for n in range(6)} == {1}


async def test_an_engine_without_text_completions_is_not_taken_for_one_that_cannot_be_used(world: World) -> None:
    """Another kind of one-token request is tried before that is said."""
    world.engine.lacking = {"/v1/completions", "/v1/responses"}
    world.engine.script(page(403))
    batch = await world.submit([BAD])
    async with world.worker(tuning=QUICK):
        await world.finished(batch)
    assert (await world.results(batch))[0][:2] == (0, 4)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, '{"error": "Unauthorized"}'), "key_refused"),
        ((403, PAGE), "engine_unusable"),
        ((502, PAGE), "engine_unusable"),
        ((200, PAGE), "engine_unusable"),
        ((500, '{"error": {"message": "broken"}}'), "engine_unusable"),
        ((503, "no healthy upstream"), "engine_unusable"),
        ((503, ""), "engine_unusable"),
        ((504, '{"error": {"message": "late"}}'), "engine_unusable"),
        ((408, '{"error": {"message": "late"}}'), "engine_unusable"),
        ((408, "late"), "engine_unusable"),
        ((408, ""), "engine_unusable"),
    ],
)
async def test_while_a_one_token_request_fails_too_nobody_is_charged_and_the_operator_reads_why(
    world: World, answer: tuple[int, str], reason: str
) -> None:
    world.engine.locked = answer
    batch = await world.submit([f"question {n}." for n in range(8)])
    async with world.worker(tuning=QUICK, request_attempts=2, item_retries=0):
        await world.until(f"exists (select from engine where state = 'down' and reason = '{reason}')")
        [(problems,)] = await world.fetch("select problems from engine")
        assert str(answer[0]) in problems[0]["message"]
        await world.until("not exists (select from chunk where state = 'leased')")
        before = world.engine.turned_away
        await eventually(
            lambda: world.engine.turned_away > before + 5
        )  # it is asked again and again, and nothing else is sent
        assert not await world.fetch("select 1 from item_result")
        assert await world.fetch("select sum(attempt + retries + deaths) from chunk") == [(0,)]
        world.engine.locked = None
        await world.finished(batch)
    assert {(ok, tries) for ok, tries, _ in (await world.results(batch)).values()} == {(1, 1)}


async def refused_meanwhile(world: World, running: Running) -> int:
    """Once four streams have begun, refuse everybody else, and let the worker notice by another batch, which is returned."""
    calls = running.worker._runner.ledger.calls
    await eventually(lambda: len(calls) == 4 and all(call.transcript.started for call in calls.values()))
    world.engine.locked = (401, '{"error": "Unauthorized"}')
    late = await world.submit(["late."])
    await world.until("exists (select from engine where reason = 'key_refused')")
    return late


async def test_what_runs_while_others_are_refused_comes_to_its_end(world: World) -> None:
    world.engine.token_seconds, world.engine.answer_tokens = 0.02, 20
    batch = await world.submit([f"question {n}." for n in range(4)])
    async with world.worker(tuning=QUICK) as running:
        late = await refused_meanwhile(world, running)
        await world.finished(batch)
        world.engine.locked = None
        await world.finished(late)
    assert {world.engine.count[f"question {n}."] for n in range(4)} == {1}


async def test_what_fails_while_others_are_refused_goes_back_to_the_queue_uncharged(world: World) -> None:
    world.engine.token_seconds, world.engine.answer_tokens = 0.02, 20
    world.engine.script({"match": "question", "mode": "error", "after": 15})
    batch = await world.submit([f"question {n}." for n in range(4)])
    async with world.worker(tuning=QUICK) as running:
        late = await refused_meanwhile(world, running)
        await world.until("not exists (select from chunk where state = 'leased')")
        assert await world.fetch("select sum(attempt + retries + deaths) from chunk") == [(0,)]
        world.engine.script()
        world.engine.locked = None
        await world.finished(batch)
        await world.finished(late)


MALFORMED = [
    pytest.param({"replace": [["ech", "half \\ud83d"]]}, "half \N{REPLACEMENT CHARACTER}", id="a lone surrogate"),
    pytest.param(
        {"replace": [['"created": 1', '"created": -Infinity']]}, "echo: hello", id="a number that is not finite"
    ),
]


@pytest.mark.parametrize("more", [{}, {"seed": 1}], ids=["streamed", "whole"])
@pytest.mark.parametrize(("change", "begins"), MALFORMED)
async def test_an_answer_that_is_complete_but_malformed_is_stored_with_a_mark_and_never_computed_again(
    world: World, change: dict[str, Any], begins: str, more: dict[str, Any]
) -> None:
    world.engine.script({"match": "hello", "mode": "edit", **change})
    batch = await world.submit([{"prompt": "hello", **more}])
    async with world.worker(tuning=QUICK):
        await world.finished(batch)
    ok, tries, body = (await world.results(batch))[0]
    assert (ok, tries, world.engine.count["hello"]) == (1, 1, 1)
    assert body["choices"][0]["message"]["content"].startswith(begins)
    assert body["slackwater"]["repaired"]


@pytest.mark.parametrize(
    "item", [{"prompt": "hello", "seed": 1}, {"prompt": "hello", "raw": True, "seed": 1}, {"input": "hello"}]
)
async def test_tokens_that_the_engine_did_not_count_are_estimated(world: World, item: dict[str, Any]) -> None:
    world.engine.script({"match": "hello", "mode": "edit", "without": ["usage"]})
    batch = await world.submit([item])
    async with world.worker(tuning=QUICK):
        await world.finished(batch)
    ok, tries, body = (await world.results(batch))[0]
    assert (ok, tries, world.engine.count["hello"]) == (1, 1, 1)
    assert body["usage"]["total_tokens"] > 0
    assert body["slackwater"] == {"repaired": ["no usage: tokens are estimated"]}
    [(prompt, output)] = await world.fetch("select prompt_tokens, completion_tokens from item_result")
    assert prompt > 0
    assert output > 0


async def test_an_answer_that_cannot_be_stored_is_tried_once_more_and_fails_with_its_reason(world: World) -> None:
    world.engine.script({"match": "hello", "mode": "junk", "body": '{"choices": []}'})
    batch = await world.submit(["hello", "other"])
    async with world.worker(tuning=QUICK):
        await world.finished(batch)
    ok, tries, error = (await world.results(batch))[0]
    assert (ok, tries, world.engine.count["hello"]) == (0, 2, 2)
    assert "200 without choices" in error["message"]
    assert await world.fetch("select error from item_result where ok = 0") == [("not_stored",)]
