"""Claims about the deletion of pipelines: contents of all stages go at once, with the definition; counts and usage stay."""

import httpx

from app.audit import log
from app.db.pool import Database
from app.settings import Settings
from tests.api.test_pipelines import URL, Json, created, stage, two
from tests.pipelines.test_served import Played, echo, lines, shown

PLANTED = "Hv3-planted-in-a-pipeline"


def planted() -> Json:
    """A pipeline whose input, whose requests and whose definition have the text."""
    items = [{"custom_id": name, "text": f"{PLANTED} {name}"} for name in ("a", "b")]
    return two(
        input={"items": items},
        stages=[stage("facts", f"{PLANTED}\n{{{{item.text}}}}"), stage("title", "A title.\n{{text}}")],
    )


async def contents(database: Database) -> list[tuple[str, int]]:
    """Rows with contents, by table."""
    async with database.durable() as conn:
        query = """select 'item_payload', count(*) from item_payload union all select 'item_result', count(*) from item_result
          union all select 'batch_key', count(*) from batch_key
          union all select 'definition', count(*) from pipeline where definition <> ''"""
        return [(name, count) for name, count in await (await conn.execute(query)).fetchall() if count]


async def test_a_pipeline_that_has_ended_is_deleted_with_all_of_its_stages(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    made = await created(client, planted())
    path = f"{URL}/{made['id']}"
    refused = await client.delete(path)
    assert (refused.status_code, "cancel it or wait" in refused.text) == (409, True)
    await Played(database, settings, echo).play()
    before = await shown(client, made)
    assert (before["status"], len(await lines(client, made))) == ("completed", 2)
    a_stage = await client.delete(f"/v1/batches/{made['stages'][1]['batch']}")
    assert (a_stage.status_code, "delete the pipeline" in a_stage.text) == (409, True)

    for _ in range(2):  # a repeated call has no effect
        answer = await client.delete(path)
        assert (answer.status_code, answer.json()) == (200, {"id": made["id"], "object": "pipeline", "deleted": True})
    assert await contents(database) == []
    after = await shown(client, made)
    assert (after["definition"], after["deleted_at"] is None) == (None, False)
    kept = ("status", "request_counts", "cost", "run")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert [each["usage"] for each in after["stages"]] == [each["usage"] for each in before["stages"]]
    for gone in (f"{path}/results", f"/v1/batches/{made['stages'][1]['batch']}"):
        assert PLANTED not in (await client.get(gone)).text
    assert (await client.get(f"{path}/results")).status_code == 410
    assert (await client.get(f"{path}/items/a")).status_code == 404
    assert (await client.post(f"{path}/retry")).status_code == 409
    assert [each["id"] for each in (await client.get(URL)).json()["data"]] == [made["id"]]
    async with database.relaxed() as conn:
        acts = [(row.act, row.target) for row in await log.latest(conn) if "shred" in row.act]
        events = await (await conn.execute("select count(*) from event where kind = 'batch.shredded'")).fetchone()
    assert acts == [("pipeline.shred", made["id"])]
    assert events == (3,)
