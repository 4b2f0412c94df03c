"""Per-step statistics from the engine's server process to the worker, as datagrams on a Unix socket.

vLLM loads `StepLogger` by its entry point where this package is installed. It does nothing unless HARVEST_SOCKET names a
socket. Each step is then one small datagram, sent without waiting; losing one does no harm. So a worker sees every step of a
managed engine instead of every scrape, with any scheduler.
"""

import os
import socket
from time import monotonic
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from .step_stats_receiver import VARIABLE, StepStats


class StepLogger(StatLoggerBase):
    """A stat-logger plug-in of vLLM. It never blocks and never raises, because telemetry must not affect the engine."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self._to = os.environ.get(VARIABLE, "")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self._to else None
        if self._socket is not None:
            self._socket.setblocking(False)

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        """Send one step. A step without scheduler statistics is skipped."""
        if self._socket is None or scheduler_stats is None:
            return
        try:
            self._socket.sendto(self._step(scheduler_stats, iteration_stats, engine_idx).pack(), self._to)
        except Exception:
            return  # no receiver, a full buffer, or other fields in vLLM's statistics

    def log_engine_initialized(self) -> None:
        """Required by vLLM; does nothing."""

    def _step(self, scheduler: Any, iteration: Any, engine: int) -> StepStats:
        return StepStats(
            at=monotonic(),
            engine=engine,
            running=scheduler.num_running_reqs,
            waiting=scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs,
            kv_usage=scheduler.kv_cache_usage,
            prompt_tokens=iteration.num_prompt_tokens if iteration else 0,
            generation_tokens=iteration.num_generation_tokens if iteration else 0,
            longest_gap=max(iteration.inter_token_latencies_iter, default=0.0) if iteration else 0.0,
        )
