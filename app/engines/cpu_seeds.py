"""Fixes vLLM 0.32 on CPU, where one request with a `seed` can crash the engine.

When a prompt is prefilled in several steps, vLLM discards the early samples and rewinds the request's random generator by
its offset. A CPU generator has no offset, which raises RuntimeError and ends the engine with all its requests. The first
sample that counts comes after the prefill, so resetting the generator to its seed has the same effect.

vLLM's workers load this module through `--worker-extension-cls` (see `models.toml`). Nothing else imports it.
"""

from typing import Any

from vllm.v1.worker.cpu_model_runner import CPUModelRunner

_runner_class: Any = CPUModelRunner
_bookkeeping_sync = _runner_class._bookkeeping_sync


class Extension:
    """Adds nothing to the worker. Naming it in the option loads this module."""


def _with_seeds_reset(runner: Any, *args: Any, **kwargs: Any) -> Any:
    """Run vLLM's bookkeeping of one step without the generators that it would fail on."""
    generators = runner.input_batch.generators
    discarded = runner.discard_request_mask.np[: runner.input_batch.num_reqs].nonzero()[0].tolist()
    hidden = {row: generators.pop(row) for row in discarded if row in generators}
    try:
        return _bookkeeping_sync(runner, *args, **kwargs)
    finally:
        for row, generator in hidden.items():
            generators[row] = generator.manual_seed(generator.initial_seed())


_runner_class._bookkeeping_sync = _with_seeds_reset
