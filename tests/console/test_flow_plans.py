"""PostgreSQL's plans for the lists of 5,000 pipelines and 10,000 conversations: pages decide, not time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from app.batches import lookups_sql
from app.pipelines import listing_sql as pipelines
from app.sessions import listing_sql as conversations
from app.settings import Settings
from tests.queue import support
from tests.queue.plans import explain

pytestmark = pytest.mark.slow
PIPELINES, STAGES, SESSIONS = 5_000, 4, 10_000
MOST_PAGES = 200

FILL = f"""
insert into pool (model) values ('toy');
insert into tenant (account_id, name) select 'account-' || g, g from generate_series(1, 25) g;
insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, ok, deadline, state, finalized_at, created_at, name,
                   kind, pipeline_id)
  select (select next_batch_id() >> 36 << 36) + {STAGES} * g + n,
         ('00000000-0000-0000-000' || n || '-' || lpad(g::text, 12, '0'))::uuid,
         1 + g % 25, 'toy', case when n > 0 then '/v1' else '' end, 100, 60, now(),
         case when g % 100 = 0 then 'open' else 'completed' end, case when g % 100 <> 0 then now() end,
         now() - make_interval(secs => {PIPELINES} - g), case when n = 0 then 'name-' || g else 'stage-' || n end, 'stage',
         (select next_batch_id() >> 36 << 36) + {STAGES} * g
  from generate_series(1, {PIPELINES}) g, generate_series(0, {STAGES} - 1) n;
insert into pipeline (pipeline_id, request_id, tenant_id, name, state, definition, inputs, deadline, created_at, finalized_at)
  select batch_id, request_id, tenant_id, name, state, '{{}}', 100, now(), created_at, finalized_at from batch
  where pipeline_id = batch_id;
insert into stage (pipeline_id, n, batch_id, name) select pipeline_id, batch_id - pipeline_id, batch_id, name from batch;
insert into session (session_id, tenant_id, version, slope, used_at)
  select ('00000000-0000-0000-0009-' || lpad(g::text, 12, '0'))::uuid, 1 + g % 25, 3, g % 7 - 3,
         now() - make_interval(secs => {SESSIONS} - g) from generate_series(1, {SESSIONS}) g;
insert into turn (turn_id, tenant_id, session_id, n, state, model, input)
  select gen_random_uuid(), tenant_id, session_id, n, 'done', 'toy', '[]' from session, generate_series(1, 3) n"""


@pytest.fixture(scope="module")
def database(server_settings: Settings, template: str) -> Iterator[psycopg.Connection]:
    with (
        support.copied(server_settings, template, "flow_plans") as url,
        psycopg.connect(url, autocommit=True, prepare_threshold=None, options="-c synchronous_commit=off") as conn,
    ):
        conn.execute(FILL.encode())
        conn.execute("vacuum (analyze)")
        yield conn


PLACE = UUID(f"00000000-0000-0000-0000-{PIPELINES // 2:012}")
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
        (pipelines.RUNNING, {"batch_ids": found}, MOST_PAGES),
        (lookups_sql.FLOWS_BY_ID, {"tenant_id": None} | range_of, MOST_PAGES),
        (lookups_sql.PIPELINES_BY_NAME, {"tenant_id": None, "pattern": "name-77%"}, 2 * MOST_PAGES),
    ):
        plan = explain(database, statement, values, prepared=False)
        assert set(plan.scanned) <= {"tenant", "line", "chunk"}, statement  # of a few rows here
        assert plan.pages <= pages, f"{statement}: {plan.pages} pages"


@pytest.mark.parametrize("given", [{}, {"tenant_id": 3}, {"growing": True}], ids=["all", "tenant", "growing"])
@pytest.mark.parametrize("place", ["first", "after", "before"])
def test_a_page_of_conversations_and_of_turns_is_a_walk_of_an_index(
    database: psycopg.Connection, given: dict[str, Any], place: str
) -> None:
    session_id = UUID(f"00000000-0000-0000-0009-{SESSIONS // 2:012}")
    middle = datetime.now(UTC) - timedelta(seconds=SESSIONS / 2)
    asked = given | ({} if place == "first" else {place: session_id, f"{place}_at": middle})
    plan = explain(database, conversations.page(asked), asked | {"limit": 51}, prepared=True)
    assert plan.scanned == []
    assert plan.pages <= 4 * MOST_PAGES, f"{plan.pages} pages"  # with the last turn of each
    plan = explain(
        database, conversations.TURNS, {"session_id": session_id, "before": None, "limit": 51}, prepared=True
    )
    assert plan.scanned == []
    assert plan.pages <= MOST_PAGES
