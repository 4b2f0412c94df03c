"""Sends the due deliveries of endpoints: claim, sign, POST with no transaction open, record the outcome under the fence."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from uuid import UUID

import structlog

from app import clock, crypto, trace_context
from app.causes import cause
from app.coalescing import Coalescer
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.errors import PolicyUnknown
from app.settings import Settings
from app.webhooks import claims, due_sweep, formats, signing
from app.webhooks.claims import Claim
from app.webhooks.egress import EgressClient
from app.webhooks.response_policy import Answer
from workers.notifier.attempt_span import AttemptSpan
from workers.notifier.concurrency_limiter import ConcurrencyLimiter
from workers.notifier.metrics import LATE, Metrics
from workers.notifier.outcome_writer import OutcomeWriter
from workers.notifier.receiver_rules import ReceiverRules

log = structlog.get_logger(__name__)

_MOST = 100  # endpoints in one claim
_UNHINT_SECONDS = 2.0
LEASE_TIMEOUTS = 2  # a delivery is its notifier's for as many time limits of an attempt
_USER_AGENT = "Slackwater-Webhooks/1"


class Sender:
    """Runs one task for each endpoint, up to the limits of the endpoint, so that a slow endpoint delays no other."""

    def __init__(self, database: Database, egress: EgressClient, key: bytes, settings: Settings) -> None:
        self._database = database
        self._egress = egress
        self._key = key
        self.rules = ReceiverRules(database)
        self._item_share = settings.trace_item_share
        self._lease = LEASE_TIMEOUTS * settings.webhook_timeout_seconds
        self.metrics = Metrics()
        self._places = ConcurrencyLimiter(settings.webhook_concurrency)  # over all endpoints
        self._claims: Coalescer[UUID, list[Claim]] = Coalescer(self._claim_together, most=_MOST)
        self._recorder = OutcomeWriter(database, settings.webhook_disable_days)
        self._working: dict[UUID, asyncio.Task[None]] = {}
        self._again: set[UUID] = set()
        self._stopping = False

    def kick(self, endpoint_id: UUID) -> None:
        """Start to send the due deliveries of this endpoint, or look again if its task is running."""
        if self._stopping:
            return
        if endpoint_id in self._working:
            self._again.add(endpoint_id)
            return
        self._working[endpoint_id] = asyncio.create_task(self._work(endpoint_id))

    async def idle(self) -> None:
        """Wait until no task is running."""
        await asyncio.gather(*self._working.values(), return_exceptions=True)

    async def drain(self) -> None:
        """Stop claiming, and wait until the attempts in flight have ended."""
        self._stopping = True
        known = list(self._working)
        await self.idle()
        if known:
            with suppress(TimeoutError, *TRANSIENT):  # without the database the hints expire later
                async with asyncio.timeout(_UNHINT_SECONDS), self._database.relaxed() as conn:
                    await due_sweep.unhint(conn, known)

    async def _work(self, endpoint_id: UUID) -> None:
        """Send until nothing is due at this endpoint and none of its deliveries is in flight."""
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
            await self.rules.know()
            return await self._claims.ask(endpoint_id)
        except PolicyUnknown as error:
            log.warning("policy.unknown", verb="claim", endpoint=str(endpoint_id), error=str(error))
        except TRANSIENT as error:
            log.warning("database.unavailable", verb="claim", endpoint=str(endpoint_id), error=cause(error))
        return []  # the sweep will hint at this endpoint again

    async def _claim_together(self, endpoint_ids: list[UUID]) -> list[list[Claim]]:
        """Claim the due deliveries of the endpoints, as many as there are free places. Returns one list for each endpoint."""
        most = max(1, await self._places.free() // len(endpoint_ids))
        if self._stopping:
            return [[] for _ in endpoint_ids]
        # Durable: if a crash lost the claim, the fence would reject the outcome of its POST.
        async with self._database.transaction() as conn:
            taken = await claims.claim(conn, endpoint_ids, most=most, lease_seconds=self._lease)
        self._places.take(len(taken))
        by_endpoint: dict[UUID, list[Claim]] = {endpoint_id: [] for endpoint_id in endpoint_ids}
        for claim in taken:
            by_endpoint[claim.endpoint_id].append(claim)
        return [by_endpoint[endpoint_id] for endpoint_id in endpoint_ids]

    async def _attempt(self, claim: Claim) -> None:
        self.metrics.begun(claim)
        span = AttemptSpan(claim, self._item_share)
        trace_context.enter(claim.event.data.traceparent)
        try:
            with self._places.taken(), self.metrics.in_flight.track_inprogress():
                answer = self.rules.refusal(claim) or await self._post(claim, span.headers)
            self.rules.note(claim, answer.refusal)
            verdict = await self._recorder.record(claim, answer)
            self.metrics.attempts.labels(verdict.verb if verdict else LATE).inc()
            self.metrics.seconds.observe(answer.duration_ms / 1000)
            span.end(answer, verdict.verb if verdict else LATE)
        except TRANSIENT as error:
            log.warning("outcome.not_recorded", delivery=claim.delivery_id, error=cause(error))
            return
        log.info(
            "delivery.attempted",
            delivery=claim.delivery_id,
            webhook_id=claim.event.webhook_id,
            attempt=claim.attempt,
            status=answer.status,
            error=answer.error,
            ms=answer.duration_ms,
            verdict=verdict.verb if verdict else "late: another attempt has taken over",
        )

    async def _post(self, claim: Claim, trace: Mapping[str, str]) -> Answer:
        now, context = clock.now(), claim.endpoint_id.bytes
        try:
            secrets = [crypto.unseal(self._key, sealed, context).decode() for sealed in claim.secrets]
            private = [crypto.unseal(self._key, sealed, context) for sealed in claim.signing_keys]
        except crypto.Unreadable:
            return Answer(0, error="secret_unreadable")
        content_type, body = formats.render(claim.format, claim.event, claim.endpoint_id)
        headers = {"content-type": content_type, "user-agent": _USER_AGENT}
        headers |= trace
        headers |= signing.headers(secrets, claim.event.webhook_id, body, now, private)
        return await self._egress.post(claim.url, headers, body, claim.hosts, owner=claim.tenant_id)
