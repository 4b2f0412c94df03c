"""The definitions in examples/pipelines, run to their end by the real feeder, with a worker that answers as a model might.

The default run takes a few lines of input, the slow one a thousand.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from app.db.pool import Database
from app.settings import Settings
from tests.pipelines.test_served import Played, echo, lines, shown

FOLDER = Path(__file__).parents[2] / "examples/pipelines"
SIZES = [20, pytest.param(1000, marks=pytest.mark.slow)]
Json = dict[str, Any]


async def _submitted(client: httpx.AsyncClient, name: str, items: list[Json]) -> Json:
    definition = orjson.loads((FOLDER / f"{name}.json").read_bytes()) | {"input": {"items": items}}
    answer = await client.post("/v1/pipelines", json=definition)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def _stages(found: Json) -> dict[str, tuple[int, int]]:
    """Of each stage, how many items it has, and how many of them were requests or were parked."""
    return {each["id"]: (each["request_counts"]["total"], each["items"]["ran"]) for each in found["stages"]}


def _text(line: Json) -> str:
    return str(line["answer"]["choices"][0]["message"]["content"])


@pytest.mark.parametrize("count", SIZES)
async def test_tickets_of_which_the_doubtful_go_to_a_larger_model(
    client: httpx.AsyncClient, database: Database, settings: Settings, count: int
) -> None:
    """One in ten is doubtful, one in ten not valid at first; half of all are of billing."""
    asked = Counter[str]()

    def answer(body: Json) -> str:
        said = body["messages"][-1]["content"]
        if "ticket" not in said:  # asked again
            return '{"team": "product", "confidence": 0.9}'
        if said.startswith("Draft"):
            return f"Dear customer, {said[-8:]}"
        number, large = int(said.rpartition(" ")[2]), asked[said] > 0
        asked[said] += 1
        if number % 10 == 3 and not large:
            return "billing, I think"
        team = "billing" if number % 2 == 0 else "delivery"
        return orjson.dumps({"team": team, "confidence": 0.4 if number % 10 == 4 and not large else 0.9}).decode()

    made = await _submitted(
        client, "tickets", [{"custom_id": f"t{n}", "text": f"This is ticket {n}"} for n in range(count)]
    )
    await Played(database, settings, answer).play(200)
    ended = await shown(client, made)
    tenth = count // 10
    assert ended["status"] == "completed", ended
    assert _stages(ended) == {
        "input": (count, 0),
        "classify": (count, count),
        "classify.reask": (count, tenth),
        "classify.escalate": (count, tenth),
        "reply": (count // 2, count // 2),
    }
    found = {each["custom_id"]: _text(each) for each in await lines(client, made)}
    assert found == {f"t{n}": f"Dear customer, {f'ticket {n}'[-8:]}" for n in range(0, count, 2)}


@pytest.mark.parametrize("count", SIZES)
async def test_documents_are_summarised_by_section_by_document_and_all_together(
    client: httpx.AsyncClient, database: Database, settings: Settings, count: int
) -> None:
    items = [
        {"custom_id": f"d{n}", "title": f"Volume {n}", "sections": [f"s{n}.{k}" for k in range(n % 4)]}
        for n in range(count)
    ]
    made = await _submitted(client, "documents", items)
    seen = list[str]()

    def answer(body: Json) -> str:
        seen.append(body["messages"][-1]["content"])
        return echo(body)

    await Played(database, settings, answer).play(400)
    ended = await shown(client, made)
    full = [each for each in items if each["sections"]]
    sections, shelves = sum(len(each["sections"]) for each in items), -(-count // 40)
    assert ended["status"] == "completed", ended
    assert _stages(ended) == {
        "input": (count, 0),
        "section": (sections, sections),
        "document": (len(full), len(full)),
        "shelf": (shelves, shelves),
        "all": (1, 1),
    }
    whole = next(said for said in seen if "from the summaries" in said and "Volume 3 " in said)
    assert whole.endswith("of its 3 sections.\ns3.0\n\ns3.1\n\ns3.2")
    assert seen[-1].startswith(f"Write an overview from {shelves} notes.")


@pytest.mark.parametrize("count", [5, pytest.param(1000, marks=pytest.mark.slow)])
async def test_a_judge_chooses_the_best_of_eight(
    client: httpx.AsyncClient, database: Database, settings: Settings, count: int
) -> None:
    class Several(Played):
        def result(self, seq: int, body: Json) -> Any:
            found = super().result(seq, body)
            if "n" not in body:
                return found
            choices = [{"index": k, "message": {"content": f"{echo(body)} v{k}"}} for k in range(body["n"])]
            return found._replace(body=orjson.dumps({"choices": choices, "usage": {}}))

    def answer(body: Json) -> str:
        said = body["messages"][-1]["content"]
        question = said.partition("\n")[0].rpartition(" ")[2]
        return orjson.dumps({"best": int(question) % 8}).decode() if "Which of these" in said else said

    questions = [{"custom_id": f"q{n}", "question": f"What is {n}"} for n in range(count)]
    made = await _submitted(client, "judge", questions)
    await Several(database, settings, answer).play(200)
    ended = await shown(client, made)
    assert (ended["status"], _stages(ended)["judge"]) == ("completed", (count, count))
    found = {
        each["custom_id"]: [c["message"]["content"] for c in each["answer"]["choices"]]
        for each in await lines(client, made)
    }
    assert found == {f"q{n}": [f"What is {n} v{n % 8}"] for n in range(count)}


async def test_code_that_a_model_writes_is_run_outside_and_explained(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    made = await _submitted(client, "code", [{"custom_id": f"c{n}", "task": f"Print {n}"} for n in range(2)])
    played = Played(database, settings)
    await played.play()
    waiting = (await client.get(f"/v1/pipelines/{made['id']}/waiting")).json()["data"]
    assert [each["body"] for each in waiting] == [{"code": f"Print {n}", "session": f"c{n}"} for n in range(2)]
    for n, each in enumerate(waiting):
        path = f"/v1/pipelines/{made['id']}/items/{each['id']}/answer"
        sent = await client.post(path, json={"answer": {"exit_code": n, "output": "42\n"}})
        assert sent.status_code == 200, sent.text
    await played.play()
    ended = await shown(client, made)
    assert (ended["status"], _stages(ended)["explain"]) == ("completed", (1, 1))
    assert [each["custom_id"] for each in await lines(client, made)] == ["c0"]
