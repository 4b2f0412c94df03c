"""PostgreSQL's plans for the console's statements with 10,000 batches and a batch of a million items: pages decide, not time.

A page of the console may cost the database 200 of its pages for each statement, and no scan of a table that grows.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from app.batches import queue_outlook_sql
from app.console import queries_items_sql as items_sql
from app.console import queries_sql as sql
from app.db.day_tables import on_day
from testing.large_installation import LargeInstallation
from tests.databases import Ring
from tests.queue.plans import explain

LARGE = LargeInstallation()
BATCHES, ITEMS = LARGE.batches, LARGE.items
MOST_PAGES = 200
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def database(ring: Ring) -> Iterator[psycopg.Connection]:
    with (
        ring.taken() as url,
        psycopg.connect(url, autocommit=True, prepare_threshold=None, options="-c synchronous_commit=off") as conn,
    ):
        conn.execute(LARGE.sql().encode())
        conn.execute("vacuum (analyze)")
        yield conn


@pytest.fixture(scope="module")
def values(database: psycopg.Connection) -> dict[str, Any]:
    row = database.execute("select batch_id, request_id from batch where total > 1000").fetchone()
    assert row
    return {
        "batch_id": row[0],
        "request_id": row[1],
        "total": ITEMS,
        "run": 1,
        "tenant_id": 1,
        "after": 500_000,
        "limit": 21,
    }


def test_the_pages_of_a_batch_look_keys_up(database: psycopg.Connection, values: dict[str, Any]) -> None:
    statements = {
        "one": (sql.ONE, 0),
        "answered": (items_sql.ANSWERED_ITEMS, 0),
        "tries": (items_sql.TRIES, 0),
        "bodies": (items_sql.BODIES, 0),
        "retried": (items_sql.walked("retried"), 200),  # a walk of four thousand results
        "slow": (items_sql.walked("slow"), 200),
        "walk_end": (items_sql.WALK_END, 0),
        "usual_ms": (items_sql.USUAL_MS, 150),
        "events": (sql.EVENTS, 0),
        "progress": (sql.PROGRESS, 150),  # sixty look-ups in the index of a million
    }
    for name, (statement, more) in statements.items():
        of_day = on_day(statement, values["batch_id"])
        plan = explain(database, of_day, values | {"seq": 777_777, "slow_ms": 1000.0}, prepared=True)
        assert plan.scanned == [], name
        assert plan.pages <= MOST_PAGES + more, f"{name}: {plan.pages} pages"


CASES: list[dict[str, Any]] = [
    {},
    {"tenant_id": 3},
    {"open": True},
    {"tenant_id": 3, "open": True},
    {"tenant_id": 3, "ended": True},
    {"tenant_id": 3, "state": "completed"},
    {"tenant_id": 3, "model": "toy"},
    {"tenant_id": 3, "name": "name-5", "name_end": "name-5\U0010ffff"},
    {"id_from": UUID(int=5_000), "id_to": UUID(int=5_050)},
]


@pytest.mark.parametrize("given", CASES, ids=lambda given: "-".join(given) or "all")
@pytest.mark.parametrize("place", ["first", "after", "before"])
def test_a_list_reads_a_page_of_its_index(database: psycopg.Connection, given: dict[str, Any], place: str) -> None:
    middle = datetime.now(UTC) - timedelta(seconds=BATCHES / 2)
    here = {
        "first": {},
        "after": {"after": UUID(int=5_000), "after_at": middle},
        "before": {"before": UUID(int=5_000), "before_at": middle},
    }
    asked = given | here[place]
    plan = explain(database, sql.page(asked), asked | {"limit": 51}, prepared=True)
    assert plan.scanned == []
    assert plan.pages <= 4 * MOST_PAGES, f"{plan.pages} pages"


def test_the_numbers_of_the_rail_and_the_reasons_are_bounded(database: psycopg.Connection) -> None:
    plan = explain(database, queue_outlook_sql.POOLS, {}, prepared=False)
    assert plan.pages <= MOST_PAGES, f"{plan.pages} pages"
    for statement in (sql.RAIL, sql.WAITS, queue_outlook_sql.WAITING):
        for tenant_id in (None, 3):
            plan = explain(database, statement, {"tenant_id": tenant_id}, prepared=False)
            assert plan.pages <= 4 * MOST_PAGES, f"{plan.pages} pages"
