"""A fake engine with slots that counts requests by custom id, and OpenAI's client for any batch API."""

import contextlib
import json
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from openai import OpenAI
from openai.types import Batch

from app import processes
from benchmarks.gateway.installation import running
from benchmarks.openai_batch import lines

FIRST_SECONDS, TOKEN_SECONDS = 0.05, 0.05  # to the first of four tokens, and to each further one
SECONDS = FIRST_SECONDS + 3 * TOKEN_SECONDS
FINAL = ("completed", "failed", "expired", "cancelled")


@dataclass(frozen=True)
class RequestCounts:
    """How often the engine began and answered each request."""

    begun: Counter[str]
    answered: Counter[str]

    def __sub__(self, before: "RequestCounts") -> "RequestCounts":
        return RequestCounts(self.begun - before.begun, self.answered - before.answered)


@dataclass(frozen=True)
class SlotEngine:
    """A running `testing.fakes.engine`."""

    url: str

    def seen(self) -> RequestCounts:
        """The counts so far, by the custom id at the begin of each prompt."""
        with urllib.request.urlopen(f"{self.url}/_seen", timeout=60) as answer:
            found = json.load(answer)
        return RequestCounts(*(self._by_name(found[key]) for key in ("count", "finished")))

    @staticmethod
    def _by_name(prompts: dict[str, int]) -> Counter[str]:
        """Counts by custom id, without other prompts such as the probes of a worker."""
        counted = Counter[str]()
        for prompt, times in prompts.items():
            if prompt.startswith("line-"):
                counted[prompt.partition(" ")[0]] += times
        return counted


@contextlib.contextmanager
def engine(slots: int) -> Iterator[SlotEngine]:
    """Run an engine that takes `SECONDS` for each request, at most `slots` at once."""
    flags = ["--port", str(processes.free_port()), "--slots", str(slots)]
    flags += ["--latency", str(FIRST_SECONDS), "--token-seconds", str(TOKEN_SECONDS)]
    command = [sys.executable, "-m", "testing.fakes.engine", *flags]
    quiet = ["/bin/sh", "-c", 'exec "$@" 2>/dev/null', "engine"]  # it logs an error for each killed caller
    with running([*quiet, *command]) as process:
        assert process.stdout
        if not (url := process.stdout.readline().strip()):
            raise SystemExit("the fake engine did not start")
        yield SlotEngine(url)


def client_of(base_url: str, key: str) -> OpenAI:
    """OpenAI's client, without retries, which would hide failures."""
    return OpenAI(base_url=base_url, api_key=key, timeout=600, max_retries=0)


def submit(client: OpenAI, content: Path, **extra: object) -> Batch:
    """Upload a file and create a batch of it."""
    with content.open("rb") as file:
        uploaded = client.files.create(file=file, purpose="batch")
    return client.batches.create(
        input_file_id=uploaded.id, endpoint=lines.CHAT, completion_window="24h", extra_body=extra or None
    )


def until_final(client: OpenAI, batch_id: str, seconds: float) -> Batch | None:
    """Wait for the end of the batch. Returns None if it has not ended within `seconds`."""
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        with contextlib.suppress(OSError):
            batch = client.batches.retrieve(batch_id)
            if batch.status in FINAL:
                return batch
        sleep(0.1)
    return None


def output(client: OpenAI, batch: Batch) -> Counter[str]:
    """How often each custom id has an answer in the output file."""
    if not batch.output_file_id:
        return Counter()
    return lines.answered([client.files.content(batch.output_file_id).read()])
