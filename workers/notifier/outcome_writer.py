"""Writes outcomes in groups: while one transaction commits, the next outcomes are collected."""

from datetime import timedelta

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_random

from app.coalescing import Coalescer
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.webhooks import delivery_outcomes
from app.webhooks.claims import Claim
from app.webhooks.delivery_outcomes import DeliveryOutcome
from app.webhooks.response_policy import Answer, DeliveryVerdict

PATIENCE_SECONDS = 20.0
MOST = 200


class OutcomeWriter:
    """Writes the outcomes of one process."""

    def __init__(self, database: Database, disable_days: float) -> None:
        self._database = database
        self._patience = timedelta(days=disable_days)
        self._together: Coalescer[DeliveryOutcome, DeliveryVerdict | None] = Coalescer(self._write, most=MOST)

    async def record(self, claim: Claim, answer: Answer) -> DeliveryVerdict | None:
        """Write one outcome. Returns None if its claim was lost. Raises a database error that lasts over `PATIENCE_SECONDS`."""
        return await self._together.ask((claim, answer))

    @retry(
        retry=retry_if_exception_type(TRANSIENT),
        stop=stop_after_delay(PATIENCE_SECONDS),
        wait=wait_random(0.1, 0.5),
        reraise=True,
    )
    async def _write(self, outcomes: list[DeliveryOutcome]) -> list[DeliveryVerdict | None]:
        """Write the outcomes, and try again while the database restarts. A delivery whose outcome is lost is sent twice."""
        async with self._database.transaction() as conn:
            return await delivery_outcomes.record(conn, outcomes, patience=self._patience)
