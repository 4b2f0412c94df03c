"""Four moments of an installation, made of rows, and how the console looks then: empty, busy, broken, over budget.

`TESTS_PICTURES=tests/console/pictures python -m pytest tests/console/test_scenes.py` makes the sheets of small pictures
anew, in that folder: of each scene all its pages. They are to be looked at.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from app.db.pool import Connection, Database
from app.tenants import service as tenants
from testing import operations_data
from tests.budgets.world import World
from tests.console.browser import Reader
from tests.queue import support

Scene = Callable[[Database], Awaitable[None]]
KEPT = ("light", "narrow-dark")  # looks of which there is a sheet; the others are checked and not kept
MODEL = "qwen3-32b"  # of `operations_data`
LOOKS: Mapping[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "narrow-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
PAGES = ("now", "batches", "engines", "fairness", "incidents", "spend", "sessions", "webhooks", "keys", "audit")
_THUMB, _ACROSS = {1440: 480, 390: 195}, {1440: 4, 390: 6}  # of the sheet: pixels of a picture, pictures in a row
_BROKEN = """
update engine set state = 'down', reason = 'engine_down', reason_since = now() - interval '9 min', allowance = 0,
  batch_in_flight = 0, sync_in_flight = 0, heartbeat_at = now() - interval '9 min';
update worker set lease_until = now() - interval '8 min';
delete from engine_sample where at > now() - interval '9 min';
update endpoint set state = 'disabled', reason = 'every attempt failed since Thu 19 Nov 08:12 UTC' where url is not null;
insert into change (at, kind, subject, data) values
  (now() - interval '9 min', 'part.died', 'gpu-worker gpu-03', '{"exit_code": -9, "host": "gpu-03", "pid": 4001}'),
  (now() - interval '6 min', 'database.lost', 'database', '{"seconds": 40}')"""


async def empty(database: Database) -> None:
    """Nobody has used it: one account, no engine."""
    async with database.transaction() as conn:
        await tenants.ensure_tenant(conn, "acme")


async def busy(database: Database) -> None:
    """Engines with a history, callers, batches that run, webhooks in every state."""
    async with database.transaction() as conn:
        await operations_data.fill(conn, samples=360)
        tenant, pool = await _ids(conn)
    worker = await support.make_worker(database, pool)
    for name, items in (("nightly-eval", 480), ("claims-extract", 96), ("contracts-ner", 32)):
        async with database.transaction() as conn:
            batch = await support.new_batch(conn, tenant, pool, items)
            named = replace(batch, model=MODEL, name=name, metadata={"name": name})
            await support.put(conn, named, [100] * items)
    for _ in range(9):
        async with database.relaxed() as conn:
            lease = await support.claim(conn, pool, worker)
        assert lease is not None
        await support.run_chunk(database, lease)
    await support.settle(database)


async def broken(database: Database) -> None:
    """The same, nine minutes after its workers were lost: nothing answers, receivers refuse, the database was away."""
    await busy(database)
    async with database.transaction() as conn:
        for statement in _BROKEN.split(";\n"):
            await conn.execute(statement.encode())


async def over_budget(database: Database) -> None:
    """A budget of tokens is spent, and what it pays for waits; another is nearly spent."""
    world = World(database)
    await world.begin("nightly")
    await world.budget("nightly-tokens", max_tokens=150, period="day", alerts_at=[50])
    await world.budget("all-of-acme", max_cost="100", period="month")
    await world.submit(40)
    while await world.reserve():
        await world.drain()
        await world.settle()
    async with database.transaction() as conn:
        await operations_data.fill(conn, samples=90)


SCENES: Mapping[str, Scene] = {"empty": empty, "busy": busy, "broken": broken, "over-budget": over_budget}


async def _ids(conn: Connection) -> tuple[int, int]:
    """The account and the pool that batches of the scene are of."""
    [(pool,)] = await (await conn.execute("select pool_id from pool where model = %s", [MODEL])).fetchall()
    return await tenants.find_tenant(conn, "acme"), pool


def addresses(reader: Reader) -> dict[str, str]:
    """Each page of the scene, with its first batch and its first engine, if there are any."""
    found = {name: f"/console/{name}" for name in PAGES}
    for name, place in (("batches", "batch"), ("engines", "engine")):
        reader.open(f"/console/{name}?view=all" if name == "batches" else f"/console/{name}")
        link = reader.page.locator(f'main a[href^="/console/{name}/"]:not([href$="/new"])').first
        if link.count():
            found[place] = str(link.get_attribute("href"))
    return found


def sheet(browser: Any, taken: Mapping[str, bytes], width: int) -> bytes:
    """One small picture of many, all of pages of this width."""
    thumb = _THUMB[width]
    cells = "".join(
        f'<figure><img src="data:image/jpeg;base64,{base64.b64encode(each).decode()}" width="{thumb}">'
        f"<figcaption>{name}</figcaption></figure>"
        for name, each in taken.items()
    )
    across = _ACROSS[width]
    style = f"body{{margin:8px;display:grid;gap:8px;grid-template-columns:repeat({across},{thumb}px)}}"
    style += "body{background:#888;font:11px sans-serif}figure{margin:0}img{display:block}"
    page = browser.new_page(viewport={"width": (thumb + 8) * across + 8, "height": 200})
    page.set_content(f"<style>{style}</style>{cells}")
    try:
        return bytes(page.screenshot(type="jpeg", quality=60, full_page=True))
    finally:
        page.close()
