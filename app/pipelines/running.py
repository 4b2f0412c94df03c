"""What the feeder knows about pipelines: their definition, and their stages as rows."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from typing import Any
from uuid import UUID

from app.db.pool import Database
from app.flows import counting
from app.flows.stages import INPUT, Definition, Stage
from app.pipelines import feeding_sql as queries
from app.pipelines import stored_flow
from app.queue.bodies import StoredBodies
from app.sealing.keyring import Keyring
from app.states import BatchState
from app.tenants.service import Tenant


@dataclass(frozen=True, slots=True)
class RunningStage:
    """A stage. `packs`: how many a stage that packs by value has; -1: not known yet; None: it does not pack by value. `taken`:
    results of its parent that were handed on to it. `ran`: items that are requests, or were parked. `open`: items without a
    result, as counted last. `line_id`: of the batch. `only_vaults`: its data key seals no bodies; None: it has no data key.
    `policy`: what rules decided about its items.
    """

    number: int
    batch_id: int
    packs: int | None
    taken: int
    ran: int
    open: int
    model: str
    line_id: int | None
    feeds: bool
    state: str
    only_vaults: bool | None
    policy: Mapping[str, Any] | None

    @property
    def grouped(self) -> bool:
        """Whether it packs by value, and its packs are known."""
        return self.packs is not None and self.packs >= 0


@dataclass(frozen=True, slots=True)
class Running:
    """A pipeline. `stages`: by their number, the input first. `inputs`: None: its source is not final yet. `overruled`: its owner
    has resumed it, so failures, many items and many packs do not pause it again. `has_quota`: whether its account may have one.
    """

    pipeline_id: int
    request_id: UUID
    tenant_id: int
    account_id: str
    state: BatchState
    run: int
    overruled: bool
    inputs: int | None
    deadline: datetime
    flow: Definition
    stages: tuple[RunningStage, ...]
    has_quota: bool = True

    @property
    def tenant(self) -> Tenant:
        """The account, whatever key the pipeline came with."""
        return Tenant(self.tenant_id, self.account_id, has_quota=self.has_quota)

    def numbers(self) -> tuple[int, ...]:
        """By stage, one more than the largest number that an item can have."""
        made = {each.number: each.packs or 0 for each in self.stages if each.grouped}
        return counting.numbers(self.flow, self.inputs or 0, made)

    def may_run(self, stage: Stage, inputs: int) -> int:
        """How many items of a stage may run. `inputs`: results of its parent that have come. Where every line of the input comes
        to it, all of the input counts from the beginning.
        """
        comes = max(inputs, self.inputs or 0) if counting.gets_every_line(self.flow, stage) else inputs
        return counting.allowed(stage.share, comes)


async def load(database: Database, keyring: Keyring, batch_ids: Collection[int]) -> dict[int, tuple[Running, int]]:
    """By batch, its pipeline and the number of its stage. A batch of no pipeline is missing. Raises KeysUnavailable."""
    async with database.relaxed() as conn:
        rows = await (await conn.execute(queries.RUNNING, {"batch_ids": list(batch_ids)})).fetchall()
    found: dict[int, tuple[Running, int]] = {}
    for _, group in groupby(rows, lambda row: row[0]):
        of_stages = list(group)
        pipeline_id, request_id, tenant_id, account_id, has_quota = of_stages[0][:5]
        state, run, overruled, inputs, deadline, definition = of_stages[0][5:11]
        stages = tuple(RunningStage(*row[11:]) for row in of_stages)
        if stages[INPUT].only_vaults is False:
            definition = await stored_flow.opened(StoredBodies(database, keyring, pipeline_id), definition)
        flow = _flow(definition)
        owner = pipeline_id, request_id, tenant_id, account_id
        running = Running(*owner, BatchState(state), run, overruled, inputs, deadline, flow, stages, has_quota)
        found |= {stage.batch_id: (running, stage.number) for stage in stages}
    return found


@lru_cache(maxsize=64)
def _flow(definition: bytes) -> Definition:
    return stored_flow.read(definition)
