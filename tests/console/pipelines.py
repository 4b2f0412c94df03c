"""Pipelines for the tests of the console: created as a caller creates them, then moved on as rows."""

from typing import Any

from starlette.applications import Starlette

from app.batches.request_labels import NO_LABELS
from app.console.parts import Parts
from app.db.pool import Database
from app.pipelines import ids, service
from app.pipelines.service import Caller, Given
from app.queue.answer_lengths import AnswerLengths
from app.queue.types import Kind
from app.tenants import service as tenants
from app.tenants.service import Tenant

MODEL = "smollm2-135m-instruct"
LINES = 40
Definition = dict[str, Any]


def stage(name: str, **more: Any) -> Definition:
    """A stage that asks the model."""
    return {"id": name, "model": MODEL, "body": {"messages": [{"role": "user", "content": "{{text}}"}]}} | more


def tickets(name: str = "tickets", **more: Any) -> Definition:
    """A pipeline of which two stages read the first one, and one of them fans out."""
    stages = [
        stage("classify", body={"messages": [{"role": "user", "content": "Class?\n{{item.text}}"}]}),
        stage("reply", after="classify", when="text != 'spam'"),
        stage(
            "facts",
            after="classify",
            each="json.facts",
            max=5,
            body={"messages": [{"role": "user", "content": "{{each}}"}]},
        ),
        stage("judge", after="reply"),
    ]
    items = [{"custom_id": f"ticket-{n}", "text": f"about {n}"} for n in range(LINES)]
    return {
        "name": name,
        "completion_window": "2h",
        "budget": {"usd": 5},
        "input": {"items": items},
        "stages": stages,
    } | more


async def create(site: Starlette, database: Database, given: Definition, account: str = "acme") -> str:
    """Create a pipeline of an account. Returns its id as callers see it."""
    parts: Parts = site.state.parts
    async with database.transaction() as conn:
        tenant = Tenant(await tenants.ensure_tenant(conn, account), account)
    admission = parts.admission.begin(tenant, NO_LABELS.spend, Kind.BATCH, parts.catalogue, stored=())
    usual = AnswerLengths(database, tuple(parts.catalogue.models)).of(tenant.tenant_id)
    caller = Caller(tenant, NO_LABELS, lambda window: admission)
    made = await service.create(database, parts.settings, caller, Given.of(given), parts.catalogue, usual)
    return ids.format_id(made)


_BEGUN = """
update stage s set ran = x.ran, passed = x.passed, dropped = x.dropped, taken = x.taken
from (values ('classify', 40, 0, 0, 40), ('reply', 20, 0, 4, 24)) x (name, ran, passed, dropped, taken)
where s.name = x.name and s.pipeline_id = (select pipeline_id from pipeline where request_id = %(id)s);
"""
_COUNTED = """
update batch b set total = x.total, ok = x.ok, failed = x.failed, prompt_tokens = 100 * x.ok, completion_tokens = 20 * x.ok
from (values ('classify', 40, 24, 1), ('reply', 20, 8, 2)) x (name, total, ok, failed), stage s, pipeline p
where p.request_id = %(id)s and s.pipeline_id = p.pipeline_id and s.name = x.name and b.batch_id = s.batch_id"""


async def begin(database: Database, public_id: str) -> None:
    """As if its first stages had got some results."""
    values = {"id": ids.parse_id(public_id)}
    async with database.transaction() as conn:
        for statement in (_BEGUN, _COUNTED):
            await conn.execute(statement, values)


async def end(database: Database, public_id: str) -> None:
    """As if it had been cancelled, with no result of its first stage."""
    async with database.transaction() as conn:
        values = {"id": ids.parse_id(public_id)}
        await conn.execute(
            "update batch b set state = 'cancelled', finalized_at = now(), fed = false from pipeline p"
            " where p.request_id = %(id)s and b.pipeline_id = p.pipeline_id and b.finalized_at is null",
            values,
        )
        await conn.execute(
            "update pipeline set state = 'cancelled', finalized_at = now() where request_id = %(id)s", values
        )
