"""`GET …/quota`, `GET …/policy`, `POST …/policy/test`: what limits the account, and its rules. Cloudflare has no such routes."""

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Request, Response

from app import clock
from app.admission import quotas
from app.api import body
from app.api.deps import Caller, PartsDep
from app.api.envelope import success
from app.errors import BadInput
from app.policy import replay, samples
from app.policy.language import MOST_BYTES, parse
from app.policy.problems import PolicyError
from app.policy.rules import Rule
from app.policy.samples import KEPT_DAYS
from app.quantities import seconds_of

router = APIRouter(prefix="/ai")

_BODY_MB = 1.0
_FIELDS = {"policy", "last"}


@router.get("/quota")
async def quota(tenant: Caller, parts: PartsDep) -> Response:
    """How much the account may have queued and stored, and how much it has. A limit that is null is none."""
    async with parts.database.relaxed() as conn:
        limits, used = await quotas.limits(conn, tenant.tenant_id), await quotas.usage(conn, tenant.tenant_id)
    return success({"limits": asdict(limits), "used": asdict(used)})


@router.get("/policy")
async def policy(tenant: Caller, parts: PartsDep) -> Response:
    """The version of the policy in force, and the ids of its rules that can match a request of the account, in their order."""
    current = parts.admission.policy.current
    rules = [
        _view(rule)
        for rule in current.rules
        if tenant.account_id in rule.when.texts.get("account", {tenant.account_id})
    ]
    return success({"version": current.policy_id or None, "rules": rules})


@router.post("/policy/test")
async def test(request: Request, tenant: Caller, parts: PartsDep) -> Response:
    """Try a policy on the account's recorded requests and open batches, without applying it: matches, denials, cost."""
    given = await body.read_json(request, _BODY_MB)
    if unknown := sorted(given.keys() - _FIELDS):
        raise BadInput(f"{unknown[0]}: is unknown; send policy, and last if you like", param=unknown[0])
    text, last = given.get("policy"), given.get("last", "7d")
    if not isinstance(text, str) or len(text) > MOST_BYTES:
        raise BadInput("policy: must be the text of a policy, in TOML", param="policy")
    seconds = seconds_of(last) if isinstance(last, str) else None
    if not seconds or seconds > KEPT_DAYS * 86_400:
        raise BadInput(f"last: must be a length of time like 90m, 24h or 7d, at most {KEPT_DAYS}d", param="last")
    models = parts.catalogue
    try:
        rules = parse(text, models)
    except PolicyError as error:
        raise BadInput(f"policy: {error}", param="policy") from None
    async with parts.database.relaxed() as conn:
        recent = await samples.since(conn, clock.now() - timedelta(seconds=seconds), tenant.tenant_id)
        waiting = await samples.open_batches(conn, tenant.tenant_id)
    reports = {"recent": replay.replay(rules, recent, models), "open": replay.replay(rules, waiting, models)}
    return success({name: report.document() for name, report in reports.items()})


def _view(rule: Rule) -> dict[str, Any]:
    return {"id": rule.rule_id, "observe": rule.observe, "denies": rule.refuse is not None, "contact": rule.contact}
