"""The application of the console: its routes and its parts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache

import structlog
from psycopg import Error as DatabaseError
from psycopg_pool import PoolTimeout
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from app.admission.control import AdmissionControl
from app.admission.spent_shares import ReadShares
from app.console import error_pages, stream
from app.console.guard import Guard
from app.console.looks import Looks
from app.console.page import Page, show
from app.console.pages import PAGES, ROUTES
from app.console.parts import Parts
from app.console.render import Templates
from app.console.static_files import PATH, StaticFiles
from app.crypto import secret_key
from app.db import session_settings
from app.db.pool import Database
from app.engines import catalogue
from app.engines.model_registry import ModelRegistry
from app.errors import SlackwaterError
from app.serving.request_limits import RequestLimits
from app.settings import Settings
from app.webhooks.egress import Egress

_PATIENCE_SECONDS = 2.0
_READERS = 3
_ACTORS = 2
log = structlog.get_logger("console")


@asynccontextmanager
async def running(app: Starlette, settings: Settings) -> AsyncIterator[None]:
    """The life of the application: its pools are open, and what it needs is in its state."""
    entries = catalogue.load(settings.models_file)
    smaller = settings.model_copy(update={"database_pool_size": _ACTORS})
    async with (
        Database.of(smaller, "console", patience_seconds=_PATIENCE_SECONDS) as database,
        Database.reading(settings, "console reads", size=_READERS, patience_seconds=_PATIENCE_SECONDS) as reader,
        Egress.of(settings) as egress,
    ):
        await session_settings.require_at_start(database)
        models = ModelRegistry(reader, entries, offers=True)
        await models.renew()
        admission = AdmissionControl(database, models, secret_key(settings), ReadShares(reader))
        await admission.renew()
        app.state.parts = Parts(settings, database, reader, models, admission, app.state.templates, Looks(), egress)
        keeping = asyncio.create_task(admission.keep())
        log.info("console.serving", url=app.state.parts.origin)
        try:
            yield
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping


def create_app(settings: Settings) -> Starlette:
    """An application that opens its pools when it starts, and closes them when it stops."""
    app = Starlette(
        routes=_routes(_static()),
        middleware=[Middleware(RequestLimits, answer=_too_much), Middleware(Guard)],
        lifespan=lambda app: running(app, settings),
        exception_handlers={
            SlackwaterError: error_pages.refused,
            HTTPException: error_pages.refused,
            DatabaseError: error_pages.away,
            PoolTimeout: error_pages.away,
        },
    )
    app.state.templates = _templates()
    app.state.pages = {page.name: page for page in PAGES}
    return app


@cache
def _static() -> StaticFiles:
    return StaticFiles()


@cache
def _templates() -> Templates:
    return Templates(_static())


def _routes(files: StaticFiles) -> list[BaseRoute]:
    return [
        Route("/", lambda request: RedirectResponse("/console/now", 303)),
        Route("/console", lambda request: RedirectResponse("/console/now", 303)),
        Route("/console/health", lambda request: PlainTextResponse("ok\n")),
        Route("/console/stream", stream.serve, name="stream"),
        Route("/console/look", stream.poll),
        *ROUTES,
        *(Route(page.path, _shower(page), name=page.name) for page in PAGES),
        Route(PATH + "/{path:path}", files.serve),
    ]


def _shower(page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def shown(request: Request) -> Response:
        return await show(request, page)

    return shown


def _too_much(request: Request, error: SlackwaterError, headers: dict[str, str]) -> Response:
    return PlainTextResponse(f"{error.message}\n", error.status, headers)
