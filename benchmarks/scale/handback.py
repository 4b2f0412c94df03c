"""How fast a worker process hands back all its work: on a second signal, on a notice, and when an operator drains it now.

The worker is the real process, and its drain time is ten minutes. Its four fake engines answer some requests and then none. The
time is taken from the cause to the moment at which no chunk is leased and, but for the drain, all engines are released.
"""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import psycopg

from app import processes
from app.db.pool import Database
from app.engines import service as engines
from app.environment import child_environment
from app.settings import Settings
from benchmarks.gateway.installation import running
from benchmarks.harness import MODEL, Testbed, open_testbed, part, say, start
from benchmarks.queue.workload import fill
from testing.waiting import LIMIT_SECONDS, wait_for

ENGINES = 4
IN_FLIGHT = 32  # requests in each engine
ITEMS = 2000
_NOTHING_LEASED = b"select not exists (select from chunk where state = 'leased')"
_RELEASED = _NOTHING_LEASED + b" and not exists (select from engine where worker_id is not null)"
_DONE = {"signal": _RELEASED, "notice": _RELEASED, "drain": _NOTHING_LEASED}
_SCRIPT = json.dumps([{"times": 40, "mode": "answer"}, {"mode": "hang"}])


def handback(rounds: int) -> dict[str, Any]:
    """`handback_s`: the longest of all. Beside it the longest of each cause, in seconds."""
    with open_testbed("") as testbed:
        found = {cause: max(_round(testbed, cause) for _ in range(rounds)) for cause in ("signal", "notice", "drain")}
    say("hand back: " + ", ".join(f"{cause} {seconds:.2f} s" for cause, seconds in found.items()))
    by_cause = {f"handback_{cause}_s": round(seconds, 2) for cause, seconds in found.items()}
    sizes = {"handback_engines": ENGINES, "handback_requests": ENGINES * IN_FLIGHT, "handback_rounds": rounds}
    return {"handback_s": round(max(found.values()), 2), **by_cause, **sizes}


def _round(testbed: Testbed, cause: str) -> float:
    folder = testbed.folder / f"handback-{cause}"
    folder.mkdir(exist_ok=True)
    notice = folder / "notice"
    notice.unlink(missing_ok=True)
    settings = testbed.settings(testbed.database(), notice_file=str(notice), drain_seconds=600.0)
    asyncio.run(fill(settings, ITEMS))
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(_engine()) for _ in range(ENGINES)]
        stack.enter_context(part(settings, "workers.steward"))
        worker = stack.enter_context(_worker(settings, urls, folder))
        _until_busy(urls)
        with psycopg.connect(settings.database_url, autocommit=True) as conn:
            began = _cause(cause, worker, notice, settings)
            while not (row := conn.execute(_DONE[cause]).fetchone()) or not row[0]:
                if monotonic() - began > LIMIT_SECONDS:
                    raise SystemExit(f"not handed back within {LIMIT_SECONDS:.0f} s: {cause}")
                sleep(0.01)
            seconds = monotonic() - began
    return seconds


def _cause(cause: str, worker: subprocess.Popen[bytes], notice: Path, settings: Settings) -> float:
    """Let it happen. Returns the second at which it did."""
    if cause == "signal":
        worker.send_signal(signal.SIGTERM)
        sleep(1)  # the first signal waits for requests to end
    began = monotonic()
    if cause == "signal":
        worker.send_signal(signal.SIGTERM)
    elif cause == "notice":
        notice.write_text("")
    else:
        asyncio.run(_drain_now(settings.database_url))
    return began


async def _drain_now(url: str) -> None:
    """What `slackwater engine drain NAME --now` does, for each engine."""
    async with Database(url, size=1) as database, database.durable() as conn:
        for number in range(ENGINES):
            await engines.change_intake(conn, f"engine-{number}", "drain now")


@contextlib.contextmanager
def _engine() -> Iterator[str]:
    """A fake engine, whose URL is returned."""
    port = processes.free_port()
    command = [sys.executable, "-m", "testing.fakes.engine", "--port", str(port), "--model", MODEL, "--script", _SCRIPT]
    with running(command) as process:
        assert process.stdout
        yield process.stdout.readline().strip()


@contextlib.contextmanager
def _worker(settings: Settings, urls: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One worker process with all engines. It may end by itself."""
    listed = folder / "engines.toml"
    listed.write_text("".join(f'[[engine]]\nname = "engine-{n}"\nurl = "{url}"\n' for n, url in enumerate(urls)))
    own = {
        "engines": f"file:{listed}",
        "headroom": "static",
        "batch_max_in_flight": IN_FLIGHT,
        "worker_metrics_port": 0,
    }
    environment = child_environment(settings.model_copy(update={**own, "data_dir": folder}), {})
    process = start([sys.executable, "-m", "workers.gpu"], environment, folder / "worker.log")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _until_busy(urls: list[str]) -> None:
    """Wait until every engine has answered some requests and holds as many as it may."""
    with httpx.Client(trust_env=False) as client:

        def busy() -> bool:
            seen = [client.get(f"{url}/_seen").json() for url in urls]
            return all(sum(each["count"].values()) - sum(each["finished"].values()) >= IN_FLIGHT for each in seen)

        wait_for(busy, "requests in every engine")
