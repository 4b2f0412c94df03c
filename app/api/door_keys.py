"""POST /internal/door/keys: which API keys an engine's door may let in, and what each has used of its limits in this minute.

The door shows its token, reports what it has let in since its last question, and gets the counts of all doors and gateways.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from app.api import body
from app.api.deps import Parts, PartsDep
from app.engines import service as engines
from app.engines.engine_key import engine_of_door
from app.errors import AuthenticationError, BadInput
from app.metering.lines import DOOR, parts_of
from app.metering.spend_labels import NO_SPEND_LABELS
from app.settings import Settings
from app.tenants import rate_limits
from app.tenants import service as tenants
from app.tenants.key_scope import KeyLimits, KeyRole
from app.tenants.rate_limits import KeyMinute
from app.tenants.service import Tenant
from app.usage_counts import UsageCounts
from app.wrong_values import wrong
from workers.engine.door.keys import MOST_AT_ONCE, MOST_COUNT, MOST_KEY_BYTES, PATH

router = APIRouter(include_in_schema=False)

_BODY_MB = 1
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]


class KeyQuestion(BaseModel):
    """One key: `token` if the door has not seen it before, else its id. `requests`, `tokens`: let in since the last question.

    `answered`, `prompt_tokens`, `completion_tokens`: answered since then.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    token: Annotated[str, Field(max_length=MOST_KEY_BYTES)] = ""
    key_id: Annotated[str, Field(max_length=64)] = ""
    requests: Count = 0
    tokens: Count = 0
    answered: Count = 0
    prompt_tokens: Count = 0
    completion_tokens: Count = 0


_QUESTIONS = TypeAdapter(Annotated[list[KeyQuestion], Field(max_length=MOST_AT_ONCE)])


@router.post(PATH)
async def door_keys(request: Request, parts: PartsDep) -> dict[str, Any]:
    """For each key its account, limits and counts, in the order of the questions; and where the engine's worker listens."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    engine = engine_of_door(parts.secret_key, token.strip()) if scheme.lower() == "bearer" else None
    if engine is None:
        raise AuthenticationError("Authentication error: show the token of an engine's door")
    given = await body.read_json(request, _BODY_MB)
    try:
        questions = _QUESTIONS.validate_python(given.get("keys"))
    except ValidationError as error:
        raise BadInput(f"keys: {wrong(error.errors()[0], secret=True)}", param="keys") from error
    known, used, worker = await _known(parts, engine, questions)
    return {"keys": [_answer(parts.settings, tenant, used) for tenant in known], "worker": worker}


async def _known(
    parts: Parts, engine: str, questions: list[KeyQuestion]
) -> tuple[list[Tenant | None], dict[str, KeyMinute], str | None]:
    """The tenant of each question, the counts by key, and the worker's address. Raises psycopg's errors."""
    shown = [parts.keys.tenant(question.token) for question in questions if question.token]
    by_token = iter(await asyncio.gather(*shown))
    async with parts.database.relaxed() as conn:
        by_id = await tenants.live_keys(conn, [_shown(question.key_id) for question in questions if not question.token])
        known = [next(by_token) if question.token else by_id.get(_shown(question.key_id)) for question in questions]
        let_in: dict[str, tuple[int, int]] = {}
        for tenant, question in zip(known, questions, strict=True):
            if tenant is not None and _limits(parts.settings, tenant) != rate_limits.NO_LIMITS:
                requests, tokens = let_in.get(tenant.key_id, (0, 0))
                let_in[tenant.key_id] = requests + question.requests, tokens + question.tokens
        used = await rate_limits.add(conn, let_in) if let_in else {}
        listed = {each.name: each for each in await engines.list_engines(conn)}
    found = listed.get(engine)
    served = found.model if found else ""
    known = [tenant if tenant is not None and _may_enter(parts, tenant, served) else None for tenant in known]
    if found is None:
        return known, used, None
    for tenant, question in zip(known, questions, strict=True):
        if tenant is not None and question.answered:
            _book(parts, tenant, question, found.model)
    return known, used, found.arrival_url


def _shown(key_id: str) -> tuple[str, int]:
    """A key as a door names it: its id, and which of its secrets it showed."""
    name, _, rotation = key_id.partition(".")
    return name, int(rotation) if rotation.isdecimal() else 0


def _may_enter(parts: Parts, tenant: Tenant, served: str) -> bool:
    """Whether the key may use this engine without the API, which alone sees its endpoint and its address."""
    scope, model = tenant.scope, parts.catalogue.resolve(served)
    if scope.endpoints is not None or scope.networks is not None or not scope.role.includes(KeyRole.SUBMITTER):
        return False
    return scope.may_ask(model.name if model else served)


def _book(parts: Parts, tenant: Tenant, question: KeyQuestion, served: str) -> None:
    """Add what the door has let through to the ledger. A question whose answer was lost is asked and booked again."""
    model = parts.catalogue.resolve(served)
    name, price = (model.name, model.price) if model else (served, None)
    line = parts_of(tenant.tenant_id, tenant.key_id, NO_SPEND_LABELS, name, DOOR, price)
    answered = question.answered
    parts.gateway.usage.add(
        line, UsageCounts(answered, answered, question.prompt_tokens, 0, question.completion_tokens)
    )


def _answer(settings: Settings, tenant: Tenant | None, used: dict[str, KeyMinute]) -> dict[str, Any]:
    if tenant is None:
        return {"account": None}
    limits = _limits(settings, tenant)
    answer = {
        "key_id": f"{tenant.key_id}.{tenant.rotation}",
        "account": tenant.account_id,
        "requests_per_minute": limits.requests,
        "tokens_per_minute": limits.tokens,
    }
    if (minute := used.get(tenant.key_id)) is not None:
        answer |= {"requests": minute.requests, "tokens": minute.tokens, "seconds": minute.seconds}
    return answer


def _limits(settings: Settings, tenant: Tenant) -> KeyLimits:
    return rate_limits.in_force(tenant.limits, settings.key_requests_per_minute, settings.key_tokens_per_minute)
