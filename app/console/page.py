"""What a page is: how it looks at the database, what it makes of that, and which of its parts are renewed while it is open.

The address of a page is its whole state. `look` reads rows, and is shared by everybody who sees the same thing. `view` is pure.
Each region is a template `NAME/REGION.html` whose outermost element has the id `NAME-REGION`; the stream renders regions alone,
so they may use nothing but the names that `context` gives them.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app import clock
from app.access.roles import Viewer
from app.console import compression, nav
from app.console.parts import Parts, parts_of, viewer_of

Params = Mapping[str, str]
Look = Callable[[Parts, Viewer, Params], Awaitable[Any]]
Own = Callable[[Request, Mapping[str, Any]], dict[str, Any]]
View = Callable[[Any, Viewer, Params, datetime], dict[str, Any]]
_LONGEST = 400  # characters of a parameter
THEMES = ("auto", "light", "dark")
THEME_COOKIE = "sw-theme"


@dataclass(frozen=True)
class Page:
    """`params`: the names in its path and its query that it knows; others are ignored. `regions`: see above.

    `active`: the entry of the rail that it belongs to, by its path. `own`: what only this reader sees, outside the live regions.
    """

    name: str
    path: str
    look: Look
    view: View
    regions: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    active: str = ""
    own: Own = lambda request, context: {}

    def key(self, viewer: Viewer, params: Params) -> Hashable:
        """Viewers with this key see the same."""
        return self.name, viewer.tenant_id, str(viewer.role), tuple(sorted(params.items()))

    def given(self, request: Request) -> dict[str, str]:
        """The parameters of a request for it, from path and query."""
        given = {name: " ".join(filter(None, request.query_params.getlist(name))) for name in self.params}
        given |= {name: str(value) for name, value in request.path_params.items()}
        return {name: given[name][:_LONGEST] for name in self.params if given.get(name)}

    async def context(
        self, parts: Parts, viewer: Viewer, params: Params, fresh_seconds: float | None = None
    ) -> dict[str, Any]:
        """What its templates are rendered with, as old as `Looks.at` allows. Raises NotFound, BadInput, and the errors of the
        database.
        """
        seen = await parts.looks.at(self.key(viewer, params), lambda: self.look(parts, viewer, params), fresh_seconds)
        now = clock.now()
        shown = self.view(seen, viewer, params, now)
        return {
            "now": now,
            "acts": viewer.role.acts,
            "reveals": viewer.role.reveals,
            "scope": viewer.scope,
            "scope_account": viewer.account,
            **shown,
        }


async def show(request: Request, page: Page, *, status: int = 200, **more: Any) -> Response:
    """The page as a whole."""
    parts, viewer, params = parts_of(request), viewer_of(request), page.given(request)
    context = await page.context(parts, viewer, params)
    context |= page.own(request, context) | more
    return await whole(request, page.name, context, active=page.active or page.path, page=page, status=status)


async def whole(
    request: Request,
    template: str,
    context: dict[str, Any],
    *,
    active: str = "",
    page: Page | None = None,
    status: int = 200,
) -> Response:
    """A template within the layout."""
    parts, viewer = parts_of(request), viewer_of(request)
    frame = {
        "viewer": viewer,
        "nonce": request.scope["nonce"],
        "theme": theme(request),
        "rail": await rail(parts, viewer, active, context),
        "shortcuts": nav.SHORTCUTS,
        "stream": _stream(request, page) if page and page.regions else "",
        "note": note(request),
        "banner": "",
    }
    now = context.get("now", clock.now())
    defaults = {"now": now, "acts": viewer.role.acts, "reveals": viewer.role.reveals}
    return compression.html(request, parts.templates.render(template, defaults | context | frame), status)


async def rail(
    parts: Parts, viewer: Viewer, active: str, context: Mapping[str, Any], fresh_seconds: float | None = None
) -> list[list[nav.Entry]]:
    """The entries of the rail. Where the page has counted the engines itself, they count the same."""
    of = viewer.tenant_id
    badges = await parts.looks.at(("badges", of), lambda: nav.badges(parts.reader, of), fresh_seconds)
    return nav.rail(viewer, active, badges | nav.engines(*context["counted"]) if "counted" in context else badges)


def theme(request: Request) -> str:
    """What the reader has chosen: light, dark, or as the system has it."""
    chosen = request.cookies.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else THEMES[0]


# What the address may say about the action before; a page shows no other text of its address.
NOTES = {
    "paused": "Paused: no further item starts.",
    "resumed": "Resumed: its items run again as there is room.",
    "cancelled": "Cancelled: what was not done will not run; what was done stays.",
    "retried": "A new run begins with the items that have no answer.",
    "paused-all": "Paused: no further item of them starts.",
    "resumed-all": "Resumed: their items run again as there is room.",
    "cancelled-all": "Cancelled: what was not done will not run; what was done stays.",
    "retried-all": "A new run of each begins with the items that have no answer.",
    "pipeline-paused": "Paused: no further item of any stage starts.",
    "pipeline-resumed": "Resumed: its stages go on as there is room.",
    "pipeline-cancelled": "Cancelled: what was not done will not run; all results stay.",
    "pipeline-retried": "A new run begins with the items that have no answer.",
    "view-saved": "The view is saved in this browser.",
    "view-removed": "The view is removed.",
    "queued": "Queued.",
    "revealed": "Shown; this was written to the audit log.",
    "applied": "The policy is in force; every process follows it within a second.",
    "revoked": "The session has ended.",
    "drained": "Drained: it gets no new request. What is in it finishes.",
    "undrained": "It gets requests again.",
    "redelivered": "It is sent again now.",
    "replayed": "What the receiver did not accept in this time is sent again, the oldest first.",
    "hook-paused": "Paused: its events wait.",
    "hook-disabled": "Disabled: it gets no events. A replay can send them later.",
    "hook-enabled": "A test event is sent; when it is accepted, waiting events follow.",
    "hook-deleted": "Deleted: it gets no events any more. What waited for it is gone.",
    "tested": "A test event is sent now.",
    "budget-made": "The budget is made; queued work follows it within seconds.",
    "budget-changed": "The budget is changed; queued work follows it within seconds.",
    "budget-deleted": "The budget is deleted; what waited for its money goes on.",
    "key-revoked": "The key is revoked. It stops working everywhere within seconds.",
}


def note(request: Request) -> str:
    """The sentence about what was just done."""
    return NOTES.get(request.query_params.get("did", ""), "")


def _stream(request: Request, page: Page) -> str:
    """The address of the page's live parts."""
    query = {"page": page.name, **page.given(request)}
    return str(request.url_for("stream").replace_query_params(**query).replace(scheme="", netloc=""))
