"""The history against the rows that are left: what is lost, doubled, run again, out of order or unaccounted for."""

import asyncio
import time
from collections import Counter, defaultdict
from dataclasses import dataclass

from tests.crash.history import Arrival, Batch, History
from tests.crash.system import TENANTS, System

EPSILON = 0.02  # an engine's loop may see a request this much after it came
CAUGHT = 0.02  # a SIGSTOP takes this long to stop every thread
ZOMBIE_SECONDS = 1.0
WEBHOOK_SECONDS = 40.0

_BATCHES = """
select t.account_id, b.idempotency_key, b.batch_id, b.state, b.total, b.ok, b.failed, b.finalized_at is not null,
       (select count(*) from item_payload p where p.batch_id = b.batch_id),
       b.completion_tokens, (select coalesce(sum(completion_tokens), 0) from item_result r where r.batch_id = b.batch_id)
from batch b join tenant t using (tenant_id)"""
_RESULTS = "select batch_id, seq, run, ok, extract(epoch from finished_at)::float8 from item_result"
_LEFT_OVER = """
select 'chunks', count(*) from chunk union all
select 'deltas', count(*) from batch_delta union all
select 'ready in sched', coalesce(sum(abs(ready)), 0) from sched union all
select 'inflight_tokens in sched', coalesce(sum(abs(inflight_tokens)), 0) from sched"""


@dataclass(frozen=True, slots=True)
class Row:
    """A batch as the database has it."""

    batch_id: int
    state: str
    total: int
    ok: int
    failed: int
    final: bool
    payloads: int
    tokens: int
    result_tokens: int


@dataclass(frozen=True, slots=True)
class Result:
    """A stored result."""

    run: int
    ok: bool
    at: float


Results = dict[tuple[int, int], list[Result]]


async def judge(system: System, history: History) -> None:
    """Compare everything, when the system is at rest."""
    rows = {
        (tenant, key): Row(*facts) for tenant, key, *facts in await system.postgres.rows(_BATCHES) if key is not None
    }
    results: Results = defaultdict(list)
    for batch_id, seq, run, ok, at in await system.postgres.rows(_RESULTS):
        results[batch_id, seq].append(Result(run, ok == 1, at))
    _existence(history, rows)
    for batch in history.accepted:
        if (row := rows.get((batch.tenant, batch.key))) is not None:
            _accounts(history, batch, row, results)
    for what, n in await system.postgres.rows(_LEFT_OVER):
        if n:
            history.wrong("unaccounted", f"{n} {what} left over")
    _arrivals(history, rows, results)
    await _webhooks(system, history)


def _existence(history: History, rows: dict[tuple[str, str], Row]) -> None:
    known = {(batch.tenant, batch.key) for batch in history.batches}
    for batch in history.accepted:
        if (batch.tenant, batch.key) not in rows:
            history.wrong("lost", f"{batch.key} has no row", len(batch.prompts))
    for tenant, key in rows.keys() - known:
        history.wrong("duplicated", f"a batch {key} of {tenant} that nobody sent")
    if extra := len(rows) - len(history.accepted):
        history.wrong("duplicated", f"{extra} more batches than were accepted")


def _accounts(history: History, batch: Batch, row: Row, results: Results) -> None:
    """One final result of the right kind for every item, and sums that agree."""
    if not row.final or row.payloads != row.total or row.total != len(batch.prompts):
        history.wrong("unaccounted", f"{batch.key}: {row}, sent {len(batch.prompts)} items")
    counted = Counter[bool]()
    for seq in range(len(batch.prompts)):
        found = results.get((row.batch_id, seq), [])
        if not found:
            history.wrong("lost", f"{batch.key} {seq} has no result; batch is {row.state}")
            continue
        if len({result.run for result in found}) != len(found):
            history.wrong("duplicated", f"{batch.key} {seq}: {found}")
        last = max(found, key=lambda result: result.run)
        counted[last.ok] += 1
        if last.ok == batch.refused(seq):
            history.wrong("wrong_kind", f"{batch.key} {seq} ({batch.prompts[seq]}): {last}")
    if (counted[True], counted[False]) != (row.ok, row.failed) or row.ok + row.failed != row.total:
        history.wrong("unaccounted", f"{batch.key}: {row}, but results {dict(counted)}")
    if row.tokens != row.result_tokens:
        history.wrong("unaccounted", f"{batch.key}: {row.tokens} tokens, results have {row.result_tokens}")


def _arrivals(history: History, rows: dict[tuple[str, str], Row], results: Results) -> None:
    """No item may come to an engine after its result was stored."""
    places = {prompt: (batch, seq) for batch in history.accepted for seq, prompt in enumerate(batch.prompts)}
    runs: Counter[str] = Counter(arrival.prompt for arrival in history.arrivals)
    for prompt, n in runs.items():
        expected = 2 if "flaky" in prompt else 1
        history.notes["runs beyond the first (allowed before a flush)"] += max(0, n - expected)
    for arrival in history.arrivals:
        if arrival.prompt not in places:
            history.wrong("unaccounted", f"an engine was sent {arrival.prompt!r}, which nobody submitted")
            continue
        batch, seq = places[arrival.prompt]
        row = rows.get((batch.tenant, batch.key))
        stored = min((result.at for result in results.get((row.batch_id, seq), [])), default=None) if row else None
        if stored is not None and arrival.at > stored + EPSILON:
            _late(history, arrival, stored)


def _late(history: History, arrival: Arrival, stored: float) -> None:
    """A run after the flush; not the sender's fault only if a SIGSTOP caught the request on its way."""
    for stop in history.stops:
        caught = arrival.sent <= stop.began + CAUGHT
        if stop.pid == arrival.sender and caught and stop.ended <= arrival.at <= stop.ended + ZOMBIE_SECONDS:
            history.notes["zombie sends (caught on their way by a SIGSTOP)"] += 1
            return
    began = history.began
    when = f"stored at {stored - began:.2f}, sent at {arrival.sent - began:.2f}, came at {arrival.at - began:.2f}"
    who = f"{arrival.prompt} to {arrival.engine} by {arrival.sender}"
    history.wrong("re_run_after_flush", f"{who}: {when} [{history.around(arrival.at)}]")


async def _webhooks(system: System, history: History) -> None:
    """Every final batch was announced, each event under one id, though it may have come more than once."""
    deadline = time.monotonic() + WEBHOOK_SECONDS
    while (missing := _unannounced(history)) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    states = await system.postgres.rows("select state, attempts, count(*) from delivery group by 1, 2") if missing else []
    for name in missing:
        history.wrong("webhooks_missing", f"{name}; deliveries {states}")
    ids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for webhook_id, kind, request_id in history.webhooks:
        ids[request_id, kind].add(webhook_id)
    for (request_id, kind), several in ids.items():
        if len(several) > 1:
            history.wrong("duplicated", f"{kind} of {request_id} under the ids {several}")
    history.notes["webhooks received"] = len(history.webhooks)
    history.notes["webhooks received again"] = len(history.webhooks) - len(ids)


def _unannounced(history: History) -> list[str]:
    final = {request_id for _, kind, request_id in history.webhooks if not kind.endswith("queued")}
    queued = {request_id for _, kind, request_id in history.webhooks if kind.endswith("queued")}
    accepted = [batch for batch in history.accepted if batch.tenant in TENANTS]
    return [batch.key for batch in accepted if batch.request_id not in final or batch.request_id not in queued]
