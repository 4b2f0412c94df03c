"""`/admin/v1/policy`: the rules on requests: read, apply, roll back."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app import clock
from app.admission import policy_versions
from app.api import body
from app.api.admin.guard import Change, ChangeDep, OperatorDep
from app.api.deps import PartsDep
from app.api.envelope import success
from app.db.pool import Connection
from app.errors import BadInput
from app.policy import service
from app.policy.language import MOST_BYTES
from app.policy.problems import PolicyError
from app.policy.service import PolicyVersion

router = APIRouter(prefix="/policy")
_BODY_MB = 1.0


class Rollback(BaseModel):
    """Which version to put in force again; without one, the version before."""

    model_config = ConfigDict(extra="forbid", strict=True)
    version: Annotated[int | None, Field(ge=1)] = None


@router.get("")
async def show(_: OperatorDep, parts: PartsDep) -> Response:
    """The policy in force, with its text; null: none was ever applied."""
    async with parts.database.relaxed() as conn:
        found = await service.newest(conn)
    return success(None if found is None else _view(found) | {"text": found.text})


class VersionsQuery(BaseModel):
    """Which versions."""

    model_config = ConfigDict(extra="forbid")
    before: Annotated[int | None, Field(ge=1, le=2**63 - 1, description="only versions before this one")] = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


@router.get("/versions")
async def versions(_: OperatorDep, parts: PartsDep, query: Annotated[VersionsQuery, Query()]) -> Response:
    """The versions of the policy, newest first, without their texts. The newest is in force."""
    async with parts.database.relaxed() as conn:
        found = await service.history(conn, query.limit + 1, query.before)
    page = found[: query.limit]
    info = {"count": len(page), "before": page[-1].policy_id if len(found) > len(page) else None}
    return success([_view(each) for each in page], result_info=info)


@router.put("")
async def apply(request: Request, parts: PartsDep, change: ChangeDep) -> Response:
    """Check a policy and put it in force. Every process follows it within a second."""
    given = await body.read_json(request, _BODY_MB)
    text = given.get("policy")
    if given.keys() != {"policy"} or not isinstance(text, str) or len(text) > MOST_BYTES:
        raise BadInput("policy: send the text of a policy, in TOML, and nothing else", param="policy")

    async def verb(conn: Connection) -> tuple[PolicyVersion, bool]:
        return await policy_versions.apply(conn, text, parts.catalogue, change.subject)

    return await _changed(change, verb)


@router.post("/rollback")
async def roll_back(request: Request, parts: PartsDep, change: ChangeDep) -> Response:
    """Put an earlier version in force again, as a new version."""
    version = (await body.read_model(request, Rollback)).version

    async def verb(conn: Connection) -> tuple[PolicyVersion, bool]:
        return await policy_versions.roll_back(conn, version, parts.catalogue, change.subject)

    return await _changed(change, verb)


async def _changed(change: Change, verb: Callable[[Connection], Awaitable[tuple[PolicyVersion, bool]]]) -> Response:
    """The answer to a change of the policy, which is recorded. Raises BadInput."""
    async with change.transaction() as conn:
        try:
            version, new = await verb(conn)
        except PolicyError as error:
            raise BadInput(f"policy: {error}", param="policy") from None
    return success(_view(version) | {"new": new})


def _view(version: PolicyVersion) -> dict[str, Any]:
    return {
        "version": version.policy_id,
        "hash": version.digest,
        "by": version.by,
        "at": clock.iso(version.at),
        "restores": version.restores,
    }
