"""Four moments of an installation, made of rows, and how the console looks then: empty, busy, broken, over budget.

`TESTS_PICTURES=tests/console/pictures python -m pytest tests/console/test_scenes.py` makes the sheets of small pictures anew, in
that folder: one of each scene in each look, with all its pages. They are to be looked at. Two pages are README's pictures.
"""

import io
import json
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from app import clock
from app.admission.control import AdmissionControl
from app.batches import lifecycle
from app.budgets import service as budgets
from app.console import app as console_app
from app.console.parts import Parts
from app.db.pool import Connection, Database
from app.duties import standing
from app.duties.schedule import DUTIES
from app.metering import latency_sql, sketch
from app.pipelines.feeding import Feeder
from app.policy import service as policies
from app.queue import chunking, copy_format, ingest, order_deltas, phases, service
from app.queue.types import Item, Lease, Result
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.service import Tenant
from testing import operations_data
from tests.budgets.world import World
from tests.console import pipelines, talks
from tests.console.walk import EACH, PAGES, Addresses, Look
from tests.queue import support

Scene = Callable[[Settings, Database], Awaitable[Addresses]]
MODEL = "qwen3-32b"  # of `operations_data`
LOOKS: Mapping[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "narrow-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
_MORE = {"batch-cancel", "batch-failed", "budget", "find-hits", "not-found", "policy-tried"}
_STILL = (  # look alike in every scene: only the busy one shows them
    {"webhook-secret", "forbidden", "not-found", "login", "selected", "find", "find-hits", "batch-cancel"}
    | {"budget-new", "key-new", "webhook-new", "policy-tried"}
)
_WHOLE = {"now": "/console/now", "engines": "/console/engines"}  # with the hour that these scenes have

_ITEMS = {"moderation": 64, "claims-extract": 1600, "contracts-ner": 400, "nightly-eval": 9000}
_CHUNK, _TOKENS = 32, 700  # items of a chunk, estimated tokens of an item
_DONE = 31  # chunks of claims-extract
_STREAMS = 40  # in a minute
_HISTORY = """
update batch set created_at = now() - interval '24 min', opened_at = now() - interval '24 min';
update item_result r set finished_at = now() - (23 - 18.9 * r.seq / m.most) * interval '1 min'
from (select batch_id, max(seq) as most from item_result group by 1) m where m.batch_id = r.batch_id;
update item_result r set finished_at = now() - (23 - 22.9 * r.seq / m.most) * interval '1 min'
from (select batch_id, max(seq) as most from item_result group by 1) m join batch using (batch_id)
where m.batch_id = r.batch_id and finalized_at is null;
update item_result r set queued_ms = 40 + 31 * (r.seq % 90), ran_ms = 1900 + 97 * (r.seq % 17),
  first_token_ms = case when ok = 1 then 190 + 7 * (r.seq % 13) end,
  engine_id = (select engine_id from engine where name = (array['east-1', 'east-2', 'west-1'])[1 + r.seq % 3]);
update batch set finalized_at = now() - interval '4 min', created_at = now() - interval '28 min' where finalized_at is not null;
update batch_phase set at = now() - interval '20 min';
insert into batch_phase (batch_id, tenant_id, code, at, until)
  select batch_id, tenant_id, 'fair_share', now() - interval '24 min', now() - interval '20 min'
  from batch where name = 'claims-extract';
insert into pace (pool_id, at, served_tokens, tokens_per_second, spread)
  select pool_id, now(), 331000000, 13800, 0.12 from pool where model = 'qwen3-32b';
update sched set ready = 0 where pool_id in (select pool_id from pool where model <> 'qwen3-32b')"""
_ALIVE = """
update engine set heartbeat_at = now() where state = 'ready';
update engine_sample set at = at + x.since from (select now() - max(at) as since from engine_sample) x;
update worker set lease_until = now() + interval '1 hour'"""
_SPENT = """
with made as (insert into line (tenant_id, key_id, workflow, task, critical, variant, family, model, kind, endpoint)
  select tenant_id, '', w.workflow, '-', false, '-', w.family, 'qwen3-32b', w.kind, '/v1/chat/completions'
  from tenant, (values ('support', 'sync', 'support-v3'), ('evals', 'batch', 'rubric'), ('tagging', 'batch', 'claims'))
    w (workflow, kind, family)
  where account_id in ('acme', 'globex') returning line_id, kind)
insert into usage (hour, line_id, requests, ok, prompt, cached, output)
select date_trunc('hour', now()) - d * interval '1 day', line_id, 3000 + 200 * (d % 4), 2990, n * 900, n * 610, n * 220
from made, generate_series(1, 27) d,
  lateral (select (case kind when 'sync' then 4100 else 9000 end) + 700 * ((d * 5 + line_id) % 7) as n) x"""
_UNTIL = "update change set data = jsonb_set(data, '{until}', to_jsonb(now() + interval '4 min')) where kind = 'breaker.opened'"
_BROKEN = """
update engine set state = 'down', reason = 'engine_down', reason_since = now() - interval '9 min', allowance = 0,
  signal = null, value = null, threshold = null,
  batch_in_flight = 0, in_engine = '{}', sync_in_flight = 0, heartbeat_at = now() - interval '9 min';
update worker set lease_until = now() - interval '8 min', renewed_at = now() - interval '9 min';
update batch_phase set until = now() - interval '9 min' where until is null;
insert into batch_phase (batch_id, tenant_id, code, at)
  select batch_id, tenant_id, 'no_engine', now() - interval '9 min' from batch where state = 'open' and kind = 'batch';
insert into change (at, kind, subject, data)
  select now() - interval '9 min', 'engine.down', name, jsonb_build_object('engine', name, 'reason', 'its worker was lost')
  from engine where name <> 'south-1';
delete from engine_sample where at > now() - interval '9 min';
delete from latency_minute where minute > now() - interval '9 min';
update endpoint set state = 'disabled', reason = 'every attempt failed since Thu 19 Nov 08:12 UTC' where url is not null;
insert into change (at, kind, subject, data) values
  (now() - interval '9 min', 'part.died', 'gpu-worker gpu-03', '{"exit_code": -9, "host": "gpu-03", "pid": 4001}'),
  (now() - interval '6 min', 'database.lost', 'database', '{"seconds": 40}')"""
_NAMES = f"""
update batch set model = '{talks.MODEL}' where model = 'toy';
update pool set model = '{talks.MODEL}' where model = 'toy';
update engine set name = 'west-2', reason = 'harvest', reason_since = now() - interval '6 min', protection = 'inside', slots = 32,
  scheduling_policy = 'priority', version = '0.32.0', allowance = 8, max_model_len = 8192 where url = 'http://e';
update engine_sample set batch_tokens = batch_tokens / 40, sync_tokens = sync_tokens / 40
  where engine_id = (select engine_id from engine where name = 'west-2');
update sched set ready = 0 where pool_id = (select pool_id from pool where model = 'llama-3.3-70b')"""
_POLICY = """[[rule]]
id = "brownout"
when = { critical = false, budget = ">=90" }
fallback = ["smollm2-135m-instruct"]

[[rule]]
id = "no-shell"
when = { workflow = ["support"] }
deny = { tools = ["shell"] }
contact = "platform@acme.example"
"""


async def empty(settings: Settings, database: Database) -> Addresses:
    """Nobody has used it: one account, no engine."""
    async with database.transaction() as conn:
        await tenants.ensure_tenant(conn, "acme")
    return {}


async def busy(settings: Settings, database: Database) -> Addresses:
    """Engines with a history, callers whose streams were measured alone and beside batch work, batches that run, a pipeline, a
    conversation, webhooks in every state.
    """
    async with database.transaction() as conn:
        await operations_data.fill(conn, samples=360)
        tenant, pool = await _ids(conn)
    await streams(database)
    worker = await support.make_worker(database, pool)
    made = {}
    for name, items in _ITEMS.items():
        made[name] = await _batch(database, tenant, pool, name, items)
        for _ in range({"moderation": items // _CHUNK, "claims-extract": _DONE}.get(name, 0)):
            await _run(database, pool, worker, _failing if name == "moderation" else None)
        if name == "contracts-ner":
            await lifecycle.change_state(database, Tenant(tenant, "acme"), made[name].request_id, "pause")
    await _claim(database, pool, worker)
    flow = await _flow(settings, database, pool, worker)
    await support.settle(database)
    waits = {"claims-extract": "running", "contracts-ner": "paused", "nightly-eval": "own_batches"}
    async with database.transaction() as conn:
        await phases.note(conn, {made[name].batch_id: code for name, code in waits.items()})
        await _execute(conn, _HISTORY, _SPENT, _UNTIL)
        await _in_engine(conn, made["claims-extract"].batch_id)
        await standing.enter(conn)
        for each in DUTIES:
            await standing.succeed(conn, each, 0.4 + len(each.name) / 9)
        await budgets.put(
            conn, tenant, "tagging", {"max_tokens": 1_500_000_000, "workflow": "tagging", "alerts_at": [75, 90]}
        )
    await budgets.note(database)
    found = {name: str(batch.request_id) for name, batch in made.items()}
    return {
        **found,
        "tickets": flow,
        "talk": await talks.begin(database, name="tides", model=MODEL),
        **await _others(database),
    }


async def broken(settings: Settings, database: Database) -> Addresses:
    """The same, nine minutes after its workers were lost: nothing answers, receivers refuse, the database was away."""
    found = await busy(settings, database)
    async with database.transaction() as conn:
        await _execute(conn, _BROKEN)
        await standing.fail(conn, DUTIES[0], "OperationalError: the connection was lost")
    return found


async def over_budget(settings: Settings, database: Database) -> Addresses:
    """A budget is all but spent, and what it pays for waits; another has room."""
    world = World(database)
    await world.begin("nightly")
    world.line = await world.line_of("nightly", None)
    await world.budget("nightly-tokens", max_tokens=15_000, period="day", alerts_at=[50])
    await world.budget("all-of-acme", max_tokens=40_000, period="month")
    batch_id = await world.submit(
        4000, chunk=50, name="nightly-eval", metadata={"name": "nightly-eval"}, est_tokens=32_000
    )
    while await world.reserve():
        await world.drain()
        await world.settle()
    async with database.transaction() as conn:
        await operations_data.fill(conn, samples=360)
        await _execute(conn, _NAMES, _SPENT, _UNTIL)
        await phases.note(conn, {batch_id: "budget"})
    await streams(database)
    [(batch,)] = await world.rows("select request_id::text from batch")
    return {**await _others(database), "claims-extract": str(batch), "engine": "west-2"}


SCENES: Mapping[str, Scene] = {"empty": empty, "busy": busy, "broken": broken, "over-budget": over_budget}


async def _execute(conn: Connection, *statements: str) -> None:
    for each in statements:
        for statement in each.split(";\n"):
            await conn.execute(statement.encode())


async def _ids(conn: Connection) -> tuple[int, int]:
    """The account and the pool that batches of the scene are of."""
    [(pool,)] = await (await conn.execute("select pool_id from pool where model = %s", [MODEL])).fetchall()
    return await tenants.find_tenant(conn, "acme"), pool


async def _first(database: Database, table: str, key: str) -> str:
    async with database.relaxed() as conn:
        [(found,)] = await (await conn.execute(f"select min({key})::text from {table}".encode())).fetchall()
    return str(found)


async def _batch(database: Database, tenant: int, pool: int, name: str, items: int) -> ingest.NewBatch:
    """A batch of chats."""
    async with database.transaction() as conn:
        batch = await support.new_batch(conn, tenant, pool, items)
        batch = replace(batch, model=MODEL, name=name, metadata={"name": name, "team": "underwriting"})
        batch = replace(batch, est_tokens=items * _TOKENS)
        rows = [_row(batch, seq) for seq in range(items)]
        payload = [copy_format.HEADER, *rows, copy_format.TRAILER]
        cuts = chunking.cut([_TOKENS] * items, max_tokens=_CHUNK * _TOKENS, max_items=_CHUNK)
        await ingest.enqueue(conn, batch, payload, cuts)
    return batch


def _row(batch: ingest.NewBatch, seq: int) -> bytes:
    text = f"{batch.name} {seq}: which of the three categories is it?"
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 400}
    return copy_format.payload_row(batch.batch_id, seq, f"{batch.name}-{seq}", None, _TOKENS, json.dumps(body).encode())


async def _claim(database: Database, pool: int, worker: int) -> Lease:
    async with database.relaxed() as conn:
        lease = await support.claim(conn, pool, worker)
    assert lease is not None
    return lease


async def _run(database: Database, pool: int, worker: int, failing: Callable[[Item], Result | None] | None) -> None:
    """Claim a chunk and answer its items."""
    lease = await _claim(database, pool, worker)
    async with database.durable() as conn:
        items = await service.load(conn, lease)
        results = [(failing and failing(item)) or _answered(item) for item in items]
        assert await service.flush(conn, lease, results, feeds=any(item.feeds for item in items))
        assert await service.finish(conn, lease) is not None
    async with database.relaxed() as conn:
        await order_deltas.fold(conn)


def _answered(item: Item) -> Result:
    message = {"role": "assistant", "content": f'{{"facts": ["number {item.seq}"]}}'}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "model": MODEL}
    return Result(item.seq, True, 1, 210, 160, 40 + item.seq % 30, json.dumps(body).encode())


def _failing(item: Item) -> Result | None:
    if item.seq % 9 != 7:
        return None
    body = {"code": 400, "message": "the prompt is longer than the model's maximum context length of 8192 tokens"}
    return Result(item.seq, False, 1, 0, 0, 0, json.dumps(body).encode(), error="too_long")


async def _in_engine(conn: Connection, batch_id: int) -> None:
    """The items of the claimed chunk are in an engine."""
    sql = "update engine set in_engine = jsonb_build_object(%s::text, 24) where name = 'east-1'"
    await conn.execute(sql, [str(batch_id)])


async def _flow(settings: Settings, database: Database, pool: int, worker: int) -> str:
    """A pipeline some lines of which have passed its first stages, and a policy. Returns the pipeline's id."""
    app = console_app.create_app(settings)
    async with console_app.running(app, settings):
        given = pipelines.tickets()
        del given["budget"]  # the model has no price
        for stage in given["stages"]:
            stage |= {"model": MODEL, "body": stage["body"] | {"max_tokens": 200}}
        made = await pipelines.create(app, database, given)
        parts: Parts = app.state.parts
        async with database.transaction() as conn:
            await policies.apply(conn, _POLICY, parts.catalogue, "ada")
    control = AdmissionControl.of(database, settings)
    await control.renew()
    feeder = Feeder(database, settings, control)
    for chunks in (1, 1, 0):
        while await feeder.step():
            pass
        for _ in range(chunks):
            await _run(database, pool, worker, None)
    return made


async def _others(database: Database) -> Addresses:
    """What else a scene with `operations_data` has."""
    waiting = f"delivery where state = 'pending' and endpoint_id = '{UUID(operations_data.HOOK)}'"
    return {
        "engine": "east-2",
        "hook": operations_data.HOOK,
        "delivery": await _first(database, waiting, "delivery_id"),
        "budget": await _first(database, "budget", "budget_id"),
    }


async def streams(database: Database) -> None:
    """How long callers waited by minute, in the last hour: alone for some minutes, beside batch work else."""
    waits = random.Random(7)
    now = clock.now().replace(second=0, microsecond=0)
    async with database.transaction() as conn:
        for ago in range(60):
            beside = ago % 20 > 4
            await conn.execute(latency_sql.STORE, _minute(now - timedelta(minutes=ago), beside, waits))


def _minute(minute: datetime, beside: bool, waits: random.Random) -> dict[str, Any]:
    slower = 1.06 if beside else 1.0
    first = [182 * slower * math.exp(waits.gauss(0, 0.16)) for _ in range(_STREAMS)]
    gaps = [19 * slower * math.exp(waits.gauss(0, 0.1)) for _ in range(9 * _STREAMS)]
    values = {"minute": minute, "writer": "api", "model": MODEL, "beside": beside, "requests": _STREAMS}
    return values | {"first_token": _counts(first), "gap": _counts(gaps)}


def _counts(times: Sequence[float]) -> list[int]:
    """As they are stored: buckets, each with how many are in it."""
    return [number for pair in sorted(Counter(map(sketch.bucket, times)).items()) for number in pair]


@contextmanager
def parts_connected(settings: Settings) -> Iterator[Callable[[], object]]:
    """While it lasts, the database sees the parts of an installation that runs. Yields what keeps its engines alive."""
    with ExitStack() as stack:
        for part in ("steward", "notifier", "maintenance"):
            name = f"slackwater {part}"
            conn = stack.enter_context(psycopg.connect(settings.database_url, application_name=name, autocommit=True))
            if part == "steward":
                conn.execute("select pg_advisory_lock(hashtext('slackwater steward')::bigint)")
        yield lambda: [conn.execute(each) for each in _ALIVE.split(";\n")]


def looks(name: str, ids: Addresses) -> list[Look]:
    """The pages of a scene: each once, and some in further states."""
    pages = [each for each in PAGES if each in EACH or each.name in _MORE]
    pages = [each for each in pages if name == "busy" or each.name not in _STILL]
    return [_whole(each) for each in pages if _has(each, ids)]


def _whole(page: Look) -> Look:
    address = _WHOLE.get(page.name)
    return replace(page, address=lambda ids: address) if address else page


def _has(page: Look, ids: Addresses) -> bool:
    """Whether the scene has what the page shows."""
    try:
        page.address(ids)
    except KeyError:
        return False
    return True


# ------------------------------------------------------------ sheets

_WIDTHS = {1440: 864, 390: 390}  # of a picture on the sheet, by that of the screen
_COLUMNS = {1440: 4, 390: 9}
_TALLEST = {1440: 1.3, 390: 3.4}  # of a picture, as a multiple of its width
_MARGIN, _TITLE = 12, 20
_QUALITY = 30


def top(taken: bytes, height: int) -> bytes:
    """The upper part of a picture, in few colours."""
    from PIL import Image

    picture = Image.open(io.BytesIO(taken)).convert("RGB")
    written = io.BytesIO()
    upper = picture.crop((0, 0, picture.width, min(height, picture.height)))
    upper.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(written, "PNG", optimize=True)
    return written.getvalue()


def sheet(taken: Mapping[str, bytes]) -> bytes:
    """One picture of many, all of pages of one width. Each goes to the column that is the shortest yet."""
    from PIL import Image, ImageDraw

    shown = []
    for name, each in taken.items():
        picture = Image.open(io.BytesIO(each)).convert("RGB")
        screen = picture.width
        width = _WIDTHS[screen]
        most = round(screen * _TALLEST[screen])
        picture = picture.crop((0, 0, screen, min(picture.height, most)))
        shown.append((name, picture.resize((width, round(picture.height * width / screen)), Image.Resampling.LANCZOS)))
    columns = [_MARGIN] * _COLUMNS[screen]
    places = []
    for _, picture in shown:
        column = columns.index(min(columns))
        places.append((_MARGIN + column * (width + _MARGIN), columns[column]))
        columns[column] += picture.height + _TITLE + _MARGIN
    whole = Image.new("RGB", (_MARGIN + len(columns) * (width + _MARGIN), max(columns)), "#888")
    pen = ImageDraw.Draw(whole)
    for (name, picture), (x, y) in zip(shown, places, strict=True):
        pen.text((x, y + 3), name, fill="black", font_size=14)
        whole.paste(picture, (x, y + _TITLE))
    written = io.BytesIO()
    whole.save(written, "WEBP", quality=_QUALITY, method=4)
    return written.getvalue()
