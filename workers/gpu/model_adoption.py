"""The model of an engine: one of the catalogue, or an attached engine's own model that no catalogue describes."""

import asyncio
from contextlib import suppress

import structlog

from app.causes import cause
from app.crypto import secret_key
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.engines import adoption, catalogue
from app.engines import service as engines
from app.engines.adoption import Contradiction, EngineProblem, Sighting
from app.engines.catalogue import CatalogueError, Model
from app.engines.client import EngineAway, EngineClient
from app.engines.engine_key import engine_headers
from app.settings import Settings
from app.user_errors import Failure
from workers.gpu.engine_holder import EngineHolder
from workers.gpu.tuning import TUNING, WorkerTuning

DATABASE_SECONDS = 1.0  # limit of a query; the worker starts without a database too

log = structlog.get_logger()


async def model_of(
    settings: Settings,
    database: Database,
    stop: asyncio.Event,
    tuning: WorkerTuning = TUNING,
    *,
    answering: bool = False,
) -> Model | None:
    """The model; None if `stop` is set before an attached engine that must name it has answered.

    `answering`: an engine whose model is known must answer, too.

    Raises CatalogueError if a managed engine's model is unknown, and Failure if an attached engine contradicts the settings, or
    if it does not answer and a live worker uses its name for another one.
    """
    models = catalogue.load(settings.models_file)
    if not settings.engine_url:
        entry = models.resolve(settings.engine_model)
        if entry is None:
            where = f"{settings.models_file}: no model {settings.engine_model!r} (SLACKWATER_ENGINE_MODEL)"
            raise CatalogueError(where)
        return entry
    wanted, logged = settings.wanted_model, False
    headers = engine_headers(settings, secret_key(settings), settings.engine_name, "attached")
    holder = EngineHolder(settings.engine_name, settings.engine_url, "attached")
    limit, dialect = settings.request_timeout_seconds, settings.engine_dialect
    async with EngineClient(settings.engine_url, headers, timeout_seconds=limit, dialect=dialect) as client:
        while not stop.is_set():
            try:
                seen = await client.look()
                model = adoption.model_for(models, seen, wanted, await client.task())
                return await _checked(settings, database, model, seen)
            except EngineAway as away:
                if wanted and not answering and (entry := models.resolve(wanted)) is not None:
                    return entry  # the worker waits for its engine and checks it then
                if not logged:
                    log.warning("engine.not_reachable", url=client.url, error=str(away))
                logged = True
                await _note(settings, database, adoption.away(), holder)
            except Contradiction as error:
                await _note(settings, database, error.problem)
                raise Failure(error.problem.message, error.problem.remedy) from error
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), tuning.adoption_seconds)
    return None


async def _checked(settings: Settings, database: Database, model: Model, seen: Sighting) -> Model:
    """The model. Raises Contradiction if an adopted model is promised with a larger context window than this engine has.

    Without a database the check is skipped, because the worker repeats it when it takes the engine.
    """
    if not model.adopted:
        return model
    try:
        async with asyncio.timeout(DATABASE_SECONDS), database.relaxed() as conn:
            window = await engines.promised(conn, model.served, settings.engine_name, model.context_window)
    except (TimeoutError, *TRANSIENT) as error:
        log.warning("database.unavailable", verb="promise", error=cause(error))
        return model
    if (problem := adoption.fault(model, seen, window)) is not None:
        raise Contradiction(problem)
    return model


async def _note(
    settings: Settings, database: Database, problem: EngineProblem, holder: EngineHolder | None = None
) -> None:
    """Write the problem to the engine's row, if the database can be reached. Raises Failure if the `holder` has its name."""
    try:
        async with asyncio.timeout(DATABASE_SECONDS):
            if holder is not None:
                await holder.look(database)
            async with database.relaxed() as conn:
                await engines.note_engine(conn, name=settings.engine_name, url=settings.engine_url, problem=problem)
    except (TimeoutError, *TRANSIENT) as error:
        log.warning("database.unavailable", verb="note", error=cause(error))
