"""The deletion of a batch's contents. OpenAI has no such route; its shape is that of the deletion of a file."""

from fastapi import APIRouter, Response

from app.api import submit_params
from app.api.deps import KeyHolder, PartsDep
from app.api.openai.list_pages import answer
from app.batches import refused_batches, shredding
from app.errors import NotFound

router = APIRouter()


@router.delete("/batches/{batch_id}")
async def delete(batch_id: str, tenant: KeyHolder, parts: PartsDep) -> Response:
    """Delete the requests and answers of a batch that has ended, and its output files. Its input file is deleted on its own."""
    request_id = submit_params.batch_id(batch_id)
    if request_id is None:
        raise NotFound(f"No batch found with id '{batch_id[:60]}'.")
    if await refused_batches.find(parts.database, tenant, [request_id]):
        raise refused_batches.nothing_to("delete")
    await shredding.shred(parts.database, parts.settings, tenant, request_id)
    return answer({"id": batch_id, "object": "batch", "deleted": True})
