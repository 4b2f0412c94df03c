"""One flex call that waits in the queue: what was asked, where it stands, and what came of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from app.api.deps import Parts
from app.batches import single_request
from app.batches.validation.text_generation import ItemFacts, ItemRules
from app.engines.catalogue import Model
from app.engines.pricing import with_cost
from app.engines.request_echo import FLEX, echo
from app.engines.requests import RESPONSES
from app.errors import BadInput, ExecutionFailed, NoCapacity, TimedOut
from app.queue.reads import BatchStatus, ItemResult
from app.queue.types import Kind
from app.tenants.service import Tenant


@dataclass(frozen=True, slots=True)
class FlexRequest:
    """One call: the engine's route, how its body is checked, the model, the body."""

    endpoint: str
    examine: Callable[[Any, ItemRules], ItemFacts]
    model: Model
    item: dict[str, Any]

    @property
    def said(self) -> dict[str, Any]:
        """What its answer says of it."""
        return echo(self.item) if self.endpoint == RESPONSES else {"service_tier": FLEX}


@dataclass(frozen=True, slots=True)
class FlexCall:
    """A call that is in the queue under `request_id`."""

    asked: FlexRequest
    request_id: UUID
    tenant: Tenant
    parts: Parts

    async def status(self) -> BatchStatus:
        """Where it stands. Raises ExecutionFailed once it is not there any more."""
        why = await self.parts.polls.why(self.tenant.tenant_id, self.request_id)
        if why is None:
            raise ExecutionFailed("The request was removed while it waited")
        return why.status

    async def answer(self) -> dict[str, Any]:
        """The engine's answer to a call that has ended. Raises what became of it where there is none."""
        database, settings, tenant_id = self.parts.database, self.parts.settings, self.tenant.tenant_id
        found = await single_request.find(database, settings, tenant_id, self.request_id, Kind.FLEX)
        if found is None:
            raise ExecutionFailed("The request was removed while it waited")
        return self._read(found.result)

    def _read(self, result: ItemResult) -> dict[str, Any]:
        if result.ok and result.body is not None:
            answer = orjson.loads(result.body) | self.asked.said
            return {**answer, "usage": with_cost(answer["usage"], self.asked.model.price)}
        said: dict[str, Any] = (
            orjson.loads(result.body) if result.body else {"code": 5001, "message": "The request was cancelled"}
        )
        raised = {5006: BadInput, 3007: TimedOut, 3040: NoCapacity}.get(said["code"], ExecutionFailed)
        raise raised(said["message"])
