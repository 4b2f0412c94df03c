"""The statements of lists and history with 10,000 batches and a batch of a million items: no scan of an item table, few pages.

Each statement is explained with real parameters, with a custom and with a generic plan. Pages decide, not time.
"""

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from app import clock
from app.changes import sql as changes_sql
from app.db.day_tables import on_day
from app.headroom import samples_sql
from app.metering import latency_sql
from app.queue import errors_sql, failure_sql, items_sql, listing_sql, phases_sql
from tests import timing
from tests.databases import Ring
from tests.queue.plans import Parameters, explain

BATCHES, ITEMS, ACCOUNTS = 10_000, 1_000_000, 4
MOST_PAGES = 400
FILL = (
    "insert into tenant (tenant_id, account_id, name) overriding system value select g, g, g from generate_series(1, 4) g",
    "insert into pool (model) values ('toy')",
    """insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, deadline, created_at, failed, name, state,
                         finalized_at, tags)
       select next_batch_id(), gen_random_uuid(), 1 + (g % 4 = 0)::int * (g % 3), 'toy', '/v1', 64, now(),
              now() - make_interval(secs => 10000 - g), (g % 20 = 0)::int, 'nightly-' || g % 100,
              case when g % 5 < 2 then 'open' else 'completed' end, case when g % 5 >= 2 then now() end, '{nightly}'
       from generate_series(1, 10000) g""",
    """insert into batch_phase (batch_id, tenant_id, code, until)
       select batch_id, tenant_id, case when row_number() over () % 500 = 0 then 'paused' else 'fair_share' end, finalized_at
       from batch""",
    """insert into batch_phase (batch_id, at, tenant_id, code, until)
       select batch_id, now() - make_interval(secs => g), tenant_id, 'paused', now() from batch, generate_series(1, 20) g""",
    """insert into batch_error (batch_id, run, error, tenant_id, n)
       select batch_id, 1, case when batch_id % 7 = 0 then 'timeout' else 'invalid' end, tenant_id, 1
       from batch where failed > 0""",
    """insert into item_payload (batch_id, seq, est_tokens, wants_json, body)
       select (select max(batch_id) from batch), g, 100, false, '{}' from generate_series(0, 999999) g""",
    """insert into item_result (batch_id, seq, run, ok, attempt, body, error)
       select (select max(batch_id) from batch), g, 1, (g % 50 > 0)::int, 1, '{"code": 5006, "message": "no"}',
              case when g % 50 > 0 then null when g % 200000 = 0 then 'timeout' else 'invalid' end
       from generate_series(0, 999999) g""",
    """insert into batch_error (batch_id, run, error, tenant_id, n)
       select max(batch_id), 1, e, 1, 1 from batch, unnest('{invalid,timeout}'::text[]) e group by 2, 3
       on conflict do nothing""",
    """insert into change (at, kind, subject, data) select now() - make_interval(secs => g), 'gate.closed', 'e' || g % 9, '{}'
       from generate_series(1, 100000) g""",
    """insert into engine_sample select e, now() - make_interval(secs => 10 * g), 10, 'open', 0, 8, 4, 2, 0, 0, .5, 20, 20, null,
              100, 10, 0, 0 from generate_series(1, 4) e, generate_series(1, 9360) g""",
    """insert into latency_minute select date_trunc('minute', now()) - make_interval(mins => g), 'w', m, g % 2 = 0, 9,
              '{10,4,12,5}', '{3,90}' from generate_series(1, 11520) g, unnest('{a,b}'::text[]) m""",
)
TABLES = (
    "batch",
    "batch_phase",
    "batch_error",
    "item_payload",
    "item_result",
    "change",
    "engine_sample",
    "latency_minute",
)


@pytest.fixture(scope="module")
def full(ring: Ring) -> Iterator[psycopg.Connection]:
    with ring.taken() as url:
        options = "-c synchronous_commit=off"
        with psycopg.connect(url, autocommit=True, prepare_threshold=None, options=options) as conn:
            for statement in FILL:
                conn.execute(statement.encode())
            for table in TABLES:
                conn.execute(f"vacuum (analyze) {table}".encode())
            yield conn


def listing(*given: str) -> str:
    return listing_sql.page(given)


def statements(conn: psycopg.Connection) -> dict[str, tuple[str, Parameters]]:
    row = conn.execute("select max(batch_id) from batch").fetchone()
    assert row
    batch, run, now = row[0], 1, clock.now()
    after = conn.execute(
        "select request_id, created_at from batch where tenant_id = 1 order by created_at offset 500 limit 1"
    )
    request_id, created_at = after.fetchone() or ((), ())
    account = {"tenant_id": 1, "limit": 51, "after": request_id, "after_at": created_at}
    name = {"name": "nightly-7", "name_end": "nightly-7\U0010ffff"}
    items = {"batch_id": batch, "run": run, "after": 500_000, "limit": 51}
    hour, day = now - timedelta(hours=1), now - timedelta(days=1)
    page = changes_sql.page(frozenset({"since", "tenant_id", "before"}))
    return {
        "list": (listing(), account),
        "list, next page": (listing("after"), account),
        "list by what many wait for": (listing("waits"), account | {"waits": ["fair_share"]}),
        "list by what few wait for": (listing("waits"), account | {"waits": ["paused"]}),
        "list by two things, next page": (
            listing("waits", "after", "states"),
            account | {"waits": ["paused", "fair_share"], "states": ["open"], "started": [None]},
        ),
        "list by what none waits for": (listing("waits"), account | {"waits": ["no_engine"]}),
        "list by error": (listing("errors"), account | {"errors": ["timeout"]}),
        "list by an error that none has": (listing("errors"), account | {"errors": ["lost"]}),
        "list by name": (listing("name"), account | name),
        "list by tag": (listing("tags"), account | {"tags": ["nightly"]}),
        "phases": (phases_sql.OF_BATCH, {"batch_id": batch, "limit": 500}),
        "open batches": (phases_sql.OPEN, {"after_at": created_at, "after": 0, "limit": 256}),
        "errors": (on_day(errors_sql.OF_BATCH, batch), {"batch_id": batch, "run": run}),
        "failures by message": (on_day(failure_sql.GROUPED, batch), {"batch_id": batch, "run": run, "limit": 10}),
        "items": (on_day(items_sql.LISTED, batch), items),
        "failed items": (on_day(items_sql.FAILED, batch), items),
        "items with a rare error": (on_day(items_sql.FAILED_WITH, batch), items | {"error": "timeout"}),
        "one item": (on_day(items_sql.ONE, batch), {"batch_id": batch, "run": run, "seq": 777_777}),
        "incidents": (page, {"since": day, "tenant_id": 1, "before_at": hour, "before": 77, "limit": 101}),
        "engine, an hour": (samples_sql.SAMPLES, {"engine_id": 2, "since": hour, "until": now, "stretch": 30.0}),
        "latency, an hour and a week": (
            latency_sql.READ,
            {"since": hour, "until": now, "stretch": 60.0, "model": None, "days": 7},
        ),
    }


MORE = {
    "failures by message": 12_000,  # it reads the first 10,000 failures
    "latency, an hour and a week": 1_200,  # 960 rows
    "list by name": 1_200,  # a thousand batches have such a name
}


@pytest.mark.slow
@pytest.mark.parametrize("prepared", [False, True], ids=["planned for its parameters", "planned once for all"])
def test_no_list_and_no_history_scans_items_or_reads_more_than_400_pages(
    full: psycopg.Connection, prepared: bool
) -> None:
    plans = {
        name: explain(full, statement, parameters, prepared=prepared)
        for name, (statement, parameters) in statements(full).items()
    }
    timing.note(", ".join(f"{name} {plan.pages}" for name, plan in plans.items()))
    scanned = {name: plan.scanned for name, plan in plans.items() if any("item_" in table for table in plan.scanned)}
    assert scanned == {}
    assert {n: p.pages for n, p in plans.items() if p.pages > MORE.get(n, MOST_PAGES)} == {}
