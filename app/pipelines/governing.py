"""The policy for children: their requests are admitted like those of a submit, under the labels and the key of the pipeline.

Values behind placeholders stay there: each item has the mapping of what it comes from. Whatever is written is searched again,
and keeps of its mapping what it has placeholders for.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from app import clock
from app.admission.admission import Admission
from app.admission.control import AdmissionControl
from app.batches.submit import rules_of
from app.batches.validation.openai_lines import ROUTES
from app.batches.validation.text_generation import ItemError, ItemFacts, ItemRules
from app.db.pool import Database
from app.engines.catalogue import Catalogue, Model
from app.engines.model_registry import REFRESH_SECONDS
from app.errors import PolicyDenied, SensitiveFound
from app.flows.items import Asked
from app.metering import lines
from app.metering.spend_labels import NO_SPEND_LABELS, SpendLabels
from app.pipelines.children import Request, without_model
from app.pipelines.running import Running
from app.policy.redaction import used
from app.queue.answer_lengths import FRESH_SECONDS, LearnedLengths, read_lengths
from app.queue.types import Kind
from app.tenants.service import Tenant

Place = tuple[int, int]  # a pipeline, and the number of a stage


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for one step. `admissions`: by pipeline and stage."""

    models: Catalogue
    lengths: LearnedLengths
    admissions: Mapping[Place, Admission]
    _rules: dict[tuple[int, str], ItemRules] = field(default_factory=dict)  # by account and model

    def request(self, running: Running, stage: int, asked: Asked, values: Mapping[str, str]) -> Request:
        """The request as it will be queued. `values`: of its placeholders. Raises ItemError where it may not run."""
        model = self.models.resolve(asked.model)
        if model is None:
            raise ItemError("model", f"{asked.model} is not in the catalogue any more")
        examine = partial(self._examined, asked.endpoint, running.tenant_id)
        try:
            admitted = self._of(running, stage).admit(model, dict(asked.body), asked.endpoint, examine, values)
        except (PolicyDenied, SensitiveFound) as denial:
            raise ItemError("", denial.message) from None
        other = None if admitted.model is model else admitted.model.name
        body = without_model(admitted.item)
        return Request(body, admitted.facts, used(body, admitted.values), other)

    def protected(
        self, running: Running, stage: int, body: bytes, values: Mapping[str, str]
    ) -> tuple[bytes, Mapping[str, str]]:
        """JSON that is stored without being a request, and the values of its placeholders, which are some of `values` and those
        that it gets. Raises ItemError.
        """
        redaction = self._of(running, stage).redaction
        if redaction is None:
            return body, used(body, values)
        try:
            found = redaction.redact(orjson.loads(body), values, of_engine=False)
        except SensitiveFound as refusal:
            raise ItemError("", refusal.message) from None
        body = orjson.dumps(found.item)
        return body, used(body, found.values)

    def decided(self, running: Running, stage: int) -> Mapping[str, Any] | None:
        """What rules decided about the requests of a stage so far. None: nothing."""
        return self._of(running, stage).stored([running.stages[stage].model])

    def scrubbed(self, running: Running, stage: int, text: str) -> str:
        """A text about an item, such as an error, without sensitive values."""
        redaction = self._of(running, stage).redaction
        return text if redaction is None else redaction.scrubbed(text)

    def _of(self, running: Running, stage: int) -> Admission:
        return self.admissions[running.pipeline_id, stage]

    def _examined(self, endpoint: str, tenant_id: int, model: Model, body: dict[str, Any]) -> ItemFacts:
        rules = self._rules.get((tenant_id, model.name))
        if rules is None:
            rules = rules_of(model, partial(self.lengths.usual, tenant_id))
            self._rules[tenant_id, model.name] = rules
        return ROUTES[endpoint][1](body, rules)


class Governor:
    """Follows the policy, the models and the lengths of answers."""

    def __init__(self, database: Database, control: AdmissionControl) -> None:
        self._database, self._control, self._registry = database, control, control.models
        self._lengths = LearnedLengths()
        self._labels: dict[int, tuple[str, SpendLabels]] = {}  # by line: its key and its labels
        self._read_at = self._learned_at = float("-inf")

    async def rules(self, pipelines: Collection[Running]) -> Rules:
        """What holds now. Raises PolicyUnknown, RedactionDown."""
        await self._renew()
        await self._read_labels(stage.line_id for running in pipelines for stage in running.stages)
        admissions = {
            (running.pipeline_id, stage.number): self._admission(running, stage.line_id)
            for running in pipelines
            for stage in running.stages
        }
        return Rules(self._registry.current, self._lengths, admissions)

    def _admission(self, running: Running, line_id: int | None) -> Admission:
        key, labels = self._labels.get(line_id or 0, ("", NO_SPEND_LABELS))
        tenant = Tenant(running.tenant_id, running.account_id, key)
        models, window = self._registry.current, running.flow.window
        return self._control.begin(tenant, labels, Kind.STAGE, models, window, stored=())

    async def _renew(self) -> None:
        now = clock.monotonic()
        if now - self._read_at > REFRESH_SECONDS:
            await self._registry.renew()
            self._read_at = now
        await self._control.renew()
        if now - self._learned_at > FRESH_SECONDS:
            self._learned_at = now
            async with self._database.relaxed() as conn:
                self._lengths = await read_lengths(conn, [*self._registry.current.models])

    async def _read_labels(self, line_ids: Iterable[int | None]) -> None:
        unknown = {line_id for line_id in line_ids if line_id is not None} - self._labels.keys()
        if not unknown:
            return
        async with self._database.relaxed() as conn:
            for line in await lines.parts(conn, sorted(unknown)):
                of = line.parts
                labels = SpendLabels(of.workflow, of.task, of.critical, of.variant, of.family)
                self._labels[line.line_id] = of.key_id, labels
