"""Claims about /v1/pipelines: what is created, refused, shown, paused, resumed and cancelled."""

from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest

from app.db.pool import Database
from app.engines.catalogue import Catalogue
from app.settings import Settings
from tests.api import in_process
from tests.api.support import MODEL, uploaded

Json = dict[str, Any]
URL = "/v1/pipelines"
ITEMS: list[Json] = [{"custom_id": name, "text": f"about {name}"} for name in ("a", "b", "c")]


def stage(name: str, content: str, **more: Any) -> Json:
    """A stage that asks the model."""
    return {"id": name, "model": MODEL, "body": {"messages": [{"role": "user", "content": content}]}} | more


def two(**more: Any) -> Json:
    """A pipeline of two stages over three lines."""
    stages = [stage("facts", "A fact.\n{{item.text}}"), stage("title", "A title.\n{{text}}")]
    return {"name": "facts", "input": {"items": ITEMS}, "stages": stages} | more


FANS = [stage(name, "{{each}}", each="json.list", max=1000) for name in ("b", "c", "d")]


async def created(client: httpx.AsyncClient, given: Json, **headers: str) -> Json:
    answer = await client.post(URL, json=given, headers=headers)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def test_a_pipeline_is_created_with_its_stages_as_batches(client: httpx.AsyncClient, database: Database) -> None:
    made = await created(client, two(completion_window="2h", budget={"usd": 3}))
    assert made["id"].startswith("pipe_")
    assert (made["status"], made["inputs"], made["name"]) == ("in_progress", 3, "facts")
    assert [(each["id"], each["after"], each["status"]) for each in made["stages"]] == [
        ("input", None, "completed"),
        ("facts", "input", "in_progress"),
        ("title", "facts", "in_progress"),
    ]
    assert made["cost"] == {"spent": 0.0, "currency": "USD", "budget": 3.0}
    assert made["expires_at"] - made["created_at"] == 7200
    assert made["stages"][2]["waiting"]["code"] == "dependency"
    assert made["definition"]["stages"][0]["id"] == "facts"
    shown = (await client.get(f"{URL}/{made['id']}")).json()
    assert shown["stages"] == made["stages"]
    assert [each["id"] for each in (await client.get(URL)).json()["data"]] == [made["id"]]
    batch = (await client.get(f"/v1/batches/{made['stages'][1]['batch']}")).json()
    assert batch["model"] == MODEL
    async with database.durable() as conn:
        marked = await (await conn.execute("select sum(cardinality(seqs)), bool_and(input) from handoff")).fetchone()
    assert marked == (3, True)


async def test_a_file_of_any_objects_is_an_input_and_limit_takes_its_beginning(client: httpx.AsyncClient) -> None:
    file_id = await uploaded(client, b"".join(orjson.dumps({"text": str(n)}) + b"\n" for n in range(5)))
    made = await created(client, two(input={"file_id": file_id}, limit=2))
    assert made["inputs"] == 2


async def test_an_input_of_too_many_lines_is_refused_with_its_field_and_taken_with_a_limit(
    settings: Settings, key: str
) -> None:
    async with in_process.running(settings.model_copy(update={"batch_items": 3}), key) as (_, client):
        lines = [{"text": str(n)} for n in range(4)]
        file_id = await uploaded(client, b"".join(orjson.dumps(line) + b"\n" for line in lines))
        for name, given in (("items", lines), ("file_id", file_id)):
            refused = await client.post(URL, json=two(input={name: given}))
            error = refused.json()["error"]
            assert (refused.status_code, error["param"]) == (400, f"input.{name}"), error
            assert f"input.{name}: has more than 3 lines" in error["message"]
            assert "several pipelines" in error["message"]
            assert (await created(client, two(input={name: given}, limit=3)))["inputs"] == 3


async def test_a_repeated_key_returns_the_pipeline_and_another_definition_is_refused(client: httpx.AsyncClient) -> None:
    first = await created(client, two(), **{"idempotency-key": "once"})
    assert (await created(client, two(), **{"idempotency-key": "once"}))["id"] == first["id"]
    other = await client.post(URL, json=two(name="other"), headers={"idempotency-key": "once"})
    assert other.status_code == 422
    assert len((await client.get(URL)).json()["data"]) == 1


@pytest.mark.parametrize(
    ("given", "param", "message"),
    [
        (two(stages=[stage("a", "x", model="nobody")]), "stages[0].model", "of stage 'a': no such model 'nobody'"),
        (
            two(stages=[stage("a", "x", escalate={"model": "y"})]),
            "stages[0].escalate.model",
            "of stage 'a': no such model",
        ),
        (two(stages=[stage("a", "{{itm}}")]), "stages[0].body.messages[0].content", "column 3"),
        (two(stages=[stage("a", "x"), stage("b", "y", when="json.x <")]), "stages[1].when", "column 9"),
        (
            two(stages=[{"id": "a", "model": MODEL, "body": {"messages": [{"role": "x\ny", "content": "y"}]}}]),
            "stages[0].body.messages[0].role",
            "of stage 'a': must be system, user",
        ),
        (two(input={"items": []}), "input.items", "at least one"),
        (two(input={"items": [{"custom_id": "a"}, {"custom_id": "a"}]}), "input.items", "used by an earlier line"),
        (two(input={"items": [{"text": "a"}, "b"]}), "input.items", "input.items[1]: must be a JSON object"),
        (two(input={"items": [{"custom_id": ""}]}), "input.items", "1 to 512 characters"),
        (two(input={"file_id": "file-1"}), "input.file_id", "no file of this account"),
        (two(input={"batch": "batch_1"}), "input.batch", "no batch or stage"),
        (two(stages=[stage("a", "x"), *FANS]), "stages[3].max", "allows 3,000,000,000 items for 3 lines"),
        (two(stagess=[]), "stagess", "did you mean stages?"),
    ],
)
async def test_what_could_not_run_is_refused_with_its_place(
    client: httpx.AsyncClient, given: Json, param: str, message: str
) -> None:
    for url in (URL, f"{URL}/check"):
        refused = await client.post(url, json=given)
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, param), error
        assert message in error["message"]
    assert (await client.get(URL)).json()["data"] == []


async def test_a_check_shows_requests_and_the_most_and_stores_nothing(client: httpx.AsyncClient) -> None:
    answer = (await client.post(f"{URL}/check", json=two())).json()
    facts, title = answer["stages"]
    assert facts["sample"][0]["body"]["messages"][0]["content"] == "A fact.\nabout a"
    assert title["sample"][0]["body"]["messages"][0]["content"] == "A title.\n{{text}}"
    assert (answer["inputs"], facts["most"]["items"], answer["most"]["items"]) == (3, 3, 6)
    assert title["most"]["prompt_tokens"] > facts["most"]["prompt_tokens"] > 0
    assert (await client.get(URL)).json()["data"] == []


async def test_a_check_reads_the_first_lines_of_a_file_as_a_create_does(client: httpx.AsyncClient) -> None:
    file_id = await uploaded(client, b'{"text": "a"}\n\n{"custom_id": 7}\n')
    for url in (URL, f"{URL}/check"):
        error = (await client.post(url, json=two(input={"file_id": file_id}))).json()["error"]
        assert error["param"] == "input.file_id"
        assert "line 3: custom_id must be a string" in error["message"]
        used = await client.post(url, json=two(input={"file_id": file_id}, limit=1))
        assert (used.status_code, used.json()["inputs"]) == (200, 1)


async def test_lines_of_a_check_have_the_names_that_a_create_gives_them(client: httpx.AsyncClient) -> None:
    items = [{"text": "a"}, {"custom_id": "own"}]
    given = two(input={"items": items}, stages=[stage("a", "{{item.custom_id}}")])
    sample = (await client.post(f"{URL}/check", json=given)).json()["stages"][0]["sample"]
    shown = [(each["custom_id"], each["body"]["messages"][0]["content"]) for each in sample]
    assert shown == [("0", "0"), ("own", "own")]


TEXT = "x" * 4000  # a thousand tokens


async def test_a_check_counts_the_largest_line_elements_of_lists_and_all_parts_of_a_pack(
    client: httpx.AsyncClient,
) -> None:
    items = [{"text": "a", "docs": ["b"]}, {"text": TEXT, "docs": ["c", TEXT]}, {"text": "d", "docs": []}]
    stages = [
        stage("whole", "{{item.text}}"),
        stage("cut", "{{item.text|400}}", after="input"),
        stage("doc", "{{each}}", after="input", each="item.docs", max=5),
        stage("pair", "{{parts.item.text}}", after="input", pack={"size": 2}),
        stage("later", "{{each}} of {{item.text}}: {{whole.text}}", after="whole", each="item.docs", max=5),
    ]
    found = (await client.post(f"{URL}/check", json=two(input={"items": items}, stages=stages))).json()["stages"]
    per_item = {each["id"]: each["most"]["prompt_tokens"] / each["most"]["items"] for each in found}
    answer = found[0]["most"]["answer_tokens"] / 3
    expected = {"whole": 1000, "cut": 100, "doc": 1000, "pair": 2000, "later": 2000 + answer}
    assert per_item == {name: pytest.approx(tokens, abs=30) for name, tokens in expected.items()}
    assert found[3]["sample"][0]["body"]["messages"][0]["content"] == "a"  # a pack is shown with one part


async def test_a_check_adds_no_amounts_of_several_currencies(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = in_process.application().state.parts.models
    models = registry.current.models
    other = models["@cf/moonshotai/kimi-k2.6"]
    given = two(stages=[stage("a", "x"), stage("b", "y", model=other.name)])
    one = (await client.post(f"{URL}/check", json=given)).json()
    assert one["most"]["cost"] == sum(each["most"]["cost"] for each in one["stages"])
    priced = {**models, other.name: replace(other, price=replace(other.price, currency="EUR"))}
    monkeypatch.setattr(registry, "_known", Catalogue(priced, priced))
    two_of = (await client.post(f"{URL}/check", json=given)).json()
    assert [each["most"]["currency"] for each in two_of["stages"]] == ["USD", "EUR"]
    assert (two_of["most"]["cost"], two_of["most"]["currency"]) == (None, None)


async def test_verbs_act_on_every_stage_and_on_no_stage_alone(client: httpx.AsyncClient) -> None:
    made = await created(client, two())
    url, stages = f"{URL}/{made['id']}", [each["batch"] for each in made["stages"][1:]]
    alone = await client.post(f"/v1/batches/{stages[0]}/cancel")
    assert alone.status_code == 409
    assert "stage of a pipeline" in alone.json()["error"]["message"]
    for verb, state in (("pause", "paused"), ("pause", "paused"), ("resume", "in_progress"), ("cancel", "cancelling")):
        shown = (await client.post(f"{url}/{verb}")).json()
        stages_are = "cancelled" if verb == "cancel" else state
        assert (shown["status"], {each["status"] for each in shown["stages"][1:]}) == (state, {stages_are})
    refused = await client.post(f"{url}/pause")
    assert refused.status_code == 409
    assert (await client.get(f"{URL}/pipe_{'0' * 32}")).status_code == 404


LINES = [
    {"custom_id": str(n), "body": {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}} for n in range(3)
]
BATCH: Json = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "requests": LINES}


async def test_then_returns_the_batch_of_the_last_stage_and_the_verbs_act_on_all(client: httpx.AsyncClient) -> None:
    stages = [stage("check", "Is it true?\n{{text}}"), stage("title", "A title.\n{{text}}")]
    made = await client.post("/v1/batches", json=BATCH | {"then": stages, "metadata": {"about": "facts"}})
    assert made.status_code == 200, made.text
    last = made.json()
    pipeline = (await client.get(f"{URL}/{last['pipeline']}")).json()
    assert [each["id"] for each in pipeline["stages"]] == ["input", "check", "title"]
    assert (pipeline["stages"][2]["batch"], pipeline["inputs"]) == (last["id"], 3)
    assert last["metadata"] == {"about": "facts"}
    assert [each["id"] for each in (await client.get("/v1/batches")).json()["data"]] == [last["id"]]
    assert (await client.post(f"/v1/batches/{last['id']}/pause")).json()["status"] == "paused"
    assert {each["status"] for each in (await client.get(f"{URL}/{last['pipeline']}")).json()["stages"]} == {"paused"}
    assert (await client.post(f"/v1/batches/{last['id']}/cancel")).json()["status"] == "cancelled"


@pytest.mark.parametrize(
    ("stages", "param"),
    [
        ([stage("a", "x", each="json.list")], "then[0].each"),
        ([stage("a", "{{item.x")], "then[0].body.messages[0].content"),
        ([stage("a", "x", model="nobody")], "then[0].model"),
        ([], "then"),
    ],
)
async def test_what_cannot_follow_a_batch_is_refused_with_its_place(
    client: httpx.AsyncClient, stages: list[Json], param: str
) -> None:
    refused = await client.post("/v1/batches", json=BATCH | {"then": stages})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert (await client.get("/v1/batches")).json()["data"] == []


async def test_a_batch_with_then_is_made_once_for_a_key(client: httpx.AsyncClient) -> None:
    file_id = await uploaded(
        client, b"".join(orjson.dumps({"method": "POST", "url": BATCH["endpoint"], **each}) + b"\n" for each in LINES)
    )
    given = {
        "input_file_id": file_id,
        "endpoint": BATCH["endpoint"],
        "completion_window": "24h",
        "idempotency_key": "k",
    }
    first = (await client.post("/v1/batches", json=given | {"then": [stage("a", "{{text}}")]})).json()
    again = (await client.post("/v1/batches", json=given | {"then": [stage("a", "{{text}}")]})).json()
    other = await client.post("/v1/batches", json=given | {"then": [stage("a", "no {{text}}")]})
    assert (again["id"], other.status_code) == (first["id"], 422)
