"""Mends vLLM 0.32 on CPU, where one request with a `seed` could kill the engine.

A prompt that is prefilled in several steps has its early samples thrown away, and vLLM turns the request's random
generator back by its offset. A CPU generator has no offset: RuntimeError, and the engine dies with all that it holds.
Prefill is over before the first sample counts, so turning back to the seed itself is the same, and works.

Loaded by vLLM's workers through `--worker-extension-cls`, see `models.toml`; nothing else imports it.
"""

from typing import Any

from vllm.v1.worker.cpu_model_runner import CPUModelRunner

_runner_class: Any = CPUModelRunner
_bookkeeping_sync = _runner_class._bookkeeping_sync


class Extension:
    """Adds nothing to the worker; to name it is to load this module."""


def _with_seeds_turned_back(runner: Any, *args: Any, **kwargs: Any) -> Any:
    """vLLM's bookkeeping of one step, without sight of the generators that it would break on."""
    generators = runner.input_batch.generators
    discarded = runner.discard_request_mask.np[: runner.input_batch.num_reqs].nonzero()[0].tolist()
    hidden = {row: generators.pop(row) for row in discarded if row in generators}
    try:
        return _bookkeeping_sync(runner, *args, **kwargs)
    finally:
        for row, generator in hidden.items():
            generators[row] = generator.manual_seed(generator.initial_seed())


_runner_class._bookkeeping_sync = _with_seeds_turned_back
