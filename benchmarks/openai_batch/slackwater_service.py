"""Slackwater on one fake engine: an API process, a steward, and a worker that can be killed and started again."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping

import psycopg
from openai import OpenAI

from app import processes
from app.environment import child_environment
from app.settings import Settings
from benchmarks import harness
from benchmarks.harness import Testbed, api, end, part
from benchmarks.openai_batch.slot_engine import client_of


class SlackwaterService:
    """A running installation. Its settings are the defaults, but no engine slot is reserved for synchronous requests."""

    extra: Mapping[str, object] = {}

    def __init__(self, settings: Settings, client: OpenAI, pid: int) -> None:
        self.settings, self.client, self.pid = settings, client, pid
        self._worker: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the worker. Returns when the engine is ready."""
        log = self.settings.data_dir / "worker.log"
        self._worker = harness.start([sys.executable, "-m", "workers.gpu"], child_environment(self.settings, {}), log)
        harness.until_engines_ready(self.settings.database_url)

    def stop(self) -> None:
        """Send SIGTERM to the worker. Its chunks go back to the queue."""
        if self._worker is not None:
            end(self._worker)

    def kill(self) -> None:
        """Send SIGKILL to the worker."""
        assert self._worker is not None
        processes.signal_group(self._worker.pid, signal.SIGKILL)
        self._worker.wait()

    def stored(self, batch_id: str) -> set[str]:
        """Custom ids of stored results."""
        query = """
        select p.reference from batch b join item_result r using (batch_id) join item_payload p using (batch_id, seq)
        where b.request_id = %s::uuid"""
        return {str(reference) for (reference,) in self._rows(query, batch_id.removeprefix("batch_"))}

    def _rows(self, query: str, *values: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.settings.database_url) as conn:
            return conn.execute(query.encode(), values).fetchall()


@contextlib.contextmanager
def installation(testbed: Testbed, engine_url: str, slots: int, **changes: object) -> Iterator[SlackwaterService]:
    """Run all processes until the block ends."""
    values = {"engine_url": engine_url, "engine_slots": slots, "sync_reserve_slots": 0, **changes}
    settings = testbed.settings(testbed.database(), **values)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with part(settings, "workers.steward"), api(settings) as (process, key):
        ours = SlackwaterService(settings, client_of(f"http://{settings.host}:{settings.port}/v1", key), process.pid)
        try:
            ours.start()
            yield ours
        finally:
            ours.stop()
