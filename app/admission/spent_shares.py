"""The spent share of the budgets that limit work: rules of the policy compare it, wherever work is admitted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app import clock
from app.budgets import rules
from app.budgets import service as budgets
from app.budgets.rules import Budget
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT

FRESH_SECONDS = 1.0
# By account, key, workflow, whether it is queued, and the currency of its price.
Used = Callable[[int, str, str, bool, str | None], float]


class Shares(Protocol):
    """What an admission needs of budgets."""

    @property
    def used(self) -> Used:
        """Per cent that is spent of the fullest budget that counts and limits such work."""

    async def fresh(self) -> None:
        """Read them again, unless that was done just now. Raises errors of the database while none were read."""


@dataclass(frozen=True, slots=True)
class KeptShares:
    """Those of a process that follows budgets anyway."""

    used: Used

    async def fresh(self) -> None:
        """They are."""


class ReadShares:
    """Those of a process that reads budgets for this alone."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._budgets: Sequence[Budget] | None = None
        self._read_at = float("-inf")

    def used(self, tenant_id: int, key_id: str, workflow: str, queued: bool, currency: str | None) -> float:
        """Per cent of the fullest budget of such work that is spent."""
        mine = (each for each in self._budgets or () if each.tenant_id == tenant_id)
        return rules.spent_share(mine, key_id, workflow, currency, queued=queued)

    async def fresh(self) -> None:
        """Read them again, unless that was done just now. Raises errors of the database while none were read."""
        if clock.monotonic() - self._read_at < FRESH_SECONDS:
            return
        try:
            async with self._database.relaxed() as conn:
                self._budgets = await budgets.every(conn)
            self._read_at = clock.monotonic()
        except TRANSIENT:
            if self._budgets is None:
                raise
