"""Pipelines with items that wait for an answer from outside, for tests."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.admission.control import AdmissionControl
from app.db.pool import Database
from app.flows.definition import parse
from app.pipelines import creation, ids, stored_flow
from app.pipelines.creation import Lines, NewPipeline, NewStage
from app.pipelines.feeding import Feeder
from app.queue import copy_format, ingest, settling
from app.sealing.batch_keys import NewKey
from app.settings import Settings
from tests.flows.pipelines import Json, pipeline, stage
from tests.system.stack import MODEL

OUTSIDE: Json = {"id": "run", "external": {"timeout": "2h"}, "body": {"code": "{{item.code}}"}}


@dataclass(frozen=True)
class Waits:
    """A pipeline whose first stage, `run`, has items that wait, and its second, `after`, reads their answers."""

    tenant_id: int
    request_id: uuid.UUID
    pipeline_id: int
    batch_id: int
    after_id: int

    @property
    def public_id(self) -> str:
        return ids.format_id(self.request_id)

    def path(self, seq: int, stage: str = "run") -> str:
        """The route of an answer."""
        return f"/v1/pipelines/{self.public_id}/items/{stage}/{seq}/answer"


async def make(
    database: Database,
    settings: Settings,
    tenant: int,
    items: int = 3,
    keys: Mapping[int, NewKey] | None = None,
    numbers: tuple[int, ...] = (),
) -> Waits:
    """A pipeline with so many items that wait. `keys`: of its stages, by number. `numbers`: drawn batch ids."""
    definition = pipeline(OUTSIDE, stage("after", "It said {{text}}", model=MODEL))
    async with database.transaction() as conn:
        drawn = numbers or tuple([await ingest.next_batch_id(conn) for _ in range(3)])
        found = keys or {}
        new = NewPipeline(
            drawn[0],
            uuid.uuid4(),
            tenant,
            parse(definition),
            stored_flow.of_definition(definition),
            [NewStage(batch_id, uuid.uuid4(), key=found.get(n)) for n, batch_id in enumerate(drawn[1:], 1)],
            86_400,
        )
        lines = [
            copy_format.payload_row(drawn[0], n, f"line-{n}", None, 0, b'{"code":"print(%d)"}' % n)
            for n in range(items)
        ]
        await creation.create(conn, new, Lines(items, [copy_format.HEADER, *lines, copy_format.TRAILER]))
    await feed(database, settings)
    return Waits(tenant, new.request_id, drawn[0], drawn[1], drawn[2])


async def feed(database: Database, settings: Settings) -> None:
    """Hand on all that there is, and count it."""
    feeder = Feeder(database, settings, AdmissionControl.of(database, settings))
    while await feeder.step():
        pass
    async with database.transaction() as conn:
        await settling.settle(conn)


async def rows(database: Database, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """Rows of one query."""
    async with database.relaxed() as conn:
        return list(await (await conn.execute(query.encode(), values)).fetchall())
