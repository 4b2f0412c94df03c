"""The FastAPI application: lifespan, error envelope, routers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog
from fastapi import Depends, FastAPI

from app import __version__
from app.admission.control import AdmissionControl
from app.admission.spent_shares import KeptShares
from app.api import door_keys, envelope, health, index_page, metrics, openapi, operator, scale
from app.api.admin import router as admin_router
from app.api.deps import Parts, caller
from app.api.listeners import Listeners
from app.api.openai import (
    background_responses,
    batch_deletion,
    conversations,
    files,
    inference,
    models,
    outside,
    pipelines,
    uploads,
    webhook_endpoints,
)
from app.api.openai import batches as openai_batches
from app.api.queue_gauges import QueueGauges
from app.api.response_headers import ResponseHeaders
from app.api.store_check import StoreCheck
from app.api.workers_ai import (
    accounts,
    batch_history,
    batches,
    budgets,
    deliveries,
    events,
    governance,
    history,
    run,
    standing,
    subscriptions,
    usage,
    why,
)
from app.api.workers_ai import conversations as growing
from app.api.workers_ai import models as catalogue_routes
from app.batches.intake import spool
from app.changes import service as changes
from app.crypto import secret_key
from app.db.pool import Database, watching
from app.engines import catalogue
from app.engines.model_registry import ModelRegistry
from app.gateway.relay import Gateway
from app.memory import collect_seldom, trim_often
from app.serving.request_limits import RequestLimits
from app.sessions.leases import TurnLeases
from app.settings import Settings
from app.webhooks.egress import Egress

_log = structlog.get_logger("api")
# Well below the 60 seconds after which the TypeScript SDK repeats a call.
_PATIENCE_SECONDS = 5.0
_CANCEL_SECONDS = 0.5
ACCOUNT = "/client/v4/accounts/{account_id}"


@asynccontextmanager
async def running(app: FastAPI, settings: Settings, *, store_checked: bool = True) -> AsyncIterator[None]:
    """The life of an application: its database is open, and what it needs is in its state. `store_checked`: see `create_app`."""
    entries = catalogue.load(settings.models_file)
    spool.sweep(settings.data_dir / "spool")
    secret = secret_key(settings)
    async with (
        Database.of(settings, "api", patience_seconds=_PATIENCE_SECONDS) as database,
        Egress.of(settings) as egress,
        Gateway(settings, database, secret) as gateway,
        watching(settings, "api metrics") as watch,
        gateway.usage.keeping(),
        gateway.latencies.keeping(),
        gateway.budgets.keeping(),
    ):
        models = ModelRegistry(database, entries, offers=True)
        await models.renew()
        store = StoreCheck(database, settings, passed=store_checked)
        admission = AdmissionControl(database, models, secret, KeptShares(gateway.budgets.used))
        await admission.policy.renew()
        turns = TurnLeases(database)
        keeping = {asyncio.create_task(each.keep()) for each in (models, store, admission.policy, admission, turns)}
        gauges = QueueGauges(watch)
        app.state.parts = Parts(settings, database, models, egress, gateway, secret, gauges, store, admission, turns)
        collect_seldom()
        trim_often()
        await changes.started(database, "api")
        _log.info("api.serving", url=f"http://{settings.host}:{settings.port}")
        try:
            yield
        finally:
            await _cancel(keeping)


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait for their ends.

    It is repeated: `asyncio.wait_for` in a library can lose one that arrives together with its result (until Python 3.12).
    """
    left = tasks
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_SECONDS)


def create_app(settings: Settings, *, store_checked: bool = True) -> FastAPI:
    """An application that opens its database when it starts and closes it when it stops.

    `store_checked`: whether the object store is known to be shared with the other parts. Otherwise no API key is accepted until
    a check has passed.
    """

    app = FastAPI(
        title="Slackwater",
        version=__version__,
        lifespan=lambda app: running(app, settings, store_checked=store_checked),
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(RequestLimits, answer=envelope.failure)
    app.add_middleware(Listeners, admin_port=settings.admin_port)
    app.add_middleware(ResponseHeaders)
    envelope.install(app)
    _include_routers(app)
    openapi.install(app)
    return app


def _include_routers(app: FastAPI) -> None:
    # Routes are tried in order, so the most frequent ones come first.
    app.include_router(run.router, prefix=ACCOUNT)
    openai = (
        inference,
        files,
        openai_batches,
        batch_deletion,
        background_responses,
        conversations,
        uploads,
        pipelines,
        outside,
        models,
        webhook_endpoints,
    )
    for router in [module.router for module in openai]:
        app.include_router(router, prefix="/v1")
        app.include_router(router, prefix=f"{ACCOUNT}/ai/v1", dependencies=[Depends(caller)])
    app.include_router(health.router)
    app.include_router(index_page.router)
    app.include_router(metrics.router)
    app.include_router(scale.router)
    app.include_router(door_keys.router)
    app.include_router(operator.router)
    app.include_router(admin_router)
    app.include_router(accounts.router)
    app.include_router(catalogue_routes.router, prefix=ACCOUNT)
    app.include_router(batches.router, prefix=ACCOUNT)
    app.include_router(why.router, prefix=ACCOUNT)
    app.include_router(batch_history.router, prefix=ACCOUNT)
    app.include_router(history.router, prefix=ACCOUNT)
    app.include_router(standing.router, prefix=ACCOUNT)
    app.include_router(growing.router, prefix=ACCOUNT)
    app.include_router(usage.router, prefix=ACCOUNT)
    app.include_router(governance.router, prefix=ACCOUNT)
    app.include_router(budgets.router, prefix=ACCOUNT)
    app.include_router(subscriptions.router, prefix=ACCOUNT)
    app.include_router(deliveries.router, prefix=ACCOUNT)
    app.include_router(events.router, prefix=ACCOUNT)
