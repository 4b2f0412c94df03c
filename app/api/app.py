"""The FastAPI application: lifespan, error envelope, routers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from fastapi import FastAPI
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from app.api import envelope, metrics, operations
from app.api.deps import Parts
from app.api.workers_ai import batches, run, subscriptions
from app.crypto import secret_key
from app.db.pool import Database
from app.engines import catalogue
from app.settings import Settings
from app.webhooks.egress import Egress

_log = structlog.get_logger("api")
# Well below the 60 seconds after which the TypeScript SDK sends a call again.
_PATIENCE_SECONDS = 5.0
ACCOUNT = "/client/v4/accounts/{account_id}"


def create_app(settings: Settings) -> FastAPI:
    """An application that opens its database when it starts and closes it when it stops."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        models = catalogue.load(settings.models_file)
        async with (
            Database.of(settings, "api", patience_seconds=_PATIENCE_SECONDS) as database,
            Egress.of(settings) as egress,
        ):
            app.state.parts = Parts(settings, database, models, egress, secret_key(settings))
            _log.info("api.serving", url=f"http://{settings.host}:{settings.port}")
            yield

    largest = max(settings.json_body_mb, settings.ndjson_body_mb)
    app = FastAPI(title="Slackwater", lifespan=lifespan, redirect_slashes=False)
    # The outer bound; each route reads within its own, smaller cap.
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=int(largest * 2**20))
    envelope.install(app)
    app.include_router(operations.router)
    app.include_router(metrics.router)
    app.include_router(run.router, prefix=ACCOUNT)
    app.include_router(batches.router, prefix=ACCOUNT)
    app.include_router(subscriptions.router, prefix=ACCOUNT)
    return app
