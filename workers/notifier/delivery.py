"""Works off endpoints: claims what is due, signs, POSTs with no transaction open, has the outcome recorded under the fence."""

import asyncio
from contextlib import suppress
from uuid import UUID

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from app import clock, crypto, trace_context
from app.coalescing import Coalescer
from app.db.pool import Database
from app.settings import Settings
from app.webhooks import formats, service, signing
from app.webhooks.egress import EgressClient
from app.webhooks.retry_policy import Answer
from app.webhooks.service import Claim
from workers.notifier.concurrency_limiter import ConcurrencyLimiter
from workers.notifier.metrics import LATE, Metrics
from workers.notifier.outcome_writer import OutcomeWriter

log = structlog.get_logger(__name__)

_AWAY = (psycopg.OperationalError, PoolTimeout)
_MOST = 100  # endpoints in one claim
_UNHINT_SECONDS = 2.0
_USER_AGENT = "Slackwater-Webhooks/1"


class Sender:
    """Each endpoint is worked off by a task of its own, up to what it takes at once: one that hangs holds up nobody."""

    def __init__(self, database: Database, egress: EgressClient, key: bytes, settings: Settings) -> None:
        self._database = database
        self._egress = egress
        self._key = key
        self._lease = 2 * settings.webhook_timeout_seconds
        self.metrics = Metrics()
        self._places = ConcurrencyLimiter(settings.webhook_concurrency)  # over all endpoints
        self._claims: Coalescer[UUID, list[Claim]] = Coalescer(self._claim_together, most=_MOST)
        self._recorder = OutcomeWriter(database, settings.webhook_disable_days)
        self._working: dict[UUID, asyncio.Task[None]] = {}
        self._again: set[UUID] = set()
        self._stopping = False

    def kick(self, endpoint_id: UUID) -> None:
        """Something is due at this endpoint."""
        if self._stopping:
            return
        if endpoint_id in self._working:
            self._again.add(endpoint_id)
            return
        self._working[endpoint_id] = asyncio.create_task(self._work(endpoint_id))

    async def idle(self) -> None:
        """Return when there is nothing left to do."""
        await asyncio.gather(*self._working.values(), return_exceptions=True)

    async def drain(self) -> None:
        """Claim no more; return when what is on its way has come to its end."""
        self._stopping = True
        known = list(self._working)
        await self.idle()
        if known:
            with suppress(TimeoutError, *_AWAY):  # without the database their hints count as lost after a while
                async with asyncio.timeout(_UNHINT_SECONDS), self._database.relaxed() as conn:
                    await service.unhint(conn, known)

    async def _work(self, endpoint_id: UUID) -> None:
        """Until nothing is due there any more, and nothing of it is on its way."""
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                self._again.discard(endpoint_id)
                claims = await self._claim(endpoint_id)
                running |= {asyncio.create_task(self._attempt(claim)) for claim in claims}
                if running:
                    _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                elif endpoint_id not in self._again:
                    return
        finally:
            del self._working[endpoint_id]

    async def _claim(self, endpoint_id: UUID) -> list[Claim]:
        if self._stopping:
            return []
        try:
            return await self._claims.ask(endpoint_id)
        except _AWAY as error:
            log.warning("no database; the sweep will repeat this", endpoint=str(endpoint_id), error=str(error).strip())
            return []

    async def _claim_together(self, endpoint_ids: list[UUID]) -> list[list[Claim]]:
        """What is due at each of the endpoints, as much as there is room for."""
        most = max(1, await self._places.free() // len(endpoint_ids))
        if self._stopping:
            return [[] for _ in endpoint_ids]
        # Durable: a claim lost in a crash would fence off the outcome of its POST.
        async with self._database.transaction() as conn:
            claims = await service.claim(conn, endpoint_ids, most=most, lease_seconds=self._lease)
        self._places.take(len(claims))
        found: dict[UUID, list[Claim]] = {endpoint_id: [] for endpoint_id in endpoint_ids}
        for claim in claims:
            found[claim.endpoint_id].append(claim)
        return [found[endpoint_id] for endpoint_id in endpoint_ids]

    async def _attempt(self, claim: Claim) -> None:
        try:
            with self._places.taken(), self.metrics.in_flight.track_inprogress():
                answer = await self._post(claim)
            verdict = await self._recorder.record(claim, answer)
            self.metrics.attempts.labels(verdict.verb if verdict else LATE).inc()
            self.metrics.seconds.observe(answer.duration_ms / 1000)
        except _AWAY as error:
            log.warning("outcome not recorded", delivery=claim.delivery_id, error=str(error).strip())
            return
        log.info(
            "delivery attempt",
            delivery=claim.delivery_id,
            webhook_id=claim.event.webhook_id,
            attempt=claim.attempt,
            status=answer.status,
            error=answer.error,
            ms=answer.duration_ms,
            verdict=verdict.verb if verdict else "late: another attempt has taken over",
        )

    async def _post(self, claim: Claim) -> Answer:
        now, context = clock.now(), claim.endpoint_id.bytes
        try:
            secrets = [crypto.unseal(self._key, sealed, context).decode() for sealed in claim.secrets]
            private = crypto.unseal(self._key, claim.signing_key, context) if claim.signing_key else None
        except crypto.Unreadable:
            return Answer(0, error="secret_unreadable")
        content_type, body = formats.render(claim.format, claim.event, claim.endpoint_id)
        headers = {"content-type": content_type, "user-agent": _USER_AGENT}
        headers |= trace_context.onward(claim.event.data.get("traceparent"))
        headers |= signing.headers(secrets, claim.event.webhook_id, body, now, private)
        return await self._egress.post(claim.url, headers, body, claim.hosts, owner=claim.tenant_id)
