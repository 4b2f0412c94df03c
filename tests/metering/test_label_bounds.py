"""Claims about the labels of accounts that have too many: none that a budget names is lost, so no work escapes its budget."""

import pytest

from app.batches import batch_usage
from app.budgets import service as budgets
from app.metering import ledger, lines
from app.metering.lines import LineParts, Lines
from app.metering.spend_labels import SpendLabels
from tests.budgets.world import PRICE, World


async def fill_workflows(world: World) -> None:
    labels = [SpendLabels(f"w{n}") for n in range(lines.MOST_WORKFLOWS)]
    wanted = [lines.parts_of(world.tenant, "key", each, "toy", "batch", PRICE) for each in labels]
    await Lines().ids(world.database, wanted)


async def line_of(world: World, workflow: str) -> int:
    """The line of a workflow, as submits of this process find it."""
    parts = lines.parts_of(world.tenant, "key", SpendLabels(workflow), "toy", "batch", PRICE)
    return (await batch_usage.line_ids(world.database, [parts]))[parts]


async def test_a_workflow_beyond_an_accounts_limit_keeps_its_label_if_a_budget_names_it(world: World) -> None:
    await fill_workflows(world)
    other = await line_of(world, "late")
    await world.submit(4, line=other)
    assert await line_of(world, "later") == other
    await world.budget(max_tokens=10**6, workflow="late")
    late = await line_of(world, "late")  # this process has known it as `other`
    assert late != other
    assert await line_of(world, "later") == other
    await world.submit(4, line=late)
    assert await world.states() == {"ready": 1, "unreserved": 1}
    await world.reserve()
    assert (await world.state()).reserved == 44
    await world.drain()
    await world.settle()
    assert ((await world.state()).reserved, (await world.state()).spent) == (0, 32)
    async with world.database.transaction() as conn:
        await budgets.remove(conn, world.tenant, "b")
    assert await line_of(world, "late") == late


def of_key(world: World, key: str, **labels: str) -> LineParts:
    return lines.parts_of(world.tenant, key, SpendLabels(**labels), "toy", lines.SYNC, PRICE)


async def recorded(world: World, *wanted: LineParts) -> list[tuple[object, ...]]:
    """Key, workflow, task, variant and family of the lines that they get."""
    ids = await Lines().ids(world.database, wanted)
    query = "select key_id, workflow, task, variant, family from line where line_id = %s"
    return [tuple(row) for line_id in ids for row in await world.rows(query, line_id)]


async def test_with_too_many_lines_key_and_workflow_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_LINES", 1)
    wanted = of_key(world, "key", workflow="x", task="t", variant="v", family="f")
    assert await recorded(world, wanted) == [("key", "x", "other", "other", "other")]


async def test_random_variants_of_one_key_use_up_its_own_limit_and_no_key_is_lost(world: World) -> None:
    many = [of_key(world, "attacker", workflow=f"w{n}", variant=f"v{n}", task=f"t{n}") for n in range(1000)]
    found = await recorded(world, *many)
    assert len(set(found)) < 3 * lines.MOST_WORKFLOWS
    assert {key for key, *_ in found} == {"attacker"}
    assert found[-1] == ("attacker", "other", "other", "other", "-")
    victim = of_key(world, "billing", workflow="billing", task="invoices", variant="b")
    assert await recorded(world, victim) == [("billing", "billing", "invoices", "b", "-")]


async def test_many_keys_use_up_the_labels_of_an_account_and_each_is_still_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST_VARIANTS", 2)
    wanted = [of_key(world, f"k{n}", variant=f"v{n}") for n in range(6)]
    found = await recorded(world, *wanted)
    assert [(key, variant) for key, _, _, variant, _ in found] == [
        ("k0", "v0"), ("k1", "v1"), ("k2", "v2"), ("k3", "other"), ("k4", "other"), ("k5", "other"),
    ]  # fmt: skip  # the account has the variant `-`, too


async def test_the_share_of_the_labels_that_is_used_is_a_gauge(world: World) -> None:
    wanted = [of_key(world, "key", variant=f"v{n}") for n in range(16)]
    await recorded(world, *wanted)
    async with world.database.durable() as conn:
        await ledger.note_check(conn, 0)
        gauges = await ledger.gauges(conn)
    assert ("labels_used_ratio", "acme/variant", 17 / lines.MOST_VARIANTS) in gauges
    assert {label for name, label, _ in gauges if name == "labels_used_ratio"} == {"acme/variant"}


async def remove_unused(world: World) -> int:
    """A day later."""
    async with world.database.transaction() as conn:
        await conn.execute(
            "update line set created_at = created_at - interval '2 days', unused_since = unused_since - interval '2 days'"
        )
        return await lines.remove_unused(conn)


async def test_a_line_that_nothing_uses_goes_and_its_labels_make_room(world: World) -> None:
    await recorded(world, of_key(world, "key", variant="once"))
    await world.submit(4)
    assert await remove_unused(world) == 0  # it is only marked
    assert await remove_unused(world) == 1
    assert await world.rows("select variant, line_id = %s from line", world.line) == [("-", True)]
    await world.drain()
    await world.settle()
    await world.rows("delete from batch returning 1")
    assert [await remove_unused(world) for _ in range(3)] == [0, 0, 0]  # it has usage


async def test_a_line_that_is_looked_up_again_stays(world: World) -> None:
    wanted = of_key(world, "key", variant="v")
    await recorded(world, wanted)
    for _ in range(3):
        await remove_unused(world)
        found = await recorded(world, wanted)
    assert found == [("key", "default", "-", "v", "-")]


async def test_a_line_of_items_that_can_be_retried_stays(world: World) -> None:
    await world.submit(4)
    [moved] = await Lines().ids(world.database, [of_key(world, "key", variant="moved")])
    async with world.database.durable() as conn:
        await conn.execute("update batch set diverted_to = '{toy}'")
        await conn.execute("update item_payload set line_id = %s where seq = 0", (moved,))
    for _ in range(3):
        await remove_unused(world)
    assert await world.rows("select line_id from line where line_id = %s", moved) == [(moved,)]
