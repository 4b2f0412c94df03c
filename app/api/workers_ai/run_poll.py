"""A poll of `…/ai/run`: the progress of a batch, or all its responses once it is final."""

from typing import Any

from fastapi import Response

from app.api import submit_params
from app.api.body import JSON
from app.api.deps import Parts
from app.api.envelope import success
from app.api.streams import streamed
from app.api.workers_ai import batch_views, results
from app.api.workers_ai.batch_views import MISSING
from app.errors import NotFound
from app.queue import failures
from app.queue.reads import BatchStatus
from app.states import BatchState
from app.tenants.service import Tenant


async def poll(request_id: Any, tenant: Tenant, parts: Parts) -> Response:
    """The batch of this id. Raises NotFound, BadInput for a batch that was refused."""
    parsed = submit_params.batch_id(request_id)
    if parsed is None:
        raise NotFound(MISSING)
    why = await parts.polls.why(tenant.tenant_id, parsed)
    if why is None:
        raise await batch_views.not_run(parsed, tenant, parts)
    if why.status.finalized_at is None:
        return success(results.pending(why))
    return await _final(why.status, tenant, parts)


async def _final(status: BatchStatus, tenant: Tenant, parts: Parts) -> Response:
    all_refused = False
    if status.state == BatchState.FAILED:
        async with parts.database.relaxed() as conn:
            all_refused = bool(await failures.all_refused(conn, [(status.batch_id, status.run)]))
    code = results.http_status(status, all_refused=all_refused)
    stream = results.render(status, batch_views.pages(status, parts, tenant), parts.catalogue, code)
    headers = {} if code == 200 else {"x-should-retry": "false"}
    return await streamed(stream, code, headers, media_type=JSON)
