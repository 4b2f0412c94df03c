"""Claims about pipelines as callers see them while they run: results, lineage, cost, events, pauses, `then`, retry."""

from collections.abc import Callable, Mapping
from typing import Any

import httpx
import orjson
import pytest

from app.admission.control import AdmissionControl
from app.batches import lifecycle as batches
from app.db.pool import Connection, Database
from app.engines import catalogue
from app.pipelines import lifecycle, verbs
from app.pipelines.feeding import Feeder
from app.policy import service as policies
from app.queue import chunk_sweeps, service, stages
from app.queue.types import Result
from app.settings import Settings
from tests.api import in_process
from tests.api.support import MODEL
from tests.api.test_pipelines import BATCH, URL, Json, created, stage, two
from tests.queue import support

Answer = Callable[[Json], str | None]
OTHER = "@cf/moonshotai/kimi-k2.6"  # the engines of MODEL answer here, too
TO_OTHER = f'[[rule]]\nid = "vip"\nwhen = {{ end_user = "vip" }}\nroute = "{OTHER}"\n'


def echo(body: Json) -> str | None:
    """The last line of the prompt."""
    return str(body["messages"][-1]["content"]).rpartition("\n")[2]


class Played:
    """Plays feeder, worker and steward until nothing moves."""

    def __init__(self, database: Database, settings: Settings, answer: Answer = echo) -> None:
        self.database, self.answer = database, answer
        self.feeder = Feeder(database, settings, AdmissionControl.of(database, settings))
        self.worker: int | None = None

    async def play(self, rounds: int = 30) -> None:
        for _ in range(rounds):
            moved = False
            while await self.feeder.step():
                moved = True
            moved |= await self.work()
            await self.settle()
            if not moved:
                return

    async def work(self) -> bool:
        async with self.database.durable() as conn:
            rows = await (await conn.execute("select pool_id from pool where model = %s", (MODEL,))).fetchall()
            if not rows:
                return False
            self.worker = self.worker or await support.make_worker(self.database, rows[0][0], lease_seconds=600)
            moved = False
            while lease := await support.claim(conn, rows[0][0], self.worker):
                items = await service.load(conn, lease)
                results = [self.result(item.seq, orjson.loads(item.body)) for item in items]
                assert await service.flush(conn, lease, results, feeds=any(item.feeds for item in items))
                assert await service.finish(conn, lease) is not None
                moved = True
        return moved

    def result(self, seq: int, body: Json) -> Result:
        text = self.answer(body)
        if text is None:
            return Result(seq, False, 1, 0, 0, 0, b'{"code":5001,"message":"no"}', error="engine")
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        answer = {"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}}
        return Result(seq, True, 1, 100, 0, 10, orjson.dumps(answer))

    async def settle(self) -> None:
        async with self.database.relaxed() as conn:
            await chunk_sweeps.sweep(conn)
        async with self.database.transaction() as conn:
            await batches.settle(conn, tell=lifecycle.tell_stages)
        async with self.database.transaction() as conn:
            await lifecycle.pause_exceeded(conn)
        async with self.database.transaction() as conn:
            found = await verbs.unfinished(conn)
            await lifecycle.tell_ends(conn, await verbs.end(conn, found))
            await stages.awake(conn, found)


async def kinds(conn: Connection) -> list[tuple[str, Any]]:
    """The events of pipelines in their order, with the stage."""
    rows = await (await conn.execute("select kind, data from event order by event_id")).fetchall()
    found = [(kind, orjson.loads(data).get("stage")) for kind, data in rows]
    return [each for each in found if each[0].startswith(("pipeline", "stage"))]


async def lines(client: httpx.AsyncClient, made: Json, **query: Any) -> list[Json]:
    answer = await client.get(f"{URL}/{made['id']}/results", params=query)
    assert answer.status_code == 200, answer.text
    return [orjson.loads(each) for each in answer.text.splitlines()]


async def shown(client: httpx.AsyncClient, made: Mapping[str, Any]) -> Json:
    found: Json = (await client.get(f"{URL}/{made['id']}")).json()
    return found


async def test_a_pipeline_runs_to_its_end_with_results_lineage_cost_and_events(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    made = await created(client, two())
    played = Played(database, settings)
    while await played.feeder.step():
        pass
    assert await played.work()
    halfway = await lines(client, made, stage="facts")
    assert [each["custom_id"] for each in halfway] == ["a", "b", "c"]
    assert await lines(client, made) == []
    await played.play()
    ended = await shown(client, made)
    assert (ended["status"], ended["request_counts"]) == ("completed", {"total": 6, "completed": 6, "failed": 0})
    assert [each["status"] for each in ended["stages"]] == ["completed"] * 3
    assert ended["cost"]["spent"] == pytest.approx(6 * (100 * 0.02 + 10 * 0.05) / 1e6)
    last = await lines(client, made)
    assert [each["answer"]["choices"][0]["message"]["content"] for each in last] == [f"about {n}" for n in "abc"]
    assert [each["seq"] for each in await lines(client, made, stage="title", after=1)] == [2]
    item = (await client.get(f"{URL}/{made['id']}/items/b")).json()
    assert [(each["stage"], each["state"], len(each["items"])) for each in item["stages"]] == [
        ("input", "done", 1),
        ("facts", "done", 1),
        ("title", "done", 1),
    ]
    assert item["stages"][1]["items"][0]["prompt_tokens"] == 100
    assert (await client.get(f"{URL}/{made['id']}/items/z")).status_code == 404
    async with database.relaxed() as conn:
        assert await kinds(conn) == [
            ("pipeline.queued", None),
            ("stage.ended", "facts"),
            ("stage.ended", "title"),
            ("pipeline.succeeded", None),
        ]


async def test_a_pipeline_that_has_used_its_budget_pauses_and_goes_on_with_a_larger_one(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    made = await created(client, two(budget={"usd": 0.000005}))
    played = Played(database, settings)
    await played.play()
    paused = await shown(client, made)
    assert (paused["status"], paused["paused_for"], paused["waiting"]["code"]) == ("paused", "budget", "budget")
    assert {each["waiting"]["code"] for each in paused["stages"][1:] if each["waiting"]} == {"budget"}
    await client.post(f"{URL}/{made['id']}/resume", json={"budget": {"usd": 1}})
    await played.play()
    assert (await shown(client, made))["status"] == "completed"


async def test_a_pipeline_pauses_when_a_fifth_of_a_stage_fails_and_goes_on_if_its_owner_wants(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    items = [{"text": "bad" if n % 5 == 0 else "good"} for n in range(60)]
    made = await created(client, two(input={"items": items}))
    played = Played(database, settings, lambda body: None if "bad" in str(body) else "fine")
    await played.play()
    paused = await shown(client, made)
    assert (paused["status"], paused["paused_for"]) == ("paused", "failing")
    await client.post(f"{URL}/{made['id']}/resume")
    await played.play()
    ended = await shown(client, made)
    assert (ended["status"], ended["stages"][2]["request_counts"]["completed"]) == ("completed", 48)
    assert ended["stages"][2]["items"]["dropped"] == 12
    dropped = (await client.get(f"{URL}/{made['id']}/items/0")).json()["stages"]
    assert [each["state"] for each in dropped] == ["done", "failed", "dropped"]
    assert dropped[1]["items"][0]["why"] == "no"


async def test_a_pipeline_that_has_ten_times_as_many_items_as_its_input_pauses_and_goes_on_if_its_owner_wants(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    for size, status in ((10, "completed"), (11, "paused")):
        stages = [stage("fan", "{{each}}", each="item.list", max=20), stage("title", "{{text}}")]
        made = await created(client, two(input={"items": [{"list": list(range(size))}]}, stages=stages))
        played = Played(database, settings)
        await played.play()
        assert (await shown(client, made))["status"] == status
    assert (await shown(client, made))["paused_for"] == "items"
    await client.post(f"{URL}/{made['id']}/resume")
    await played.settle()
    assert (await shown(client, made))["status"] == "in_progress"
    await played.play()
    assert (await shown(client, made))["status"] == "completed"


SPLIT = [
    stage("words", "split: {{item.text}}"),
    stage("letters", "{{k}}. {{each}} of {{item.text}}", each="json.words", max=3),
    stage("line", "{{item.text}}, {{words.json.words[0]}}: {{count}}/{{missing}} {{parts.text}}", pack={"of": "words"})
    | {"when": "json.length > 3"},
    stage("pair", "{{count}}: {{parts.item.text}}", after="words", pack={"size": 2}),
    stage("alike", "{{count}}: {{parts.text}}", after="letters", pack={"by": "json.length"}),
    stage("two", "{{text}} and {{item.text}}", after="words", when='"two" in item.text'),
]
# What each of them asks, written by hand: neither a template nor a number of an item is computed here.
ASKED = {
    "words": ["split: four six", "split: one two", "split: three"],
    "letters": ["0. four of four six", "0. one of one two", "0. three of three", "1. six of four six", "1. two of one two"],
    "line": ['four six, four: 1/1 {"length":4}', 'three, three: 1/0 {"length":5}'],
    "pair": ["1: four six", "2: one two\n\nthree"],
    "alike": ['1: {"length":4}', '1: {"length":5}', '3: {"length":3}\n\n{"length":3}\n\n{"length":3}'],
    "two": ['{"words":["one","two"]} and one two'],
}  # fmt: skip


def split(body: Json) -> str:
    """The words of a line, or the length of a word."""
    prompt = str(body["messages"][0]["content"])
    if prompt.startswith("split: "):
        return orjson.dumps({"words": prompt.split()[1:]}).decode()
    return orjson.dumps({"length": len(prompt.split()[1])}).decode()


async def test_each_stage_asks_what_its_definition_says_of_each_line_and_no_more(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    given = [{"text": text} for text in ("one two", "three", "four six")]
    made = await created(client, two(input={"items": given}, stages=SPLIT))
    await Played(database, settings, split).play()
    assert (await shown(client, made))["status"] == "completed"
    asked: dict[str, list[str]] = {}
    async with database.relaxed() as conn:
        query = "select s.name, p.body from stage s join item_payload p using (batch_id) where s.n > 0"
        for name, body in await (await conn.execute(query)).fetchall():
            asked.setdefault(name, []).append(orjson.loads(body)["messages"][0]["content"])
    assert {name: sorted(prompts) for name, prompts in asked.items()} == ASKED


async def test_a_retry_runs_what_failed_and_what_comes_of_it(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    made = await created(client, two())
    await Played(database, settings, lambda body: None if "about b" in str(body) else "fine").play()
    assert (await shown(client, made))["stages"][2]["request_counts"]["total"] == 2
    again = await client.post(f"{URL}/{made['id']}/retry")
    assert (again.status_code, again.json()["run"]) == (200, 2), again.text
    await Played(database, settings).play()
    ended = await shown(client, made)
    assert (ended["status"], ended["stages"][2]["request_counts"]["completed"]) == ("completed", 3)
    assert (await client.post(f"{URL}/{made['id']}/retry")).status_code == 409
    assert (await client.post(f"{URL}/{made['id']}/retry", params={"run": 1})).status_code == 200


async def test_a_batch_with_then_ends_in_one_file_with_a_line_for_each_of_its_lines(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    requests = [
        {"custom_id": name, "body": {"model": MODEL, "messages": [{"role": "user", "content": f"say {name}"}]}}
        for name in "abc"
    ]
    stages = [stage("loud", "Loud:\n{{text}}", when='text != "say b"')]
    last = (await client.post("/v1/batches", json=BATCH | {"requests": requests, "then": stages})).json()
    await Played(database, settings).play()
    ended = (await client.get(f"/v1/batches/{last['id']}")).json()
    assert (ended["status"], ended["request_counts"]["completed"]) == ("completed", 3)
    content = (await client.get(f"/v1/files/{ended['output_file_id']}/content")).text
    answers = {each["custom_id"]: each["response"]["body"] for each in map(orjson.loads, content.splitlines())}
    assert {name: body["choices"][0]["message"]["content"] for name, body in answers.items()} == {
        name: f"say {name}" for name in "abc"
    }
    assert (await client.post(f"/v1/batches/{last['id']}/retry")).status_code == 409


async def test_a_retry_of_a_batch_with_then_runs_each_line_on_the_model_that_it_was_moved_to(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    async with database.transaction() as conn:
        await policies.apply(conn, TO_OTHER, catalogue.load(settings.models_file), "test")
    await in_process.application().state.parts.admission.policy.renew()

    def line(name: str, user: str) -> Json:
        body = {"model": MODEL, "user": user, "messages": [{"role": "user", "content": name}]}
        return {"custom_id": name, "body": body}

    async def queued() -> list[tuple[object, ...]]:
        query = """select l.model, sum(c.n)::int from chunk c join batch b using (batch_id)
          join line l on l.line_id = coalesce(c.line_id, b.line_id) group by 1 order by 1"""
        async with database.relaxed() as conn:
            return [tuple(row) for row in await (await conn.execute(query)).fetchall()]

    requests = [line("a", "any"), line("b", "vip"), line("c", "vip"), line("d", "vip")]
    given = BATCH | {"requests": requests, "then": [stage("title", "{{text}}")]}
    last = (await client.post("/v1/batches", json=given)).json()
    before = await queued()
    assert before == [(OTHER, 3), (MODEL, 1)]
    await client.post(f"/v1/batches/{last['id']}/cancel")
    await Played(database, settings).play()
    assert await queued() == []
    again = await client.post(f"/v1/batches/{last['id']}/retry")
    assert again.status_code == 200, again.text
    assert await queued() == before


async def test_a_check_of_a_batch_counts_its_answers_and_shows_none(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    first = await created(client, two())
    await Played(database, settings, lambda body: "long " * 800).play()
    for given in ({"batch": each["batch"]} for each in first["stages"][1:]):
        stages = [stage("again", "{{item.text}}: {{text}}", when="ok"), stage("after", "{{input.text}} {{again.text}}")]
        found = await client.post(f"{URL}/check", json={"input": given, "stages": stages})
        assert found.status_code == 200, found.text
        again, after = found.json()["stages"]
        assert again["most"]["items"] == 3
        assert 3 * 1000 < again["most"]["prompt_tokens"] < 3 * 1100
        more = after["most"]["prompt_tokens"] - again["most"]["prompt_tokens"]
        assert more == pytest.approx(again["most"]["answer_tokens"], abs=30)
        assert "long" not in found.text


async def test_a_batch_or_a_stage_is_the_input_of_another_pipeline(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    first = await created(client, two())
    stages = [stage("again", "{{item.text}}: {{text}}", when="ok")]
    source = first["stages"][1]["batch"]
    made = await created(client, {"input": {"batch": source}, "stages": stages})
    assert made["stages"][0]["waiting"]["message"] == "waits for the end of the batch that is its input"
    await Played(database, settings).play()
    ended = await shown(client, made)
    assert (ended["status"], ended["inputs"], ended["stages"][1]["request_counts"]["completed"]) == ("completed", 3, 3)
