"""`GET /admin/v1/audit`: who did what, newest first."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app.api.admin.guard import ACCOUNT, OperatorDep
from app.api.deps import PartsDep
from app.api.envelope import success
from app.api.parameter_limits import Text
from app.api.workers_ai.standing import audit_page
from app.audit import log

router = APIRouter(prefix="/audit")


class AuditQuery(BaseModel):
    """Which records."""

    model_config = ConfigDict(extra="forbid")
    account: Annotated[str | None, Field(pattern=ACCOUNT, description="only about this account")] = None
    target: Annotated[Text | None, Field(description="only what was done to this, like the id of a batch")] = None
    before: Annotated[int | None, Field(ge=1, le=2**63 - 1, description="only records before this one")] = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


@router.get("")
async def listing(_: OperatorDep, parts: PartsDep, query: Annotated[AuditQuery, Query()]) -> Response:
    """The records of what operators, admins and the command line did. They contain no request and no answer."""
    async with parts.database.relaxed() as conn:
        found = await log.latest(
            conn, account=query.account, target=query.target, before=query.before, limit=query.limit + 1
        )
    page, info = audit_page(found, query.limit)
    return success(page, result_info=info)
