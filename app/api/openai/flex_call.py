"""One flex call in the queue: its request, its status and its answer."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from app import clock
from app.api.deps import Parts
from app.api.sync_requests import EngineRoute
from app.batches import lifecycle, single_request
from app.batches.restoring import restorer
from app.batches.withholding import withholder
from app.budgets import rules as budget_rules
from app.engines.catalogue import Model
from app.engines.pricing import priced
from app.engines.request_echo import FLEX, echo
from app.engines.requests import RESPONSES
from app.errors import BadInput, Conflict, ExecutionFailed, NoCapacity, TimedOut
from app.policy.denials import Denial
from app.policy.tool_call_events import EventWithholder
from app.queue.reads import BatchStatus, ItemResult
from app.queue.types import Kind
from app.states import BatchState
from app.tenants.service import Tenant


@dataclass(frozen=True, slots=True)
class FlexRequest:
    """One call: its route, its model and its body."""

    route: EngineRoute
    model: Model
    item: dict[str, Any]

    @property
    def repeated(self) -> dict[str, Any]:
        """The fields of the request that its answer repeats."""
        return echo(self.item) if self.route.endpoint == RESPONSES else {"service_tier": FLEX}


@dataclass(frozen=True, slots=True)
class FlexCall:
    """A call that is in the queue under `request_id`."""

    request: FlexRequest
    request_id: UUID
    tenant: Tenant
    parts: Parts

    async def status(self) -> BatchStatus:
        """The state of the call. Raises ExecutionFailed after it was removed; BudgetSpent, and ends it, where a budget that it
        waits for has no money left in this window.
        """
        why = await self.parts.polls.why(self.tenant.tenant_id, self.request_id)
        if why is None:
            raise ExecutionFailed("The request was removed while it waited")
        if why.money is not None and why.money.is_over and why.status.state == BatchState.OPEN:
            with suppress(Conflict):  # it has ended since
                await lifecycle.change_state(self.parts.database, self.tenant, self.request_id, "cancel")
                raise budget_rules.refusal(why.money.budget, why.money.needed, clock.now())
        return why.status

    def withholding(self, status: BatchStatus) -> EventWithholder | None:
        """What withholds from the stream of its answer. None: all may be sent."""
        found = withholder(status.policy, self.request_id, self.on_withheld)
        return None if found is None else found.events()

    def on_withheld(self, denial: Denial, request_id: UUID) -> None:
        """Note a tool call that is withheld."""
        self.parts.admission.withheld(self.tenant.account_id, denial, request_id)

    async def answer(self) -> bytes:
        """The engine's answer to a call that has ended. Raises its error where it has none."""
        database, settings, tenant_id = self.parts.database, self.parts.settings, self.tenant.tenant_id
        restoring = restorer(self.parts.secret_key, self.tenant)
        single = await single_request.find(
            database, settings, tenant_id, self.request_id, Kind.FLEX, restoring, self.on_withheld
        )
        if single is None:
            raise ExecutionFailed("The request was removed while it waited")
        return self._read(single.result)

    def _read(self, result: ItemResult) -> bytes:
        if result.ok and result.body is not None:
            return priced(result.body, self.request.model.price, self.request.repeated)
        error: dict[str, Any] = (
            orjson.loads(result.body) if result.body else {"code": 5001, "message": "The request was cancelled"}
        )
        kind = {5006: BadInput, 3007: TimedOut, 3040: NoCapacity}.get(error["code"], ExecutionFailed)
        raise kind(error["message"])
