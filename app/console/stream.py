"""The live parts of a page and the rail, as server-sent events: at once all of them, then every second those that changed.

All streams of what is the same to see wake at the same moment of a second, so one look serves all of them and none shows what was
read for another one before. Other pages have other moments, which spreads the work over the second.

A message holds no attributes of htmx but those of its envelope, so that a text within can never act. A browser pauses the stream
while its page is hidden; then nothing is read for it here.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from psycopg import Error as DatabaseError
from psycopg_pool import PoolTimeout
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from app import clock
from app.access.roles import Viewer
from app.console import compression, guard
from app.console.page import Page, Params, rail
from app.console.parts import Parts, parts_of, viewer_of
from app.console.views import times
from app.errors import NotFound, SlackwaterError

EVERY_SECONDS = 1.0
PING_SECONDS = 5.0
RAIL_SECONDS = 5.0  # so old its numbers may be
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


async def serve(request: Request) -> Response:
    """The stream of the page that the query names."""
    parts, page = parts_of(request), _page(request)
    params = page.given(request)
    await fragments(parts, page, viewer_of(request), params)  # an unknown id is refused before the stream begins
    return StreamingResponse(_frames(request, page, params), media_type="text/event-stream", headers=_HEADERS)


async def poll(request: Request) -> Response:
    """All live parts once, for a browser that no event reaches."""
    page = _page(request)
    found = await fragments(parts_of(request), page, viewer_of(request), page.given(request))
    shown = "\n".join(envelope(target, html) for target, html in found.items()) + banner("")
    return compression.html(request, shown)


def _page(request: Request) -> Page:
    pages: dict[str, Page] = request.app.state.pages
    page = pages.get(request.query_params.get("page", ""))
    if page is None or not page.regions:
        raise NotFound("There is no such page")
    return page


async def fragments(parts: Parts, page: Page, viewer: Viewer, params: Params) -> dict[str, str]:
    """The HTML of each live part, by its id. It is rendered once for everybody who sees the same."""

    shared = EVERY_SECONDS / 2  # streams that wake together share a look, however long its rendering takes

    async def render() -> dict[str, str]:
        context: dict[str, Any] = await page.context(parts, viewer, params, shared)
        found = {f"{page.name}-{each}": parts.templates.render(f"{page.name}/{each}", context) for each in page.regions}
        entries = await rail(parts, viewer, page.active or page.path, context, RAIL_SECONDS)
        return found | {"rail-entries": parts.templates.render("rail", {"rail": entries})}

    return await parts.looks.at(("html", page.key(viewer, params)), render, shared)


async def _frames(request: Request, page: Page, params: Params) -> AsyncIterator[str]:
    parts, viewer = parts_of(request), viewer_of(request)
    sent: dict[str, str] = {}
    pinged, away = clock.monotonic(), False
    moment = hash(page.key(viewer, params)) % 1000 / 1000 * EVERY_SECONDS
    while True:
        try:
            await parts.freshen()
            found = await fragments(parts, page, viewer, params)
            changed = {target: html for target, html in found.items() if sent.get(target) != html}
            if away:
                yield message(banner(""))
            away = False
            if changed:
                yield message("\n".join(envelope(target, html) for target, html in changed.items()))
            sent |= changed
        except SlackwaterError:
            return  # what it showed is gone
        except (DatabaseError, PoolTimeout, TimeoutError):
            if not away:
                yield message(banner(f"The database does not answer. What you see is of {times.iso(clock.now())}."))
            away = True
        if clock.monotonic() - pinged >= PING_SECONDS:
            pinged = clock.monotonic()
            if not away and await guard.signed_in(parts, request) is None:
                yield "event: signed-out\ndata: -\n\n"
                return
            yield f"event: ping\ndata: {clock.iso(clock.now())}\n\n"
        await asyncio.sleep(EVERY_SECONDS - (clock.monotonic() - moment) % EVERY_SECONDS)


def envelope(target: str, html: str) -> str:
    """A part with the place that it replaces, by its id."""
    return f'<hx-partial hx-target="#{target}" hx-swap="outerMorph">{html}</hx-partial>'


def banner(words: str) -> str:
    """The line above a page; empty: none. The words are ours."""
    return f'<hx-partial hx-target="#banner" hx-swap="innerHTML">{words}</hx-partial>'


def message(html: str) -> str:
    """One event. Each line of the HTML is a line of its data."""
    return "".join(f"data: {line}\n" for line in html.splitlines() if line.strip()) + "\n"
