"""`GET /client/v4/accounts`: the accounts that a key may use. That is always one."""

from fastapi import APIRouter, Response

from app.api.deps import KeyHolder
from app.api.envelope import success

router = APIRouter()


@router.get("/client/v4/accounts", summary="List the accounts of this API key")
async def list_accounts(tenant: KeyHolder) -> Response:
    """The account of the key, in the form of Cloudflare's list of accounts."""
    account = {"id": tenant.account_id, "name": tenant.account_id, "type": "standard"}
    info = {"page": 1, "per_page": 20, "total_pages": 1, "count": 1, "total_count": 1}
    return success([account], result_info=info)
