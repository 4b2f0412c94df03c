"""Inspects the engine to attach to, before anything starts."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import psycopg

from app.crypto import secret_key
from app.db import embedded
from app.engines import adoption, catalogue
from app.engines import service as engines
from app.engines.adoption import Contradiction, EngineProblem, Sighting
from app.engines.catalogue import CatalogueError, Model
from app.engines.client import EngineAway, EngineClient
from app.engines.dialects import Dialect
from app.engines.engine_key import engine_headers
from app.engines.page_problems import problem_of
from app.headroom.engine_metrics import TelemetryError, parse
from app.settings import Settings, masked
from app.user_errors import Failure
from workers.engine.page_folder import UNSUPPORTED, PageFolder

DATABASE_SECONDS = 3


@dataclass(frozen=True, slots=True)
class InspectedEngine:
    """An engine and the model that it is to serve. `telemetry_problem`: why its metrics cannot be used, or empty."""

    seen: Sighting
    model: Model
    telemetry_problem: str


def page_problem(settings: Settings) -> EngineProblem | None:
    """Why the scheduler inside the engine (L2) does not rule, if a folder of control pages is set; None if it can."""
    folder = PageFolder(Path(settings.page_dir))
    folder.look()
    reports = [page.report() for page in folder.pages]
    code = folder.problem
    folder.close()
    if code is None and any(report is None or not report.supported for report in reports):
        code = UNSUPPORTED
    return None if code is None else problem_of(code)


def protection(settings: Settings) -> str:
    """Where synchronous requests are protected, and why not inside the engine."""
    if not settings.harvest:
        return "protection outside the engine (SLACKWATER_HARVEST is off)"
    if not settings.page_dir:
        return "protection outside the engine (without SLACKWATER_PAGE_DIR)"
    problem = page_problem(settings)
    return "protection inside the engine" if problem is None else f"protection outside the engine: {problem.message}"


def inspect(settings: Settings) -> InspectedEngine:
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


def _headers(settings: Settings) -> dict[str, str]:
    """Those of the worker. An inspection creates no secret key, so without one the engine's door is shown no token."""
    if settings.secret_key.get_secret_value() or (settings.data_dir / "secret_key").exists():
        return engine_headers(settings, secret_key(settings), settings.engine_name, "attached")
    key = settings.engine_api_key.get_secret_value()
    return {"authorization": f"Bearer {key}"} if key else {}


async def _inspect(settings: Settings) -> InspectedEngine:
    models = catalogue.load(settings.models_file)
    headers = _headers(settings)
    limit, dialect = settings.request_timeout_seconds, settings.engine_dialect
    async with EngineClient(settings.engine_url, headers, timeout_seconds=limit, dialect=dialect) as client:
        seen = await client.look()
        if not await client.healthy():
            await client.page(seen.terms.dialect.health)
        model = adoption.model_for(models, seen, settings.wanted_model, await client.task())
        if model.adopted and (problem := adoption.fault(model, seen, await _promised(settings, model))) is not None:
            raise Contradiction(problem)
        return InspectedEngine(seen, model, await _telemetry_problem(client, seen.terms.dialect))


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


async def _telemetry_problem(client: EngineClient, dialect: Dialect) -> str:
    """Why the metrics page cannot be read; empty if it can, or if the gate needs none."""
    if dialect.metrics is None:
        return ""
    try:
        parse(await client.page(dialect.metrics.path), dialect.metrics)
    except (EngineAway, TelemetryError) as error:
        needless = isinstance(error, EngineAway) and error.status == 404 and dialect.load != "needed"
        return "" if needless else str(error)
    return ""
