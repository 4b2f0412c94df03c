"""Which model an engine is to serve: the catalogue's, or, for an attached engine that no catalogue describes, its own."""

import asyncio
from contextlib import suppress

import structlog

from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.engines import adoption, catalogue
from app.engines import service as engines
from app.engines.adoption import Contradiction, EngineProblem, Sighting
from app.engines.catalogue import CatalogueError, Model
from app.engines.client import EngineAway, EngineClient
from app.settings import Settings
from app.user_errors import Failure

LOOK_SECONDS = 1.0

log = structlog.get_logger()


async def model_of(settings: Settings, database: Database, stop: asyncio.Event) -> Model | None:
    """The model; None if told to stop while the engine that has to say it was away.

    Raises CatalogueError for a managed engine's unknown model, Failure where an attached engine contradicts.
    """
    models = catalogue.load(settings.models_file)
    if not settings.engine_url:
        entry = models.resolve(settings.engine_model)
        if entry is None:
            where = f"{settings.models_file}: no model {settings.engine_model!r} (SLACKWATER_ENGINE_MODEL)"
            raise CatalogueError(where)
        return entry
    wanted, told = settings.wanted_model, False
    key = settings.engine_api_key.get_secret_value()
    async with EngineClient(settings.engine_url, key, timeout_seconds=settings.request_timeout_seconds) as client:
        while not stop.is_set():
            try:
                seen = await client.look()
                model = adoption.model_for(models, seen, wanted, await client.task())
                return await _held(settings, database, model, seen)
            except EngineAway as away:
                if wanted and (entry := models.resolve(wanted)) is not None:
                    return entry  # the worker waits for its engine, and looks at it when it comes
                if not told:
                    log.warning("engine.not_reachable", url=client.url, error=str(away))
                told = True
                await _note(settings, database, adoption.away())
            except Contradiction as error:
                await _note(settings, database, error.problem)
                raise Failure(error.problem.message, error.problem.remedy) from error
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
    return None


async def _held(settings: Settings, database: Database, model: Model, seen: Sighting) -> Model:
    """The model. Raises Contradiction where an adopted one is promised with a larger window than this engine has.

    Without a database nobody can take a seat; the worker compares again when it takes one.
    """
    if not model.adopted:
        return model
    try:
        async with asyncio.timeout(LOOK_SECONDS), database.relaxed() as conn:
            window = await engines.promised(conn, model.served, settings.engine_name, model.context_window)
    except (TimeoutError, *TRANSIENT) as error:
        log.warning("database.unavailable", verb="promise", error=str(error).strip())
        return model
    if (problem := adoption.fault(model, seen, window)) is not None:
        raise Contradiction(problem)
    return model


async def _note(settings: Settings, database: Database, problem: EngineProblem) -> None:
    """Let everybody know, if the database can be reached."""
    try:
        async with asyncio.timeout(LOOK_SECONDS), database.relaxed() as conn:
            await engines.note_engine(conn, name=settings.engine_name, url=settings.engine_url, problem=problem)
    except (TimeoutError, *TRANSIENT) as error:
        log.warning("database.unavailable", verb="note", error=str(error).strip())
