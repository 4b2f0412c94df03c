"""Latency and throughput of webhooks on this machine, and the delay that hanging receivers cause to others.

    python -m benchmarks.webhooks --json [--quick] [--only ARM[,ARM…]] [--database-url postgresql://…]

idle     from the end of a batch (the begin of its transaction) to the receipt of `batch.succeeded`, one batch at a time, on a
         whole installation with a fake engine
loaded   from the commit of an event to its receipt, at 200 events/s over 20 receivers
burst    many events at once for 95 receivers, and again with 5 more that never answer: the ratio of the durations for the 95.
         Medians over pairs of runs in alternating order
celery   the same burst with a plain Celery task and `self.retry`, on the same broker with as many threads

Steward and notifier are real processes on the embedded broker (pgmq). Progress goes to stderr. The last line of stdout is one
JSON object. `lost` and `duplicated_after_2xx` are sums over all arms except celery.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import monotonic, sleep, time
from typing import Any

import psycopg

from app import processes
from app.api_url import base_url
from app.cli import subscription
from app.cli.client import Client
from app.cli.key import create_key
from app.tenants.key_scope import EVERYTHING
from benchmarks import command
from benchmarks.gateway.installation import running
from benchmarks.harness import ACCOUNT, Api, Testbed, open_testbed, part, say, until_ready
from benchmarks.statistics import percentiles
from benchmarks.webhooks.installation import (
    KIND,
    Receipt,
    ReceiverProcess,
    burst,
    delivering,
    plain_celery,
    prepare,
    publish,
    receiver_process,
    stream,
)

RATE = 200.0
RECEIVERS, HANGING, STREAMED = 100, 5, 20
PATIENCE_SECONDS = 180.0


@dataclass(frozen=True)
class WebhookSizes:
    """Sizes and durations of all arms."""

    singles: int = 100
    seconds: float = 20
    events: int = 120
    pairs: int = 5
    celery_events: int = 40  # fewer, because the messages of hanging receivers take long there


QUICK = WebhookSizes(10, 3, 5, 1, 5)


def idle(testbed: Testbed, sizes: WebhookSizes) -> dict[str, Any]:
    """Batches of one item, one after the other."""
    settings = testbed.settings(testbed.database(), webhook_allow_private="loopback")
    port = processes.free_port()
    engine = [sys.executable, "-m", "testing.fakes.engine", "--port", str(port), "--latency", "0.05"]
    own = settings.model_copy(update={"engine_url": f"http://127.0.0.1:{port}"})
    with (
        receiver_process() as receiver,
        running(engine),
        part(own, "app.api"),
        part(own, "workers.gpu"),
        part(own, "workers.steward"),
        part(own, "workers.notifier"),
    ):
        until_ready(own)
        key = create_key(own, ACCOUNT, "benchmark", 1, scope=EVERYTHING)
        with Client(base_url(own), key) as caller:
            to = {"type": "webhook", "url": receiver.url("/ok/0")}
            subscription.register(caller, "receiver", to, events=[KIND])
        sleep(5)
        came = _one_by_one(Api(own, key), receiver, sizes.singles)
        begun = _begun(own.database_url)
    taken = [at - begun[webhook_id] for _, webhook_id, at in came if webhook_id in begun]
    p50, p99 = (1e3 * value for value in percentiles(taken))
    say(f"idle: p50 {p50:.0f} ms, p99 {p99:.0f} ms of {len(taken)}")
    return {
        "idle_p50_ms": round(p50, 1),
        "idle_p99_ms": round(p99, 1),
        "idle_samples": len(taken),
        **_faults(set(begun), came),
    }


def _one_by_one(client: Api, receiver: ReceiverProcess, count: int) -> list[Receipt]:
    """Submit so many batches, each after the event of the one before, and stop at the first that is missing."""
    rng, came = random.Random(7), list[Receipt]()
    for _ in range(count):
        sleep(rng.uniform(0.05, 0.4))
        client.submit([{"prompt": "Say something.", "max_tokens": 2}])
        came += (found := receiver.until(1, 30))
        if not found:
            break
    sleep(1)
    return came + receiver.came()


def _begun(database_url: str) -> dict[str, float]:
    """By webhook id, the Unix time at which the transaction of each event began."""
    with psycopg.connect(database_url) as conn:
        rows = conn.execute(
            "select message_id, extract(epoch from occurred_at)::float8 from event where kind = %s", [KIND]
        )
        return {f"evt_{message_id.hex}": at for message_id, at in rows.fetchall()}


def loaded(testbed: Testbed, sizes: WebhookSizes) -> dict[str, Any]:
    """A steady stream of events."""
    with receiver_process() as receiver, delivering(testbed) as settings:
        urls = [receiver.url(f"/ok/{number}") for number in range(STREAMED)]
        committed = stream(settings, urls, RATE, sizes.seconds)
        came = receiver.until(len(committed), 60)
    taken = [at - committed[webhook_id] for _, webhook_id, at in came]
    p50, p99 = (1e3 * value for value in percentiles(taken))
    kept_up = sum(at <= max(committed.values()) + 1 for *_, at in came) / len(committed)
    say(
        f"at {RATE:g} events/s: p50 {p50:.0f} ms, p99 {p99:.0f} ms; {100 * kept_up:.0f} % within a second of the last event"
    )
    figures = {"loaded_events_s": RATE, "loaded_p50_ms": round(p50, 1), "loaded_p99_ms": round(p99, 1)}
    return {**figures, "loaded_kept_up": round(kept_up, 3), **_faults(set(committed), came)}


def burst_beside_hanging(testbed: Testbed, sizes: WebhookSizes) -> dict[str, Any]:
    """A burst without and with hanging receivers."""

    def run(paths: list[str]) -> Burst:
        with receiver_process() as receiver, delivering(testbed) as settings:
            tenant_id = prepare(settings, [receiver.url(path) for path in paths])
            receiver.until(len(_HEALTHY), PATIENCE_SECONDS)  # an event for each, as warm-up
            began = burst(settings, tenant_id, sizes.events)
            return _burst_of(receiver.until, sizes.events, began)

    pairs = [_both(testbed, run, first=bool(number % 2)) for number in range(sizes.pairs)]
    faults = sum((_missing(each.came, sizes.events) for pair in pairs for each in pair), Counter[str]())
    return {**_compared("", sizes.events, pairs), **{key: faults[key] for key in SUMMED}}


def celery(testbed: Testbed, sizes: WebhookSizes) -> dict[str, Any]:
    """The same bursts with a plain Celery task."""

    def run(paths: list[str]) -> Burst:
        settings = testbed.settings(testbed.database())
        with receiver_process() as receiver, plain_celery(settings):
            sleep(4)
            body = json.dumps({"type": KIND, "data": {"id": "0" * 32, "counts": {"total": 10, "succeeded": 10}}})
            messages = [
                (receiver.url(path), f"evt_{event}", body) for event in range(sizes.celery_events) for path in paths
            ]
            began = time()
            publish(settings, messages)
            return _burst_of(receiver.until, sizes.celery_events, began)

    return _compared("plain_celery_", sizes.celery_events, [_both(testbed, run)])


@dataclass(frozen=True)
class Burst:
    """Seconds until all answering receivers had all events, or until the timeout; and the receipts."""

    seconds: float
    came: list[Receipt]


def _both(testbed: Testbed, run: Callable[[list[str]], Burst], *, first: bool = False) -> tuple[Burst, Burst]:
    """A burst without and one with hanging receivers. `first`: the one with them runs first."""
    found = []
    for paths in (_ALL, _HEALTHY) if first else (_HEALTHY, _ALL):
        found.append(run(paths))
        testbed.clear()
    without, with_them = reversed(found) if first else found
    return without, with_them


def _compared(prefix: str, events: int, pairs: Sequence[tuple[Burst, Burst]]) -> dict[str, Any]:
    """Medians over the pairs."""
    count = len(_HEALTHY) * events
    alone, rate = (median(count / each.seconds for each in side) for side in zip(*pairs, strict=True))
    ratios = [with_them.seconds / without.seconds for without, with_them in pairs]
    ratio = median(ratios)
    say(f"{prefix}{rate:.0f} deliveries/s while {HANGING} hang, {alone:.0f} without them; {ratio:.2f} times as long")
    return {
        f"{prefix}deliveries_s": round(rate, 1),
        f"{prefix}deliveries_s_none_hanging": round(alone, 1),
        f"{prefix}hanging_neighbour_delay_ratio": round(ratio, 3),
        f"{prefix}hanging_neighbour_delay_ratios": [round(each, 3) for each in ratios],
    }


_ALL = [f"/{'ok' if n % (RECEIVERS // HANGING) else 'hang'}/{n}" for n in range(RECEIVERS)]  # spread among the others
_HEALTHY = [path for path in _ALL if path.startswith("/ok/")]


def _burst_of(until: Callable[[int, float], list[Receipt]], events: int, began: float) -> Burst:
    came: list[Receipt] = []
    deadline, count = monotonic() + PATIENCE_SECONDS, len(_HEALTHY) * events
    while (left := count - len({each[:2] for each in came})) > 0 and monotonic() < deadline:
        came += until(left, 1)
    return Burst(max((at for *_, at in came), default=time()) - began, came)


def _missing(came: Sequence[Receipt], events: int) -> Counter[str]:
    counted = Counter((path, webhook_id) for path, webhook_id, _ in came)
    return Counter(lost=len(_HEALTHY) * events - len(counted), duplicated_after_2xx=counted.total() - len(counted))


def _faults(expected: set[str], came: Sequence[Receipt]) -> dict[str, int]:
    counted = Counter(webhook_id for _, webhook_id, _ in came)
    return {"lost": len(expected - set(counted)), "duplicated_after_2xx": counted.total() - len(counted)}


ARMS: dict[str, Callable[[Testbed, WebhookSizes], dict[str, Any]]] = {
    "idle": idle, "loaded": loaded, "burst": burst_beside_hanging, "celery": celery
}  # fmt: skip
SUMMED = ("lost", "duplicated_after_2xx")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The wanted arms on one server. The counts of SUMMED are sums over them."""
    summed: Counter[str] = Counter(dict.fromkeys(SUMMED, 0))

    def arm(measure: Callable[[Testbed, WebhookSizes], dict[str, Any]]) -> Callable[[Testbed], dict[str, Any]]:
        def measured(testbed: Testbed) -> dict[str, Any]:
            found = measure(testbed, QUICK if options.quick else WebhookSizes())
            summed.update({key: found.pop(key) for key in SUMMED if key in found})
            return found

        return measured

    table = {name: arm(measure) for name, measure in ARMS.items()}
    with open_testbed(options.database_url) as testbed:
        return {"broker": "pgmq", **command.in_turn(table, options.arms, testbed, after=testbed.clear), **summed}


if __name__ == "__main__":
    command.main("webhooks", __doc__, run, minutes=8, arms=ARMS, database=True)
