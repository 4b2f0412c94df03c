"""The rules of the policy about webhook hosts, as they hold at each attempt: a rule that came later stops what waits.

What they or a list of hosts refuse is noted in the audit log.
"""

import asyncio
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
    """Follows the policy of the installation. Run `keep` beside it."""

    def __init__(self, database: Database) -> None:
        self._policy = PolicyInForce(database, ModelRegistry(database, _NO_MODELS))
        self.audit = GroupedLog(database)

    async def keep(self) -> NoReturn:
        """Follow the policy and store the records of refusals, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._policy.keep())
            group.create_task(self.audit.keep())
        raise AssertionError("both run until they are cancelled")

    async def know(self) -> None:
        """Read the policy if none was read yet. Raises PolicyUnknown if that fails: then nothing may be sent."""
        if not self._policy.known:
            await self._policy.renew()
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
