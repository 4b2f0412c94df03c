"""Check a definition with a sample of its input; nothing is stored."""

from typing import Any

import orjson

from app.db.pool import Database
from app.engines.catalogue import Catalogue
from app.errors import BadInput
from app.files import sealed_files
from app.flows.stages import Definition
from app.pipelines import forecast, service
from app.pipelines.service import Caller, Given
from app.queue.answer_lengths import UsualLength
from app.settings import Settings
from app.tenants.service import Tenant


async def of(
    database: Database, settings: Settings, caller: Caller, given: Given, catalogue: Catalogue, usual: UsualLength
) -> dict[str, Any]:
    """What a create would make. Raises BadInput, NotFound, PolicyDenied, SensitiveFound."""
    order = await service.order_of(caller, given, catalogue, usual)
    if given.items is not None:
        lines, sample = len(given.items), list(given.items[: forecast.SAMPLE])
    elif order.flow.input.file_id is not None:
        lines, sample = await _of_file(database, settings, caller.tenant, order.flow)
    else:
        async with database.relaxed() as conn:
            _, lines = await service.source_of(conn, caller.tenant, order.flow)
        sample = []
    used = min(lines, order.flow.limit or lines)
    if odd := next((line for line in sample if not isinstance(line, dict)), None):
        raise BadInput(f"input.items: must be objects, not {type(odd).__name__}", param="input.items")
    return await forecast.of(database, order, usual, used, sample)


async def _of_file(
    database: Database, settings: Settings, tenant: Tenant, flow: Definition
) -> tuple[int, list[dict[str, Any]]]:
    """The number of lines of the input's file, and the first of them. Raises BadInput."""
    file_id, sample, count, rest = await service.file_of(database, tenant, flow), list[dict[str, Any]](), 0, b""
    async for block in sealed_files.stream(database, settings, tenant.tenant_id, file_id):
        *texts, rest = (rest + block).split(b"\n")
        count += sum(1 for text in texts if text.strip())
        sample += [_object(text) for text in texts if text.strip()][: forecast.SAMPLE - len(sample)]
    if rest.strip():
        count += 1
        sample += [_object(rest)][: forecast.SAMPLE - len(sample)]
    return count, sample


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise BadInput("input.file_id: every line must be a JSON object", param="input.file_id")
    return found
