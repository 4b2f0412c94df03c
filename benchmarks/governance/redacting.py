"""Arms: what redaction takes in the process, and items per second through the API of an account whose requests are redacted.

Every fifth item has an e-mail address and a phone number; the clean and the dirty ones are measured alone, too.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic, perf_counter
from typing import Any

import orjson

from app.admission.control import AdmissionControl
from app.admission.spent_shares import KeptShares
from app.batches.submit import rules_of
from app.batches.validation.text_generation import examine
from app.db.pool import Database
from app.engines import catalogue
from app.engines.requests import CHAT
from app.metering.lines import SYNC
from app.metering.spend_labels import SpendLabels
from app.policy import service as policies
from app.policy.language import parse
from app.policy.redaction import Redactor, restored_body
from app.policy.rules import Policy, Sensitive
from app.settings import Settings
from app.tenants.key_scope import KeyScope
from app.tenants.service import Tenant
from benchmarks.governance.queue_cost import serving
from benchmarks.harness import ACCOUNT, MODEL, Testbed, say
from benchmarks.queue.workload import line
from benchmarks.statistics import percentiles

_RULE = f'[[rule]]\nid = "redacting"\nwhen = {{ account = "{ACCOUNT}" }}\nsensitive = "tokenize"\n'
_OTHER = _RULE.replace(f'"{ACCOUNT}"', '"another"')
_EVERY, _ROUNDS = 5, 7


def _dirty(number: int) -> bytes:
    """The same item as `line`, in the same length, with two values."""
    text, value = line(number), b" mail pat.%d@example.com or +49 30 %07d " % (number, number % 10**7)
    return text[:400] + value + text[400 + len(value) :]


def _body(items: int) -> bytes:
    return b"".join(line(number) if number % _EVERY else _dirty(number) for number in range(items))


def redact(testbed: Testbed, items: int) -> dict[str, Any]:
    """MB/s of prompts of 1 KB in the process: the best of several rounds."""
    redactor = Redactor(Sensitive("tokenize", {}, {}))
    mixed, clean, dirty = (
        [orjson.loads(text) for text in each.splitlines()]
        for each in (_body(items), b"".join(map(line, range(items))), b"".join(map(_dirty, range(items))))
    )
    found = {}
    for name, parsed in (("redact", mixed), ("redact_clean", clean), ("redact_dirty", dirty)):
        found[f"{name}_mb_s"] = round(_megabytes_a_second(redactor, parsed), 1)
        say(f"{name}: {found[f'{name}_mb_s']} MB/s")
    return found


def _megabytes_a_second(redactor: Redactor, items: Sequence[Any]) -> float:
    size, best = sum(len(orjson.dumps(item)) for item in items), float("inf")
    for _ in range(_ROUNDS):
        began = perf_counter()
        for item in items:
            redactor.redact(item)
        best = min(best, perf_counter() - began)
    return size / best / 1e6


def redact_sync(testbed: Testbed, count: int) -> dict[str, Any]:
    """Milliseconds that redacting a dirty request and restoring its answer add to the admission of a synchronous request."""
    p50, p99 = percentiles(asyncio.run(_added(testbed.settings(testbed.database()), count)))
    say(f"redaction of a synchronous request: p50 {p50 * 1e3:.1f} us, p99 {p99 * 1e3:.1f} us")
    return {"sync_redact_added_ms_p50": round(p50, 4), "sync_redact_added_ms_p99": round(p99, 4)}


async def _added(settings: Settings, count: int) -> list[float]:
    models = catalogue.load(settings.models_file)
    model = models.resolve(MODEL)
    assert model is not None
    rules, tenant, found = rules_of(model), Tenant(1, ACCOUNT, "key", scope=KeyScope(restore=True)), []
    async with Database(settings.database_url) as database:
        controls = {}
        for name, text in (("with", _RULE), ("without", _OTHER)):
            controls[name] = AdmissionControl(database, models, b"benchmark", KeptShares(lambda *_: 0.0))  # type: ignore[arg-type]
            controls[name].policy.current = Policy(1, parse(text, models))
        for number in range(count):
            item, took = orjson.loads(_dirty(number)), {}
            for name, control in controls.items():
                began = perf_counter()
                admission = control.begin(tenant, SpendLabels(), SYNC, models, stored=("request", None))
                admitted = admission.admit(model, item, CHAT, lambda _, item: examine(item, rules))
                if name == "with":
                    restored_body(_answer(admitted.item), admitted.values, of_answer=True)
                took[name] = perf_counter() - began
            found.append((took["with"] - took["without"]) * 1e3)
            await asyncio.sleep(0)
    return found


def _answer(item: dict[str, Any]) -> bytes:
    """An answer that repeats the request."""
    return orjson.dumps({"choices": [{"message": {"content": item["messages"][0]["content"]}}]})


def ingest_redacted(testbed: Testbed, items: int, rounds: int) -> dict[str, Any]:
    """Items per second through the API process, of an account whose requests are redacted: the median."""
    rates, sent = [], _body(items)
    for _ in range(rounds):
        settings = testbed.settings(testbed.database())
        asyncio.run(_apply(settings))
        with serving(settings, governed=True) as client:
            client.submit_lines(line(0), len(line(0)))
            began = monotonic()
            client.submit_lines(sent, len(sent))
            rates.append(items / (monotonic() - began))
            say(f"ingest, redacted: {rates[-1]:,.0f} items/s")
            if asyncio.run(_vaults(settings)) != (items + _EVERY - 1) // _EVERY:
                raise SystemExit("not every dirty item was redacted")
    return {"ingest_redacted_items_s": round(sorted(rates)[len(rates) // 2])}


async def _apply(settings: Settings) -> None:
    async with Database(settings.database_url, size=1) as database, database.transaction() as conn:
        await policies.apply(conn, _RULE, catalogue.load(settings.models_file), "benchmark")


async def _vaults(settings: Settings) -> int:
    async with Database(settings.database_url, size=1) as database, database.relaxed() as conn:
        row = await (await conn.execute("select count(*) from item_payload where vault is not null")).fetchone()
        return int(row[0]) if row else 0
