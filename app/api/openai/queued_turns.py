"""`POST /responses` with `background: true`: a batch of one item. While another turn of its conversation runs, it is held."""

from typing import Any
from uuid import UUID

from fastapi import Request, Response

from app.admission.admission import Admitted
from app.api import request_parsing, submit_params
from app.api.deps import Parts
from app.api.openai import background_responses as routes
from app.api.openai import turns
from app.api.openai.metadata import read_metadata
from app.batches.openai import background_responses
from app.batches.submit import Order
from app.batches.validation.openai import response as examine
from app.batches.validation.text_generation import ItemFacts
from app.db.pool import Connection
from app.engines.catalogue import Model
from app.engines.requests import RESPONSES
from app.errors import BadInput
from app.metering.spend_labels import Spender
from app.queue.bodies import BatchSeal
from app.queue.ingest import NewBatch
from app.queue.types import Kind
from app.sessions import continuing, queued, reading
from app.sessions.continuing import NOTHING, Continued
from app.sessions.service import Keeper, NewTurn
from app.tenants.service import Tenant


async def create(model: Model, item: dict[str, Any], request: Request, tenant: Tenant, parts: Parts) -> Response:
    """Queue a response. The answer is its present state, or its events as they arrive. Raises BadInput, VersionMoved."""
    if item.get("store") is False:
        raise BadInput("store: a background response is stored until it is deleted; leave it out", param="store")
    item = {name: value for name, value in item.items() if name != "background"}
    read_metadata(item.get("metadata"))
    keeper = parts.keeper(tenant)
    found = await _continued(keeper, item)
    asked = {name: value for name, value in item.items() if name not in turns.CONTINUES}
    order, admitted = await _ordered(request, tenant, parts, model, asked, found)
    seal = await turns.seal_for(parts, tenant, found.seal, order.admission.encrypts)

    async def register(conn: Connection, batch: NewBatch, _: BatchSeal | None) -> None:
        turn = NewTurn(
            batch.request_id,
            tenant.tenant_id,
            admitted.model.name,
            found.own_input(admitted.item),
            seal,
            await turns.original(asked, order.admission, admitted.values),
            values=admitted.values,
            parent=found.parent,
            n=found.n,
            batch_id=batch.batch_id,
            spender=Spender(tenant.key_id, order.labels.spend),
        )
        await queued.add(conn, keeper, turn, found.session, request.headers.get("if-match"))

    request_id: UUID = await background_responses.create(
        parts.database,
        parts.settings,
        order,
        admitted,
        asked=item,
        repeated=submit_params.sent_before(request.headers),
        also=register,
    )
    if item.get("stream"):
        return routes.events(parts, tenant, request_id, -1)
    return await routes.queued_view(parts, tenant, request_id, found.shown)


async def _ordered(
    request: Request, tenant: Tenant, parts: Parts, model: Model, asked: dict[str, Any], found: Continued
) -> tuple[Order, Admitted[ItemFacts]]:
    return await request_parsing.single_order(
        request,
        tenant,
        parts,
        request_parsing.SingleRoute(RESPONSES, examine, Kind.RESPONSE),
        model,
        found.item(asked),
        idempotency_key=submit_params.key_of(request.headers),
        affinity=found.affinity,
        values=found.values,
    )


async def _continued(keeper: Keeper, item: dict[str, Any]) -> Continued:
    session_id = continuing.conversation_of(item)
    if session_id is not None:
        return await continuing.of_session(await reading.read(keeper, session_id))
    if item.get("previous_response_id") is not None:
        return await continuing.of_response(keeper, item["previous_response_id"])
    return NOTHING
