"""Arm: what the admission of one synchronous request takes in the process, with a policy of 50 rules and three budgets."""

import asyncio
from time import perf_counter
from typing import Any

from app.admission.control import AdmissionControl, labels_of
from app.admission.spent_shares import KeptShares
from app.batches.submit import rules_of
from app.batches.validation.text_generation import examine
from app.budgets.calls import CallBudgets, CallSize
from app.budgets.rules import expected_answer
from app.db.pool import Database
from app.engines import catalogue
from app.engines.requests import CHAT
from app.metering.lines import SYNC, parts_of
from app.policy.language import parse
from app.policy.rules import Policy
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.service import Tenant
from benchmarks.governance.queue_cost import LABELS, serving
from benchmarks.harness import ACCOUNT, MODEL, Testbed, say
from benchmarks.statistics import percentiles

RULES = 50
_ITEM = {"messages": [{"role": "user", "content": "What does this invoice say? " * 40}], "max_tokens": 64}


def policy_text() -> str:
    """Rules of other accounts, keys and tasks, and a last one that matches."""
    rules = [
        f'[[rule]]\nid = "rule-{n}"\nwhen = {{ task = ["task-{n}"], est_tokens = "<=4000" }}\nmax_tokens = {n + 1}\n'
        for n in range(RULES - 1)
    ]
    return "\n".join([*rules, '[[rule]]\nid = "ours"\nwhen = { workflow = ["digest"] }\nmax_tokens = 4096\n'])


def admit(testbed: Testbed, count: int) -> dict[str, Any]:
    """Milliseconds that labels, policy and budgets add to the check of a request."""
    settings = testbed.settings(testbed.database())
    with serving(settings, governed=True):  # sets the budgets
        samples = asyncio.run(_timed(settings, count))
    p50, p99 = percentiles(samples)
    say(f"admit: p50 {p50 * 1e3:.1f} us, p99 {p99 * 1e3:.1f} us")
    return {"sync_added_ms_p50": round(p50, 4), "sync_added_ms_p99": round(p99, 4), "admit_rules": RULES}


async def _timed(settings: Settings, count: int) -> list[float]:
    models = catalogue.load(settings.models_file)
    model = models.resolve(MODEL)
    assert model is not None
    async with Database(settings.database_url) as database:
        control = AdmissionControl(database, models, b"secret", KeptShares(lambda *_: 0.0))  # type: ignore[arg-type]  # it reads no rules
        control.policy.current = Policy(1, parse(policy_text(), models))
        async with database.transaction() as conn:
            tenant = Tenant(await tenants.ensure_tenant(conn, ACCOUNT), ACCOUNT)
        rules, found = rules_of(model), []
        ours = CallBudgets(database)
        async with ours.keeping():
            for _ in range(count):
                began = perf_counter()
                facts = examine(_ITEM, rules)
                checked = perf_counter()
                labels = labels_of(tenant, LABELS, None, ())
                admission = control.begin(tenant, labels, SYNC, models, stored=())
                admitted = admission.admit(model, _ITEM, CHAT, lambda model, item: examine(item, rules_of(model)))
                expected = expected_answer(facts.answer_tokens, facts.most_tokens)
                size = CallSize(facts.est_tokens - facts.answer_tokens, expected, facts.most_tokens, admitted.item)
                line = parts_of(tenant.tenant_id, tenant.key_id, labels, model.name, SYNC, model.price)
                async with ours.reserving(line, size) as call:
                    call.settle(100, 0, 20)
                ended = perf_counter()
                found.append((ended - checked - (checked - began)) * 1e3)
                await asyncio.sleep(0)
    return found
