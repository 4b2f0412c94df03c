"""Compares the history with the rows: finds what is lost, duplicated, run again, out of order or unaccounted for."""

import asyncio
import time
from collections import Counter, defaultdict
from dataclasses import dataclass

from app.engines.requests import PROBE
from app.metering.report_sql import CHECK
from testing.waiting import LIMIT_SECONDS
from tests.crash import money, pipelines
from tests.crash.examine import GIVEN_UP
from tests.crash.history import Arrival, Batch, History
from tests.crash.system import System

EPSILON = 0.02  # an engine's event loop may see a request this many seconds after it came
CAUGHT = 0.02  # seconds that a SIGSTOP needs to stop every thread
ZOMBIE_SECONDS = 1.0
HALT_SECONDS = 0.5  # after the lease; until it lapses, a worker without its database may continue
ON_ITS_WAY = 3.0  # after a lease, during which a response of the database to a notifier may be held back
EVENT = {"completed": "succeeded", "failed": "failed", "cancelled": "cancelled", "expired": "expired"}

_BATCHES = """
select t.account_id, b.idempotency_key, b.batch_id, b.state, b.total, b.ok, b.failed, b.finalized_at is not null,
       b.run, (select count(*) from item_payload p where p.batch_id = b.batch_id),
       b.completion_tokens, (select coalesce(sum(completion_tokens), 0) from item_result r where r.batch_id = b.batch_id)
from batch b join tenant t using (tenant_id) where b.kind = 'batch'"""
_RESULTS = """
select batch_id, seq, run, ok = 1, extract(epoch from finished_at)::float8,
       ok <> 1 and position(convert_to(%s, 'UTF8') in body) > 0
from item_result"""
_LEFT_OVER = """
select 'chunks', count(*) from chunk union all
select 'deltas', count(*) from batch_delta union all
select 'ready in sched', coalesce(sum(abs(ready)), 0) from sched union all
select 'inflight_tokens in sched', coalesce(sum(abs(inflight_tokens - coalesce(ended.tokens, 0))), 0)
from sched left join (select pool_id, tenant_id, sum(est_tokens) as tokens from sched_delta group by 1, 2) ended
  using (pool_id, tenant_id)"""

_ENDPOINTS = "select count(*) from endpoint where url = any(%s)"


@dataclass(frozen=True, slots=True)
class Row:
    """A batch in the database."""

    batch_id: int
    state: str
    total: int
    ok: int
    failed: int
    final: bool
    run: int
    payloads: int
    tokens: int
    result_tokens: int


@dataclass(frozen=True, slots=True)
class Result:
    """A stored result."""

    run: int
    ok: bool
    at: float
    given_up: bool  # as an item that kills workers


Results = dict[tuple[int, int], list[Result]]


async def judge(system: System, history: History) -> None:
    """Run all checks. Call it when the system is at rest."""
    rows = {
        (tenant, key): Row(*facts) for tenant, key, *facts in await system.postgres.rows(_BATCHES) if key is not None
    }
    results: Results = defaultdict(list)
    for batch_id, seq, *facts in await system.postgres.rows(_RESULTS, GIVEN_UP):
        results[batch_id, seq].append(Result(*facts))
    _existence(history, rows)
    for batch in history.accepted:
        if (row := rows.get((batch.tenant, batch.key))) is not None:
            _accounts(history, batch, row, results)
    for what, n in await system.postgres.rows(_LEFT_OVER):
        if n:
            history.wrong("unaccounted", f"{n} {what} left over")
    for account, count, ledger, queue in await system.postgres.rows(CHECK):
        history.wrong("unaccounted", f"the ledger has {ledger} {count} of {account}, the queue counted {queue}")
    await money.judge(system.postgres, history)
    _arrivals(history, system.settings.lease_seconds + HALT_SECONDS, rows, results)
    await _webhooks(system, history, rows)
    await _deletions(system, history)


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
    """Check that every item has one result of a valid kind, that the final state is valid, and that the sums agree."""
    allowed = ["completed", "failed"]
    allowed += ["cancelled"] if "cancel" in batch.asked else []
    allowed += ["expired"] if batch.window else []
    allowed = ["cancelled"] if batch.must_be_cancelled else allowed
    if not row.final or row.payloads != row.total or row.total != len(batch.prompts) or row.state not in allowed:
        history.wrong("unaccounted", f"{batch.key}: {row}, sent {len(batch.prompts)} items, may be {allowed}")
    ok = failed = 0
    for seq, prompt in enumerate(batch.prompts):
        found = results.get((row.batch_id, seq), [])
        good = [result for result in found if result.ok]
        ok += bool(good)
        failed += any(result.run == row.run and not result.ok for result in found)
        if len(good) > 1 or len({result.run for result in found}) != len(found) or len(found) > row.run:
            history.wrong("duplicated", f"{batch.key} {seq}: {found}")
        for result in found:
            if result.given_up:
                history.wrong("innocent_given_up", f"{batch.key} {seq} ({prompt})")
        if any(result.ok == batch.refused(seq) and not result.given_up for result in found):
            history.wrong("wrong_kind", f"{batch.key} {seq} ({prompt}): {found}")
        if not found and row.state in ("completed", "failed"):
            history.wrong("lost", f"{batch.key} {seq} has no result; batch is {row.state}")
    short = row.total - ok - failed
    if (ok, failed) != (row.ok, row.failed) or (short and row.state not in ("cancelled", "expired")):
        history.wrong("unaccounted", f"{batch.key}: {row}, but {ok} ok and {failed} failed results")
    if row.tokens != row.result_tokens:
        history.wrong("unaccounted", f"{batch.key}: {row.tokens} tokens, results have {row.result_tokens}")
    history.notes[f"batches {row.state}"] += 1
    history.notes["items cancelled or expired"] += short


def _arrivals(history: History, halted: float, rows: dict[tuple[str, str], Row], results: Results) -> None:
    """Check that no item reaches an engine after its result was stored, or `halted` seconds after its batch was halted."""
    places = {prompt: (batch, seq) for batch in history.accepted for seq, prompt in enumerate(batch.prompts)}
    for arrival in history.arrivals:
        if arrival.prompt == PROBE:
            history.notes["probes of engines whose telemetry had failed"] += 1
            continue
        if arrival.prompt in history.calls or arrival.prompt.startswith(pipelines.NAME):
            continue
        if arrival.prompt not in places:
            history.wrong("unaccounted", f"an engine was sent {arrival.prompt!r}, which nobody submitted")
            continue
        batch, seq = places[arrival.prompt]
        if batch.unserved:
            history.wrong("wrong_kind", f"{arrival.engine} was sent {arrival.prompt}, which is for another model")
        row = rows.get((batch.tenant, batch.key))
        found = results.get((row.batch_id, seq), []) if row else []
        retried = max((at for at in batch.retries if at <= arrival.at), default=0.0)
        stored = [result.at for result in found if result.ok or (result.at > retried and not batch.late_retry)]
        if any(at + EPSILON < arrival.at for at in stored):
            first = min(stored)
            _late(history, arrival, "rerun_after_flush", first, f"stored at {first - history.began:.2f}")
        if arrival.at > batch.expires_at + halted and not batch.retries:
            history.notes["requests sent after a deadline, while no steward was there to end the batch"] += 1
        broken = [halt for halt in batch.halts if halt.began + halted < arrival.at < halt.ended]
        if broken:
            halt = broken[0]
            why = f"{halt.verb} at {halt.began - history.began:.2f}"
            _late(history, arrival, "ran_when_halted", halt.began + halted, why)
    runs = Counter(arrival.prompt for arrival in history.arrivals)
    again = sum(max(0, n - (2 if "flaky" in prompt else 1)) for prompt, n in runs.items())
    history.notes["runs beyond the first (allowed before a flush and by retry)"] = again


def _late(history: History, arrival: Arrival, what: str, since: float, why: str) -> None:
    """Count a request that came when it was invalid (`since`: from when on), unless a SIGSTOP of its sender held it back on its
    way, or, if it was sent before that, the network.
    """
    if arrival.sent < since and any(cut.held(arrival) for cut in history.cuts):
        history.notes["zombie sends (held back by the network)"] += 1
        return
    for stop in history.stops:
        caught = arrival.sent <= stop.began + CAUGHT
        if stop.pid == arrival.sender and caught and stop.ended <= arrival.at <= stop.ended + ZOMBIE_SECONDS:
            history.notes["zombie sends (caught on their way by a SIGSTOP)"] += 1
            return
        woken = stop.ended <= arrival.sent <= stop.ended + CAUGHT
        if stop.pid == arrival.sender and woken and not stop.split:
            stop.split = True
            history.notes["zombie sends (caught between the look at the lease and the stamp)"] += 1
            return
    began = history.began
    when = f"{why}, sent at {arrival.sent - began:.2f}, came at {arrival.at - began:.2f}"
    who = f"{arrival.prompt} to {arrival.engine} by {arrival.sender}"
    history.wrong(what, f"{who}: {when} [{history.around(arrival.at)}]")


async def _webhooks(system: System, history: History, rows: dict[tuple[str, str], Row]) -> None:
    """Check that the start and the end of every batch were delivered, each under one id, possibly more than once."""
    expected = {
        (batch.request_id, f"cf.workersAi.model.batch.{kind}")
        for batch in history.accepted
        if (row := rows.get((batch.tenant, batch.key))) and row.final
        for kind in ("queued", EVENT[row.state])
    }
    deadline = time.monotonic() + LIMIT_SECONDS
    while (missing := expected - {event[1:] for event in _received(history)}) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    if missing:
        states = await system.postgres.rows("select state, attempts, count(*) from delivery group by 1, 2")
        for request_id, kind in missing:
            history.wrong("webhooks_missing", f"{kind} of {request_id}; deliveries {states}")
    runs = {batch.request_id: 1 + len(batch.retries) for batch in history.accepted}
    ids = Counter((request_id, kind) for _, request_id, kind in _received(history))
    for (request_id, kind), n in ids.items():
        if not kind.endswith(".test") and n > runs.get(request_id, 0):
            history.wrong("duplicated", f"{kind} of {request_id} under {n} ids")
    history.notes["webhooks received"] = len(history.webhooks)
    history.notes["webhooks received again"] = len(history.webhooks) - sum(ids.values())


async def _deletions(system: System, history: History) -> None:
    """Check that a deleted endpoint gets only what was in flight already, and is removed in the end."""
    for name, at in history.doomed:
        if at > history.deleted.get(name, float("inf")) + system.settings.lease_seconds + ON_ITS_WAY:
            late = f"{name} deleted at {history.deleted[name] - history.began:.2f}, sent at {at - history.began:.2f}"
            history.wrong("told_after_deletion", late)
    history.notes["events sent to endpoints before they were deleted"] = len(history.doomed)
    deadline = time.monotonic() + LIMIT_SECONDS
    urls = [f"{system.receiver.url}/{name}" for name in history.deleted]
    while (left := (await system.postgres.rows(_ENDPOINTS, urls))[0][0]) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    if left:
        history.wrong("unaccounted", f"{left} deleted endpoints are still there")


def _received(history: History) -> set[tuple[str, str, str]]:
    """(webhook-id, request id, type) of the events that the receiver got."""
    return {(webhook_id, request_id, kind) for webhook_id, kind, request_id in history.webhooks}
