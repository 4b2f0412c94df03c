"""The admission of one process: what is the same for all its requests. `begin` opens the admission of one of them.

Every process that takes work on has one of these, made where it starts, whether the work comes by a request, a line of a batch,
a stage of a pipeline, an answer from outside or a turn of a conversation.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NoReturn, Self
from uuid import UUID

from app.admission import observation
from app.admission.admission import Admission
from app.admission.redaction import Redaction, redaction_of
from app.admission.samples import RequestSamples
from app.admission.spent_shares import ReadShares, Shares
from app.audit.acts import Act
from app.audit.grouped import GroupedLog
from app.crypto import secret_key
from app.db.pool import Database
from app.engines import catalogue
from app.engines.catalogue import Catalogue
from app.engines.model_registry import ModelRegistry
from app.engines.rate_card import Work
from app.errors import PolicyDenied
from app.metering import spend_labels
from app.metering.spend_labels import SpendLabels
from app.policy.denials import Denial
from app.policy.in_force import PolicyInForce
from app.policy.match import Decision, Requester, encrypts, narrowed, sensitive_rule, webhook_refusal
from app.policy.rules import NO_POLICY, Policy
from app.policy.vaults import Vaults, hash_key
from app.queue.types import Kind
from app.settings import Settings
from app.tenants.service import Tenant

_MOST_REQUESTERS = 4096
_QUEUED = frozenset(Kind)  # a batch keeps the rules that changed it


def labels_of(
    tenant: Tenant, headers: Mapping[str, str], metadata: Mapping[str, str] | None, tags: Sequence[str]
) -> SpendLabels:
    """The labels by which a request is reported and governed: those of its key first. Raises BadInput."""
    labels = spend_labels.read(headers, metadata, tags)
    return spend_labels.pinned(labels, dict(tenant.pins), headers) if tenant.pins else labels


class AdmissionControl:
    """Run `keep` beside it, and `policy.keep` or, before each use, `renew` or `fresh`.

    `models`: of the installation. `secret`: the master key. `shares`: of the budgets that limit requests.
    """

    def __init__(
        self,
        database: Database,
        models: ModelRegistry,
        secret: bytes,
        shares: Shares,
    ) -> None:
        self._secret, self._shares = secret, shares
        self.models = models
        self.policy = PolicyInForce(database, models)
        self.samples = RequestSamples(database)
        self.audit = GroupedLog(database)
        self._narrowed: tuple[Policy, dict[Requester, Policy]] = (NO_POLICY, {})

    @classmethod
    def of(cls, database: Database, settings: Settings) -> Self:
        """Of a process that only queues work."""
        models = ModelRegistry(database, catalogue.load(settings.models_file), work=Work.BATCH)
        return cls(database, models, secret_key(settings), ReadShares(database))

    async def renew(self) -> None:
        """Read policy and budgets again."""
        await self.policy.renew()
        await self._follow_budgets()

    async def fresh(self) -> None:
        """As `renew`, unless that was done just now."""
        await self.policy.fresh()
        await self._follow_budgets()

    async def _follow_budgets(self) -> None:
        """Read budgets only where a rule looks at them."""
        if self.policy.known and any("budget" in rule.when.bounds for rule in self.policy.current.rules):
            await self._shares.fresh()

    async def keep(self) -> NoReturn:
        """Store what it notes of its requests, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.samples.keep())
            group.create_task(self.audit.keep())
        raise AssertionError("both run until they are cancelled")

    def begin(
        self,
        tenant: Tenant,
        labels: SpendLabels,
        kind: str,
        models: Catalogue,
        deadline: float | None = None,
        *,
        stored: Sequence[str | None],
    ) -> Admission:
        """The admission of a request with these labels. `deadline`: its completion window in seconds; None: it has none.

        `stored`: what it has besides its items that is stored as it is. Raises SensitiveFound, RedactionDown.
        """
        redaction = self.redaction(tenant)
        if redaction is not None:
            redaction.check("labels, metadata, tags or ids of the request", *stored)
        key = tenant.key_id
        who = Requester(tenant.account_id, key, labels.workflow, labels.task, kind, labels.critical, deadline)
        return Admission(
            who,
            labels,
            self._for(who),
            models,
            tenant.scope,
            partial(self._shares.used, tenant.tenant_id, key, labels.workflow, kind in _QUEUED),
            observation.count if kind in _QUEUED else partial(self._decided, tenant.account_id),
            partial(self.samples.add, tenant.tenant_id),
            partial(self._refused, tenant.account_id),
            partial(self._outside, tenant.account_id),
            redaction=redaction,
            vaults=self.vaults(tenant),
        )

    def redaction(self, tenant: Tenant) -> Redaction | None:
        """How requests of this account are redacted. None: they are not. Raises RedactionDown."""
        rule = sensitive_rule(self.policy.current.rules, tenant.account_id)
        if rule is None:
            return None
        return redaction_of(rule, self.vaults(tenant), hash_key(self._secret), observation.count_sensitive)

    def vaults(self, tenant: Tenant) -> Vaults:
        """What seals and opens the values behind placeholders of this account."""
        return Vaults(self._secret, tenant.tenant_id)

    def encrypts_files(self, tenant: Tenant) -> str | None:
        """The rule that asks for encrypted files of this account. None: none does."""
        return encrypts(self.policy.current.rules, tenant.account_id)

    def check_webhook(self, tenant: Tenant, url: str) -> None:
        """Raise PolicyDenied for a webhook of this account to a host that a rule does not allow."""
        if (refusal := webhook_refusal(self.policy.current.rules, tenant.account_id, url)) is not None:
            self._refused(tenant.account_id, refusal)
            raise PolicyDenied(refusal.message)

    def withheld(self, account: str, denial: Denial, request_id: UUID | None = None) -> None:
        """Count and note a tool call that an answer of this account had. `request_id`: of its batch."""
        observation.WITHHELD.labels(denial.rule_id).inc()
        names = () if request_id is None else (str(request_id),)
        self.audit.add(Act.POLICY_WITHHELD, denial.rule_id, account, denial.message, names)

    def _decided(self, account: str, decision: Decision) -> None:
        """Count the decision on a synchronous request, and note the rules that changed it."""
        observation.count(decision)
        for rule in decision.rules:
            if decision.denial is None:
                self.audit.add(Act.POLICY_APPLIED, rule, account)

    def _refused(self, account: str, denial: Denial) -> None:
        self.audit.add(Act.POLICY_DENIED, denial.rule_id, account, denial.message)

    def _outside(self, account: str, target: str, message: str) -> None:
        """Note that a key asked for a model or an endpoint that it may not use."""
        self.audit.add(Act.ACCESS_REFUSED, target, account, message)

    def _for(self, who: Requester) -> Policy:
        """The policy in force, narrowed to a requester."""
        current = self.policy.current
        if not current.rules:
            return current
        of, known = self._narrowed
        if of is not current or len(known) >= _MOST_REQUESTERS:
            known = {}
            self._narrowed = current, known
        if who not in known:
            known[who] = Policy(current.policy_id, narrowed(current.rules, who))
        return known[who]
