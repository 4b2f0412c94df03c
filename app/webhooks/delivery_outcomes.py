"""Records how attempts at deliveries ended, and what follows for the deliveries and their endpoints."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from app.db.pool import Connection
from app.states import DeliveryState
from app.webhooks import delivery_sql as sql
from app.webhooks import endpoint_state, response_policy
from app.webhooks.claims import Claim
from app.webhooks.response_policy import Answer, DeliveryVerdict
from app.webhooks.retry_policy import ATTEMPTS

_STATES = {"deliver": DeliveryState.DELIVERED, "retry": DeliveryState.PENDING, "give_up": DeliveryState.DEAD}
_SENDER_LOST = f"the notifier that sent it was lost, in the last of {ATTEMPTS} attempts"

DeliveryOutcome = tuple[Claim, Answer]


@dataclass(frozen=True)
class Reaped:
    """Deliveries whose lease had expired: how many are due again, and how many died after their last attempt."""

    revived: int
    dead: int


async def record(
    conn: Connection, outcomes: Sequence[DeliveryOutcome], *, patience: timedelta
) -> list[DeliveryVerdict | None]:
    """Write the outcomes of claimed attempts. Returns the verdict for each, or None where the claim was lost.

    `patience`: an endpoint that has been failing for so long is disabled. Call in a transaction.
    """
    jitter = [random.uniform(-1, 1) for _ in outcomes]  # noqa: S311
    verdicts = [
        response_policy.judge(answer, claim.attempt, part)
        for (claim, answer), part in zip(outcomes, jitter, strict=True)
    ]
    cursor = await conn.execute(sql.RECORD.encode(), _columns(outcomes, verdicts))
    written = {delivery_id for (delivery_id,) in await cursor.fetchall()}
    recorded = [
        (claim, verdict if claim.delivery_id in written else None)
        for (claim, _), verdict in zip(outcomes, verdicts, strict=True)
    ]
    relevant = [
        (claim, verdict)
        for claim, verdict in recorded
        if verdict is not None and verdict.counts and (claim.watched or verdict.verb != "deliver" or verdict.disable)
    ]
    if relevant:
        await endpoint_state.apply_outcomes(conn, relevant, patience)
    return [verdict for _, verdict in recorded]


def _columns(outcomes: Sequence[DeliveryOutcome], verdicts: Sequence[DeliveryVerdict]) -> dict[str, list[Any]]:
    """The parameters of `RECORD`: one array for each column."""
    return {
        "ids": [claim.delivery_id for claim, _ in outcomes],
        "fences": [claim.fence for claim, _ in outcomes],
        "states": [_STATES[verdict.verb] for verdict in verdicts],
        "delays": [verdict.delay for verdict in verdicts],
        "started": [claim.begun for claim, _ in outcomes],
        "durations": [answer.duration_ms for _, answer in outcomes],
        "statuses": [answer.status for _, answer in outcomes],
        "errors": [answer.error for _, answer in outcomes],
        "bodies": [answer.body or None for _, answer in outcomes],
        "addresses": [answer.address for _, answer in outcomes],
        "reasons": [
            response_policy.dead_reason(answer, verdict)
            for (_, answer), verdict in zip(outcomes, verdicts, strict=True)
        ],
    }


async def reap(conn: Connection, *, limit: int = 1000) -> Reaped:
    """End expired leases, whose notifiers died or hang. The attempt counts, so a delivery that kills its notifier ends too."""
    values = {"attempts": ATTEMPTS, "limit": limit, "reason": _SENDER_LOST}
    row = await (await conn.execute(sql.REAP.encode(), values)).fetchone()
    return Reaped(*row) if row else Reaped(0, 0)
