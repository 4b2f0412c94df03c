"""Webhooks and queues: all, one with its deliveries, one delivery with its attempts; and what their owner may do."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app import clock, places
from app.access.roles import Viewer
from app.audit.acts import Act
from app.console import forms
from app.console import queries_webhooks as queries
from app.console.page import Page, Params, whole
from app.console.pages.acting import attempted
from app.console.pages.actions import refuse
from app.console.parts import Parts, parts_of, viewer_of
from app.console.queries_webhooks import HookRow
from app.console.views import webhook, webhooks
from app.console.views.webhook import OVERLAPS, PAGE_DELIVERIES, PERIODS, STATES
from app.console.views.webhooks import PATH
from app.crypto import secret_key
from app.errors import BadInput, NotFound
from app.webhooks import deliveries, endpoints

_SLOW_SECONDS = 5.0
_MOST = 2**63
_SWITCHES: dict[str, tuple[endpoints.Switch, str]] = {
    "pause": ("pause", "hook-paused"),
    "disable": ("disable", "hook-disabled"),
    "enable": ("enable", "hook-enabled"),
}


async def look(parts: Parts, viewer: Viewer, params: Params) -> webhooks.Seen:
    """A page of endpoints. Raises BadInput."""
    view = params.get("view", "all") if params.get("view", "all") in queries.VIEWS else "all"
    after = places.read(params.get("after"), UUID)
    async with parts.reader.relaxed() as conn:
        rows, more = await queries.hooks(conn, viewer.tenant_id, view, params.get("q") or None, after)
        found = await queries.summary(conn, viewer.tenant_id)
    return webhooks.Seen(rows, more, found)


async def find(parts: Parts, viewer: Viewer, given: str) -> HookRow:
    """The endpoint of this id. Raises NotFound: it does not exist, or is another account's."""
    try:
        endpoint_id = UUID(given)
    except ValueError:
        raise NotFound("There is no such webhook") from None
    async with parts.reader.relaxed() as conn:
        row = await queries.hook(conn, viewer.tenant_id, endpoint_id)
    if row is None:
        raise NotFound("There is no such webhook")
    return row


async def look_at_one(parts: Parts, viewer: Viewer, params: Params) -> webhook.Seen:
    """An endpoint and a page of its deliveries. Raises NotFound, BadInput."""
    row = await find(parts, viewer, params["endpoint_id"])
    state = params.get("state", "all") if params.get("state", "all") in STATES else "all"
    before = _number(params.get("before", "")) if params.get("before") else None
    async with parts.reader.relaxed() as conn:
        found = await deliveries.listing(
            conn,
            row.tenant_id,
            row.endpoint_id,
            state=None if state == "all" else state,
            before=before,
            limit=PAGE_DELIVERIES + 1,
        )

    async def accepted() -> datetime | None:
        async with parts.reader.relaxed() as conn:
            return await queries.last_accepted(conn, row.endpoint_id)

    # The newest states are part of the key, so that this is never older than the deliveries beside it.
    last = await parts.looks.at(("accepted", row.endpoint_id, tuple(row.latest)), accepted, _SLOW_SECONDS)
    return webhook.Seen(row, found[:PAGE_DELIVERIES], len(found) > PAGE_DELIVERIES, last)


async def look_at_delivery(parts: Parts, viewer: Viewer, params: Params) -> webhook.SeenDelivery:
    """A delivery and its attempts. Raises NotFound."""
    row = await find(parts, viewer, params["endpoint_id"])
    async with parts.reader.relaxed() as conn:
        found, attempts = await deliveries.show(conn, row.tenant_id, row.endpoint_id, _number(params["delivery_id"]))
    return webhook.SeenDelivery(row, found, attempts)


def _number(given: str) -> int:
    if not given.isdecimal() or not 0 < int(given) < _MOST:
        raise NotFound("There is no such delivery")
    return int(given)


async def _of(request: Request, what: str) -> tuple[Parts, Viewer, HookRow]:
    """Who acts, and on which endpoint. Raises NotFound, AuthenticationError."""
    parts, viewer = parts_of(request), viewer_of(request)
    row = await find(parts, viewer, str(request.path_params["endpoint_id"]))
    if not viewer.role.acts:
        raise refuse(viewer, what)
    return parts, viewer, row


def _back(row: HookRow, did: str, more: str = "") -> Response:
    return RedirectResponse(f"{PATH}/{row.endpoint_id.hex}{more}?did={did}", 303)


async def redeliver(request: Request) -> Response:
    """Send one delivery again."""
    parts, viewer, row = await _of(request, "send deliveries again")
    delivery_id = _number(str(request.path_params["delivery_id"]))

    async def verb() -> None:
        async with parts.database.durable() as conn:
            await deliveries.redeliver(conn, row.tenant_id, row.endpoint_id, delivery_id)

    await attempted(parts, viewer, Act.WEBHOOK_REDELIVER, f"{row.endpoint_id}/{delivery_id}", row.account, verb)
    return _back(row, "redelivered", f"/deliveries/{delivery_id}")


async def replay(request: Request) -> Response:
    """Send the events of a period again that were not accepted, or all of them."""
    parts, viewer, row = await _of(request, "replay events")
    form = await forms.read(request)
    period = str(form.get("since", ""))
    if period not in PERIODS:
        raise BadInput(f"since: must be one of {', '.join(PERIODS)}")
    since = clock.now() - timedelta(seconds=PERIODS[period][1])
    every = form.get("all") == "on"

    async def verb() -> int:
        async with parts.database.durable() as conn:
            return await deliveries.replay(conn, row.tenant_id, row.endpoint_id, since=since, only_failed=not every)

    await attempted(parts, viewer, Act.WEBHOOK_REPLAY, str(row.endpoint_id), row.account, verb)
    return _back(row, "replayed")


async def rotate(request: Request) -> Response:
    """Change the secret, and show the new one once. Only for an admin of its account."""
    parts, viewer, row = await _of(request, "rotate a secret")
    if not viewer.role.reveals:
        raise refuse(viewer, "see the secret of a webhook")
    overlap = str((await forms.read(request)).get("overlap", "24"))
    if overlap not in OVERLAPS:
        raise BadInput(f"overlap: must be one of {', '.join(OVERLAPS)} hours")

    async def verb() -> endpoints.Keys:
        async with parts.database.durable() as conn:
            _, keys = await endpoints.rotate_secret(
                conn,
                key=secret_key(parts.settings),
                tenant_id=row.tenant_id,
                endpoint_id=row.endpoint_id,
                secret=None,
                overlap_seconds=3600.0 * int(overlap),
            )
        return keys

    keys = await attempted(parts, viewer, Act.WEBHOOK_ROTATE, str(row.endpoint_id), row.account, verb)
    overlaps = (
        f"Give it to the receiver within {OVERLAPS[overlap]}; until then deliveries are signed with the old one too."
    )
    context = {
        "title": f"The new secret of {row.name}",
        "words": overlaps if overlap != "0" else "The old one does not sign any more.",
        "secrets": _secrets(keys),
        "back": f"{PATH}/{row.endpoint_id.hex}",
    }
    return await whole(request, "secret", context, active=PATH)


def _secrets(keys: endpoints.Keys) -> list[tuple[str, str]]:
    return [("secret", keys.secret), *([("public key", keys.public)] if keys.public else [])]


async def test(request: Request) -> Response:
    """Send a test event."""
    parts, viewer, row = await _of(request, "send test events")

    async def verb() -> int:
        async with parts.database.durable() as conn:
            return await deliveries.send_test(conn, row.tenant_id, row.account, row.endpoint_id)

    await attempted(parts, viewer, Act.WEBHOOK_TEST, str(row.endpoint_id), row.account, verb)
    return _back(row, "tested")


def _switching(verb: endpoints.Switch, did: str) -> Callable[[Request], Awaitable[Response]]:
    async def switch(request: Request) -> Response:
        parts, viewer, row = await _of(request, f"{verb} a webhook")

        async def change() -> None:
            async with parts.database.transaction() as conn:
                await endpoints.switch(conn, row.tenant_id, row.account, row.endpoint_id, verb)

        await attempted(parts, viewer, Act(f"webhook.{verb}"), str(row.endpoint_id), row.account, change)
        return _back(row, did)

    return switch


async def delete(request: Request) -> Response:
    """Delete an endpoint, with the events that wait for it."""
    parts, viewer, row = await _of(request, "delete a webhook")

    async def verb() -> None:
        async with parts.database.durable() as conn:
            await endpoints.delete(conn, row.tenant_id, row.endpoint_id)

    await attempted(parts, viewer, Act.WEBHOOK_DELETE, str(row.endpoint_id), row.account, verb)
    return RedirectResponse(f"{PATH}?did=hook-deleted", 303)


PAGE = Page("webhooks", PATH, look, webhooks.view, regions=("top", "list"), params=("view", "q", "after"))
ONE = Page(
    "webhook",
    f"{PATH}/{{endpoint_id}}",
    look_at_one,
    webhook.view,
    regions=("top", "figures", "log"),
    params=("endpoint_id", "state", "before"),
    active=PATH,
)
DELIVERY = Page(
    "delivery",
    f"{PATH}/{{endpoint_id}}/deliveries/{{delivery_id}}",
    look_at_delivery,
    webhook.view_delivery,
    regions=("top", "attempts"),
    params=("endpoint_id", "delivery_id"),
    active=PATH,
)
ROUTES = (
    Route(f"{PATH}/{{endpoint_id}}/deliveries/{{delivery_id}}/redeliver", redeliver, methods=["POST"]),
    Route(f"{PATH}/{{endpoint_id}}/replay", replay, methods=["POST"]),
    Route(f"{PATH}/{{endpoint_id}}/rotate", rotate, methods=["POST"]),
    Route(f"{PATH}/{{endpoint_id}}/test", test, methods=["POST"]),
    Route(f"{PATH}/{{endpoint_id}}/delete", delete, methods=["POST"]),
    *(
        Route(f"{PATH}/{{endpoint_id}}/{name}", _switching(verb, did), methods=["POST"])
        for name, (verb, did) in _SWITCHES.items()
    ),
)
