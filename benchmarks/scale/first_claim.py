"""How long a submit to an idle fleet waits for its first worker: with one pool, and with many."""

import contextlib
import json
import random
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psycopg

from app.settings import Settings
from benchmarks.harness import ACCOUNT, Testbed, api, open_testbed, part, say
from benchmarks.scale import fleet
from benchmarks.statistics import percentiles

PAUSE_SECONDS = (0.02, 0.08)  # between two submits
ITEM_SECONDS = 0.05
_MODEL = """
[models."{name}"]
context_window = 8192
capabilities = ["async_queue"]
"""


class Submits:
    """Submits batches of one chunk over one connection. `sent`: when each was sent, by request id."""

    def __init__(self, settings: Settings, key: str) -> None:
        self._connection = HTTPConnection(settings.host, settings.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self.sent: dict[str, float] = {}

    def submit(self, model: str) -> None:
        """Submit one item to this model."""
        path = f"/client/v4/accounts/{ACCOUNT}/ai/run/{model}?queueRequest=true"
        began = monotonic()
        body = json.dumps({"requests": [{"prompt": f"item {began}", "max_tokens": 8}]})
        self._connection.request("POST", path, body, self._headers)
        answer = self._connection.getresponse()
        content = json.loads(answer.read())
        if answer.status != 200:
            raise SystemExit(f"a submit was refused: {content}")
        self.sent[content["result"]["request_id"]] = began


@contextlib.contextmanager
def installation(testbed: Testbed, pools: int, engines: int) -> Iterator[tuple[Settings, str, list[str], fleet.Fleet]]:
    """A steward, an API and an idle fleet of so many pools. Yields settings, a key, the models and the fleet."""
    url = testbed.database()
    models = [f"model-{n}" for n in range(pools)]
    catalogue = Path(testbed.folder) / f"models-{pools}.toml"
    catalogue.write_text("".join(_MODEL.format(name=name) for name in models))
    settings = testbed.settings(url, models_file=catalogue, chunk_items=16)
    with (
        part(settings, "workers.steward"),
        api(settings) as (_, key),
        fleet.running(url, engines, models=models, item_seconds=ITEM_SECONDS) as workers,
    ):
        sleep(10)  # until they have heard how many there are, and have reported that they wait
        yield settings, key, models, workers


def waits(pools: int, engines: int, submits: int) -> list[float]:
    """Seconds from when each submit was sent until its first claim."""
    chosen = random.Random(1)
    with open_testbed("") as testbed, installation(testbed, pools, engines) as (settings, key, models, workers):
        caller = Submits(settings, key)
        for _ in range(submits):
            caller.submit(chosen.choice(models))
            sleep(chosen.uniform(*PAUSE_SECONDS))
        sleep(5)
        return _waits(settings.database_url, caller.sent, workers.firsts())


def _waits(url: str, sent: dict[str, float], firsts: Sequence[tuple[int, int, float]]) -> list[float]:
    with psycopg.connect(url) as conn:
        ids = {str(request): batch for request, batch in conn.execute("select request_id, batch_id from batch")}
    claimed: dict[int, float] = {}
    for batch, _, second in firsts:
        claimed[batch] = min(second, claimed.get(batch, second))
    if missing := [request for request in sent if ids[request] not in claimed]:
        raise SystemExit(f"{len(missing)} batches were never claimed")
    return [claimed[ids[request]] - began for request, began in sent.items()]


def first_claim(pools: int, engines: int, submits: int) -> dict[str, Any]:
    """`first_claim_ms_p50` and `_p99`, of one pool and of `pools`; `_p99` is the worse of the two."""
    found: dict[str, Any] = {"first_claim_engines": engines, "first_claim_submits": submits}
    for count in (1, pools):
        taken = [1000 * second for second in waits(count, engines, submits)]
        for share, value in zip((50, 99), percentiles(taken), strict=True):
            found[f"first_claim_ms_p{share}_{count}_pools"] = round(value, 1)
        say(f"first claim: {engines} engines in {count} pools, {found}")
    return found | {"first_claim_ms_p99": max(found[f"first_claim_ms_p99_{count}_pools"] for count in (1, pools))}
