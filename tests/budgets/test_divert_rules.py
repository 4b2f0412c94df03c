"""Claims about diverted work: which fallback the policy lets answer it, and where the models that it has are named."""

from dataclasses import replace
from decimal import Decimal

import orjson
import pytest

from app.budgets import queued
from app.engines.catalogue import Catalogue, Model, Price
from app.policy import service
from app.queue import batch_state, reads
from tests.budgets.world import MODEL, World
from tests.queue import support


def _cheap(name: str) -> Model:
    return replace(MODEL, name=name, served=name, price=Price(Decimal(1), Decimal(1), Decimal(1)))


KNOWN = {"toy": MODEL, "small": _cheap("small"), "tiny": _cheap("tiny")}
MODELS = Catalogue(KNOWN, KNOWN)


async def _diverting(world: World, fallback: list[str], more: str = "") -> None:
    """A budget of which more is spent than the share for a fallback, and the rule, before others."""
    await world.moves(MODELS, fallback, more=more)
    await world.budget(max_tokens=100_000)
    async with world.database.durable() as conn:
        await conn.execute("update budget set spent = 85000")


async def _reserve(world: World) -> None:
    while await queued.reserve(world.database, MODELS):
        await support.serve_all(world.database)


async def _models(world: World) -> list[str]:
    return sorted(
        str(name) for (name,) in await world.rows("select distinct p.model from chunk join pool p using (pool_id)")
    )


async def _messages(world: World) -> list[str]:
    rows = await world.rows("select data from event where kind = 'budget.diverted' order by event_id")
    return [orjson.loads(data)["message"] for (data,) in rows]


@pytest.mark.parametrize(
    ("rule", "taken"),
    [
        ('deny = { models = ["small"] }', ["tiny"]),
        ('allow = { models = ["toy", "tiny"] }', ["tiny"]),
        (
            'when = { account = "acme", key = "key", workflow = "w", kind = "batch" }\nallow = { models = ["toy"] }',
            ["toy"],
        ),
        ('when = { workflow = "another" }\ndeny = { models = ["small"] }', ["small"]),
        ('when = { kind = "sync" }\ndeny = { models = ["small"] }', ["small"]),
        ('when = { critical = true }\ndeny = { models = ["small"] }', ["small"]),
        ('when = { est_tokens = ">=100000" }\ndeny = { models = ["small"] }', ["tiny"]),
        ('when = { end_user = "somebody" }\ndeny = { models = ["small"] }', ["tiny"]),
        ('when = { model = "small" }\ndeny = true', ["tiny"]),
        ('observe = true\ndeny = { models = ["small"] }', ["small"]),
    ],
)
async def test_a_budget_diverts_to_no_model_that_a_rule_might_forbid(world: World, rule: str, taken: list[str]) -> None:
    await _diverting(world, ["small", "tiny"], f'[[rule]]\nid = "only"\n{rule}\n')
    await world.submit(4)
    await _reserve(world)
    assert await _models(world) == taken


async def test_the_first_rule_that_surely_matches_decides(world: World) -> None:
    first = '[[rule]]\nid = "first"\nallow = { models = ["toy", "small"] }\n'
    await _diverting(world, ["small"], first + '[[rule]]\nid = "second"\nallow = { models = ["toy"] }\n')
    await world.submit(4)
    await _reserve(world)
    assert await _models(world) == ["small"]


async def test_work_is_not_diverted_while_the_policy_cannot_be_read(world: World) -> None:
    await _diverting(world, ["small"])
    async with world.database.transaction() as conn:
        await conn.execute("insert into policy (hash, text, by) values ('', '[[rule]]\nid = 3', 'a newer version')")
    await world.submit(4)
    await _reserve(world)
    assert await _models(world) == ["toy"]


@pytest.mark.parametrize(
    "more", ["", ', workflow = "w"', ', est_tokens = "<=4000"', ', workflow = "v"', ', end_user = "u"']
)
async def test_only_a_rule_that_surely_holds_for_all_of_the_work_moves_it(world: World, more: str) -> None:
    rule = f'[[rule]]\nid = "r"\nwhen = {{ budget = ">=80"{more} }}\nfallback = ["small"]\n'
    async with world.database.transaction() as conn:
        await service.apply(conn, rule, MODELS, "test")
    await world.budget(max_tokens=100_000)
    async with world.database.durable() as conn:
        await conn.execute("update budget set spent = 85000")
    await world.submit(4)
    await _reserve(world)
    assert await _models(world) == (["small"] if more in ("", ', workflow = "w"') else ["toy"])


async def test_all_that_waits_is_diverted_before_money_is_reserved_for_any_of_it(world: World) -> None:
    await _diverting(world, ["small"])
    await world.submit(300, chunk=1)
    await _reserve(world)
    assert await _models(world) == ["small"]


async def test_a_diverted_batch_names_its_models_and_its_events_do(world: World) -> None:
    await _diverting(world, ["small"])
    batch_id = await world.submit(4)
    await _reserve(world)
    [(request_id,)] = await world.rows("select request_id from batch")
    async with world.database.durable() as conn:
        [(small,)] = await (await conn.execute("select pool_id from pool where model = 'small'")).fetchall()
    await support.drain(world.database, small, await world.serve(small))
    await world.settle()
    status = await reads.status(world.database, world.tenant, request_id)
    assert status is not None
    assert (status.model, status.diverted_to, status.has_one_model) == ("toy", ["small"], False)
    [(data,)] = await world.rows("select data from event where kind = 'batch.succeeded' and batch_id = %s", batch_id)
    assert orjson.loads(data)["diverted_to"] == ["small"]


async def test_each_model_that_work_is_diverted_to_has_an_event_of_its_own_in_each_window(world: World) -> None:
    await _diverting(world, ["small"])
    await world.submit(4)
    await _reserve(world)
    await world.submit(4)
    await _reserve(world)
    assert len(await _messages(world)) == 1
    await _diverting(world, ["tiny"])
    await world.submit(4)
    await _reserve(world)
    messages = await _messages(world)
    assert ["use small" in messages[0], "use tiny" in messages[1], len(messages)] == [True, True, 2]
    await world.turn()
    await _diverting(world, ["tiny"])
    await world.submit(4)
    await _reserve(world)
    assert len(await _messages(world)) == 3


async def test_a_retry_of_diverted_work_still_names_the_model(world: World) -> None:
    await _diverting(world, ["small"])
    batch_id = await world.submit(4)
    await _reserve(world)
    async with world.database.durable() as conn:
        await conn.execute("delete from chunk where batch_id = %s", (batch_id,))
        await conn.execute(
            "update batch set state = 'cancelled', finalized_at = now() where batch_id = %s", (batch_id,)
        )
        [(request_id,)] = await (await conn.execute("select request_id from batch")).fetchall()
        reopened = await batch_state.reopen(conn, world.tenant, request_id, None)
    assert reopened is not None
    status = await reads.status(world.database, world.tenant, request_id)
    assert status is not None
    assert status.diverted_to == ["small"]
