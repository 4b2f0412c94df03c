"""One delivery attempt: claim the row, sign, POST with no transaction open, record the outcome under the fence."""

from dataclasses import dataclass

import psycopg
import structlog
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_random

from app import clock, crypto
from app.db.pool import Database
from app.settings import Settings
from app.webhooks import formats, service, signing
from app.webhooks.egress import EgressClient
from app.webhooks.schedule import Answer, Verdict
from app.webhooks.service import Claim

log = structlog.get_logger(__name__)

_RECORD_SECONDS = 20.0
_USER_AGENT = "Slackwater-Webhooks/1"


@dataclass(frozen=True)
class Sender:
    """Everything an attempt needs."""

    database: Database
    egress: EgressClient
    key: bytes
    settings: Settings

    async def attempt(self, delivery_id: int) -> None:
        """Attempt the delivery once if it is due; a hint that comes twice or too late does nothing."""
        async with self.database.durable() as conn:  # a claim lost in a crash would fence off the outcome of its POST
            claim = await service.claim(conn, delivery_id, lease_seconds=2 * self.settings.webhook_timeout_seconds)
        if claim is None:
            return
        answer = await self._post(claim)
        verdict = await self._record(claim, answer)
        log.info(
            "delivery attempt",
            delivery=delivery_id,
            webhook_id=claim.event.webhook_id,
            attempt=claim.attempt,
            status=answer.status,
            error=answer.error,
            ms=answer.duration_ms,
            verdict=verdict.verb if verdict else "late: another attempt has taken over",
        )

    @retry(
        retry=retry_if_exception_type(psycopg.OperationalError),
        stop=stop_after_delay(_RECORD_SECONDS),
        wait=wait_random(0.1, 0.5),
        reraise=True,
    )
    async def _record(self, claim: Claim, answer: Answer) -> Verdict | None:
        """Insist while the database restarts: an outcome that is not written is a delivery made twice."""
        async with self.database.transaction() as conn:
            return await service.record_attempt(conn, claim, answer, disable_days=self.settings.webhook_disable_days)

    async def _post(self, claim: Claim) -> Answer:
        now = clock.now()
        try:
            secret = crypto.unseal(self.key, claim.secret, claim.endpoint_id.bytes).decode()
        except crypto.Unreadable:
            return Answer(now, 0, error="secret_unreadable")
        body = formats.FORMATS[claim.format](claim.event, claim.endpoint_id)
        headers = {"content-type": "application/json", "user-agent": _USER_AGENT}
        headers |= signing.headers(secret, claim.event.webhook_id, body, now)
        return await self.egress.post(claim.url, headers, body)
