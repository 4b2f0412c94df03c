"""Who may use the admin routes: an operator, with a token `sk_op_…` or one of the identity provider. No API key opens them.

Every change is recorded in its own transaction, with the operator, the reason in `x-slackwater-reason`, and the request's id.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Path, Request

from app.access import operator_tokens
from app.access.oidc import OidcError
from app.access.operator_tokens import PREFIX, Operator
from app.access.roles import Role
from app.api.deps import Parts, PartsDep
from app.api.header_texts import HeaderTexts
from app.audit import actor
from app.audit.actor import Actor
from app.audit.acts import Act
from app.db.pool import Connection
from app.errors import AuthenticationError, BadInput
from app.openai_codes import OpenAICode

REASON = "x-slackwater-reason"
ACCOUNT = "^[A-Za-z0-9_-]{1,64}$"
AccountPath = Annotated[str, Path(pattern=ACCOUNT)]
KeyPath = Annotated[str, Path(pattern="^[0-9a-f]{1,64}$")]
_LONGEST_REASON = 500
_NEEDED = "Authentication error: send an operator's token, sk_op_…, as `Authorization: Bearer <token>`"


async def operator(request: Request, parts: PartsDep) -> Operator:
    """The operator who sends the request. Raises AuthenticationError, which is recorded; an auditor may only look."""
    actor.enter(actor.stranger(request.state.request_id))
    try:
        return await _allowed(request, parts)
    except AuthenticationError as error:
        parts.admission.audit.add(Act.ACCESS_REFUSED, request.scope["route"].path_format, None, error.message)
        raise


async def _allowed(request: Request, parts: Parts) -> Operator:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise AuthenticationError(_NEEDED)
    found = await _known(parts, token)
    if found is None:
        raise AuthenticationError(_NEEDED)
    actor.enter(Actor(found.subject, str(found.role), correlation=request.state.request_id))
    if request.method not in ("GET", "HEAD") and found.role is not Role.OPERATOR:
        raise AuthenticationError(f"An {found.role} may only look", status=403, reason=OpenAICode.NOT_PERMITTED)
    return found


async def _known(parts: Parts, token: str) -> Operator | None:
    if token.startswith(PREFIX):
        async with parts.database.relaxed() as conn:
            return await operator_tokens.authenticate(conn, parts.secret_key, token)
    if not parts.oidc.on or token.count(".") != 2:
        return None
    try:
        person = await parts.oidc.bearer(token)
    except OidcError as error:
        if error.subject:
            actor.enter(replace(actor.current(), who=error.subject))
        raise AuthenticationError(f"Authentication error: {error}") from None
    if person.rule.role.of_account:
        actor.enter(replace(actor.current(), who=person.subject))
        raise AuthenticationError(
            f"An {person.rule.role} of an account is no operator", status=403, reason=OpenAICode.NOT_PERMITTED
        )
    return Operator(person.subject, person.rule.role)


OperatorDep = Annotated[Operator, Depends(operator)]


class Change:
    """One change of an operator. What is called in its transaction records itself as done by them."""

    def __init__(self, parts: Parts, by: Operator) -> None:
        self._parts, self._by = parts, by

    @property
    def subject(self) -> str:
        """Who makes it."""
        return self._by.subject

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A durable transaction."""
        async with self._parts.database.transaction() as conn:
            yield conn


async def change(request: Request, parts: PartsDep, by: OperatorDep) -> Change:
    """The change that this request makes. Raises BadInput for a reason that is too long."""
    reason = HeaderTexts(request.headers).get(REASON)
    if reason and len(reason) > _LONGEST_REASON:
        raise BadInput(f"{REASON}: at most {_LONGEST_REASON} characters are kept", param=REASON)
    actor.enter(Actor(by.subject, str(by.role), correlation=request.state.request_id, reason=reason))
    return Change(parts, by)


ChangeDep = Annotated[Change, Depends(change)]
