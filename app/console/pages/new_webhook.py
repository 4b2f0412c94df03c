"""New webhook: an admin of the account makes one, and sees its secret once. The rules are those of the API."""

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.audit.acts import Act
from app.console import forms
from app.console.page import whole
from app.console.pages.acting import attempted
from app.console.pages.actions import account_of
from app.console.parts import Parts, parts_of, viewer_of
from app.console.views import new_webhook, webhooks
from app.console.views.new_webhook import Wanted
from app.crypto import secret_key
from app.errors import SlackwaterError
from app.sentences import ended
from app.tenants.service import Tenant
from app.webhooks import registration, url_check
from app.webhooks.egress_rules import rule
from app.webhooks.endpoints import Endpoint, Keys
from app.webhooks.url_check import CheckedUrl

_MAKE = "make a webhook"
_KEPT = 4096  # characters of a field that are shown again


async def ask(request: Request) -> Response:
    """The form for a new webhook."""
    return await _form(request, account_of(viewer_of(request), _MAKE), {}, ())


async def _form(
    request: Request,
    tenant: Tenant,
    given: Mapping[str, str],
    kinds: Sequence[str],
    error: SlackwaterError | None = None,
) -> Response:
    problem = ended(error.message) if error else ""
    allowed = rule(parts_of(request).settings.webhook_allow_private)
    context = new_webhook.view(given, kinds, problem, tenant.account_id, allowed)
    return await whole(request, "webhook_new", context, active=webhooks.PATH, status=error.status if error else 200)


async def create(request: Request) -> Response:
    """Make a webhook, and show its secret once. What is refused is told beside the form, with what was filled in."""
    parts, viewer = parts_of(request), viewer_of(request)
    tenant = account_of(viewer, _MAKE)
    form = await forms.read(request)
    given = {name: str(value).strip()[:_KEPT] for name, value in form.items() if name != "event"}
    kinds = [str(kind) for kind in form.getlist("event")]
    unresolved: list[str] = []

    async def verb() -> tuple[Endpoint, Keys]:
        wanted = new_webhook.wanted(given, kinds, parts.catalogue)
        url = await url_check.checked_for_tenant(
            parts.database,
            parts.egress,
            parts.admission.audit,
            tenant,
            wanted.url,
            where="url",
            unresolved=unresolved.append,
        )
        parts.admission.check_webhook(tenant, wanted.url)
        return await _register(parts, tenant, wanted, url)

    try:
        made, keys = await attempted(parts, viewer, Act.WEBHOOK_CREATE, "new webhook", tenant.account_id, verb)
    except SlackwaterError as error:
        return await _form(request, tenant, given, kinds, error)
    return await _shown(request, made, keys, unresolved)


async def _register(parts: Parts, tenant: Tenant, wanted: Wanted, url: CheckedUrl) -> tuple[Endpoint, Keys]:
    async with parts.database.transaction() as conn:
        await registration.check_room(conn, tenant.tenant_id, parts.settings.webhook_endpoints)
        return await registration.create(
            conn,
            key=secret_key(parts.settings),
            tenant_id=tenant.tenant_id,
            account_id=tenant.account_id,
            name=wanted.name,
            url=url,
            kinds=wanted.kinds,
            of=wanted.of,
            limits=wanted.limits,
            shape=wanted.shape,
        )


async def _shown(request: Request, made: Endpoint, keys: Keys, unresolved: Sequence[str]) -> Response:
    warning = f" {ended(url_check.warning(unresolved[0]))}" if unresolved else ""
    context = {
        "title": f"The secret of {made.name}",
        "words": "The receiver checks signatures with it. A test event is sent now; once the receiver accepts one, the webhook "
        f"gets its events.{warning}",
        "secrets": [("secret", keys.secret)],
        "back": f"{webhooks.PATH}/{made.endpoint_id.hex}",
    }
    return await whole(request, "secret", context, active=webhooks.PATH)


ROUTES = (Route(new_webhook.PATH, ask), Route(new_webhook.PATH, create, methods=["POST"]))
