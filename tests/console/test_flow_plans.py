"""PostgreSQL's plans for the lists of 5,000 pipelines and 10,000 conversations: pages decide, not time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from app.batches import lookups_sql
from app.pipelines import listing_sql as pipelines
from app.sessions import listing_sql as conversations
from testing import large_flows
from testing.large_installation import ACCOUNTS
from tests.databases import Ring
from tests.queue.plans import explain

pytestmark = pytest.mark.slow
MOST_PAGES = 200


@pytest.fixture(scope="module")
def database(ring: Ring) -> Iterator[psycopg.Connection]:
    with (
        ring.taken() as url,
        psycopg.connect(url, autocommit=True, prepare_threshold=None, options="-c synchronous_commit=off") as conn,
    ):
        conn.execute(f"{ACCOUNTS}; {large_flows.SQL}".encode())
        conn.execute("vacuum (analyze)")
        yield conn


PLACE = large_flows.pipeline(large_flows.PIPELINES // 2)
LISTS: list[dict[str, Any]] = [
    {},
    {"tenant_id": 3},
    {"open": True},
    {"tenant_id": 3, "ended": True},
    {"account": "account-3"},
]


@pytest.mark.parametrize("given", LISTS, ids=lambda given: "-".join(given) or "all")
@pytest.mark.parametrize("place", [{}, {"after": PLACE}, {"before": PLACE}], ids=["first", "after", "before"])
def test_a_page_of_pipelines_is_a_walk_of_an_index(
    database: psycopg.Connection, given: dict[str, Any], place: dict[str, Any]
) -> None:
    asked = given | place
    plan = explain(database, pipelines.page(asked), asked | {"limit": 26}, prepared=True)
    assert plan.scanned == []
    assert plan.pages <= MOST_PAGES, f"{plan.pages} pages"


def _begins(name: str) -> dict[str, Any]:
    return {"tenant_id": None, "name": name, "name_end": name + chr(0x10FFFF)}


def test_what_the_pages_of_pipelines_read_besides_are_look_ups(database: psycopg.Connection) -> None:
    [(found,)] = database.execute(
        "select array_agg(pipeline_id) from (select pipeline_id from pipeline limit 25) p"
    ).fetchall()
    one = {"tenant_id": None, "request_id": PLACE}
    range_of = {"id_from": PLACE, "id_to": PLACE}
    for statement, values, pages in (
        (pipelines.STAGES, {"pipeline_ids": found}, 4 * MOST_PAGES),
        (pipelines.ONE, one, MOST_PAGES),
        (pipelines.OPEN, {"tenant_id": None}, MOST_PAGES),
        (lookups_sql.FLOWS_BY_ID, {"tenant_id": None} | range_of, MOST_PAGES),
        (lookups_sql.PIPELINES_BY_NAME, _begins("flow-77"), MOST_PAGES),
        (lookups_sql.PIPELINES_BY_NAME, _begins("none"), MOST_PAGES),
        (lookups_sql.BATCHES_BY_NAME, _begins("flow-"), 30 * MOST_PAGES),  # the inputs of all pipelines, and no batch
        (lookups_sql.BATCHES_BY_NAME, _begins("none"), MOST_PAGES),
    ):
        plan = explain(database, statement, values, prepared=True)
        assert set(plan.scanned) <= {"tenant", "line", "chunk"}, statement  # of a few rows here
        assert plan.pages <= pages, f"{statement}: {plan.pages} pages"


@pytest.mark.parametrize("given", [{}, {"tenant_id": 3}, {"growing": True}], ids=["all", "tenant", "growing"])
@pytest.mark.parametrize("place", ["first", "after", "before"])
def test_a_page_of_conversations_and_of_turns_is_a_walk_of_an_index(
    database: psycopg.Connection, given: dict[str, Any], place: str
) -> None:
    session_id = large_flows.conversation(large_flows.CONVERSATIONS // 2)
    middle = datetime.now(UTC) - timedelta(seconds=large_flows.CONVERSATIONS / 2)
    asked = given | ({} if place == "first" else {place: session_id, f"{place}_at": middle})
    plan = explain(database, conversations.page(asked), asked | {"limit": 51}, prepared=True)
    assert plan.scanned == []
    assert plan.pages <= 4 * MOST_PAGES, f"{plan.pages} pages"  # with the last turn of each
    plan = explain(
        database, conversations.TURNS, {"session_id": session_id, "before": None, "limit": 51}, prepared=True
    )
    assert plan.scanned == []
    assert plan.pages <= MOST_PAGES
