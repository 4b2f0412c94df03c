"""Inspects the engine to attach to, before anything starts."""

import asyncio
from dataclasses import dataclass

import psycopg

from app.db import embedded
from app.engines import adoption, catalogue
from app.engines import service as engines
from app.engines.adoption import Contradiction, Sighting
from app.engines.catalogue import CatalogueError, Model
from app.engines.client import EngineAway, EngineClient
from app.headroom.engine_metrics import TelemetryError, parse
from app.settings import Settings, masked
from app.user_errors import Failure

DATABASE_SECONDS = 3


@dataclass(frozen=True, slots=True)
class AttachedEngine:
    """An engine and the model that it is to serve. `telemetry_problem`: why its metrics cannot be used, or empty."""

    seen: Sighting
    model: Model
    telemetry_problem: str


def inspect(settings: Settings) -> AttachedEngine:
    """Inspect the engine. Raises EngineAway, Contradiction, CatalogueError."""
    return asyncio.run(_inspect(settings))


def with_served_model(settings: Settings, *, answering: bool = False) -> Settings:
    """The settings with the model that the attached engine serves. Raises Failure if the engine contradicts them.

    An engine that does not answer may start later, unless `answering` is set.
    """
    try:
        found = inspect(settings)
    except EngineAway as error:
        if answering:
            raise _away(settings, error) from error
        return settings
    except Contradiction as error:
        raise Failure(error.problem.message, error.problem.remedy) from error
    return settings.model_copy(update={"engine_model": settings.wanted_model or found.model.name})


def connection_problem(settings: Settings) -> str:
    """Why the engine does not answer, and the remedy; empty if it answers. Names the URL, so it is for operators only."""
    try:
        inspect(settings)
    except EngineAway as error:
        away = _away(settings, error)
        return f"{away.problem}. {away.remedy}"
    except (Contradiction, CatalogueError):  # the engine answers; its worker reports what is wrong
        return ""
    return ""


def _away(settings: Settings, error: EngineAway) -> Failure:
    fix = "Start it, or correct --attach (SLACKWATER_ENGINE_URL) and SLACKWATER_ENGINE_API_KEY."
    return Failure(f"The engine at {masked(settings.engine_url)} does not answer: {error}", fix)


async def _inspect(settings: Settings) -> AttachedEngine:
    models = catalogue.load(settings.models_file)
    key = settings.engine_api_key.get_secret_value()
    async with EngineClient(settings.engine_url, key, timeout_seconds=settings.request_timeout_seconds) as client:
        seen = await client.look()
        if not await client.healthy():
            await client.page("/health")
        model = adoption.model_for(models, seen, settings.wanted_model, await client.task())
        if model.adopted and (problem := adoption.fault(model, seen, await _promised(settings, model))) is not None:
            raise Contradiction(problem)
        return AttachedEngine(seen, model, await _telemetry_problem(client))


async def _promised(settings: Settings, model: Model) -> int:
    """The window in tokens that is promised for an adopted model. Without a database, the model's own window."""
    try:
        url = embedded.database_url(settings)
        async with await psycopg.AsyncConnection.connect(
            url, autocommit=True, connect_timeout=DATABASE_SECONDS
        ) as conn:
            return await engines.promised(conn, model.served, settings.engine_name, model.context_window)
    except psycopg.Error:
        return model.context_window


async def _telemetry_problem(client: EngineClient) -> str:
    """Why `/metrics` cannot be read; empty if it can."""
    try:
        parse(await client.page("/metrics"))
    except (EngineAway, TelemetryError) as error:
        return str(error)
    return ""
