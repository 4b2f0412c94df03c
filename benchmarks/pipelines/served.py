"""An installation with a fake engine of fixed delays for each model: API, steward, and a worker for each engine."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import OpenAI

from app.settings import Settings
from benchmarks.gateway.installation import timed_engine
from benchmarks.harness import Testbed, api, part, until_engines_ready
from benchmarks.openai_batch.slot_engine import client_of

_MODEL = """
[models.{name}]
task = "text-generation"
context_window = 8192
default_max_tokens = 16
shape = "openai"
capabilities = ["async_queue"]
"""


@dataclass(frozen=True)
class TimedModel:
    """A model and its only engine, which takes `seconds` for each request and runs at most `slots` at once. `cache_blocks`: of
    its prefix cache, 16 tokens each.
    """

    name: str
    slots: int
    seconds: float
    cache_blocks: int = 100_000


@dataclass(frozen=True)
class Served:
    """A running installation, and a client of its API."""

    settings: Settings
    client: OpenAI


def with_models(settings: Settings, folder: Path, names: Sequence[str]) -> Settings:
    """The settings with a catalogue of these models."""
    file = folder / "models.toml"
    file.write_text("".join(_MODEL.format(name=name) for name in names))
    return settings.model_copy(update={"models_file": file})


@contextlib.contextmanager
def served(testbed: Testbed, models: Sequence[TimedModel], **changes: Any) -> Iterator[Served]:
    """Run all processes until the block ends. The engines are full of batch work, as nobody else uses them."""
    bare = testbed.settings(
        testbed.database(), headroom="static", sync_reserve_slots=0, worker_metrics_port=0, **changes
    )
    settings = with_models(bare, testbed.folder, [model.name for model in models])
    with contextlib.ExitStack() as stack:
        for model in models:
            url = stack.enter_context(_engine(model))
            own = {
                "engine_url": url,
                "engine_name": f"engine-{model.name}",
                "engine_model": model.name,
                "engine_slots": model.slots,
                "batch_max_in_flight": model.slots,
                "data_dir": testbed.folder / f"worker-{model.name}",
            }
            stack.enter_context(part(settings.model_copy(update=own), "workers.gpu"))
        stack.enter_context(part(settings, "workers.steward"))
        _, key = stack.enter_context(api(settings))
        until_engines_ready(settings.database_url, len(models))
        yield Served(settings, client_of(f"http://{settings.host}:{settings.port}/v1", key))


def _engine(model: TimedModel) -> contextlib.AbstractContextManager[str]:
    return timed_engine(
        model=model.name, slots=model.slots, latency=model.seconds, token_seconds=0, cache_blocks=model.cache_blocks
    )
