"""The rules of the policy about webhook hosts, as they hold at each attempt: a rule that came later stops what waits.

What they or a list of hosts refuse is noted in the audit log.
"""

from typing import NoReturn

from app.audit.acts import Act
from app.audit.grouped import GroupedLog
from app.db.pool import Database
from app.engines.catalogue import Catalogue
from app.engines.model_registry import ModelRegistry
from app.policy.in_force import PolicyInForce
from app.policy.match import webhook_refusal
from app.webhooks.claims import Claim
from app.webhooks.response_policy import Answer, Refusal

_NO_MODELS = Catalogue({}, {})  # of a rule, only its hosts count here


class ReceiverRules:
    """Reads the policy of the installation before deliveries are claimed. Run `keep` beside it."""

    def __init__(self, database: Database) -> None:
        self._policy = PolicyInForce(database, ModelRegistry(database, _NO_MODELS))
        self.audit = GroupedLog(database)

    async def keep(self) -> NoReturn:
        """Store the records of refusals, until cancelled."""
        await self.audit.keep()

    async def know(self) -> None:
        """Read the policy again, unless that was done just now. Raises PolicyUnknown if none was ever read: then nothing may be
        sent.
        """
        await self._policy.fresh()
        _ = self._policy.current

    def refusal(self, claim: Claim) -> Answer | None:
        """How an attempt ends whose receiver a rule does not allow. None: no rule forbids it."""
        denial = webhook_refusal(self._policy.current.rules, claim.account, claim.url)
        if denial is None:
            return None
        return Answer(0, error="policy_denied", refusal=Refusal(denial.rule_id, denial.message))

    def note(self, claim: Claim, refusal: Refusal | None) -> None:
        """Note in the audit log why an attempt was refused, if it was."""
        if refusal is not None:
            self.audit.add(Act.POLICY_DENIED, refusal.by, claim.account, refusal.message, (claim.event.webhook_id,))
