"""The flags that a running engine lacks, by its own account, so that it is shared well. Pure.

Each lack is a code, what it means, and the flags to add. vLLM's are in `adoption`, which reads its answer.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from app.engines.dialects import SGLANG, SGLANG_STEP, TRTLLM, Dialect

NO_PRIORITY = "no_priority_scheduling"
NO_METRICS = "no_metrics"
NO_PREEMPTION = "no_preemption"
SLOW_GAUGES = "slow_gauges"

LONGEST_INTERVAL = 4  # steps between two updates of SGLang's gauges; 40 by default, a second and more

Lack = tuple[str, str, str]


def lacks(dialect: Dialect, info: object, page: object) -> tuple[Lack, ...]:
    """Code, message and remedy of each lack, the worst first. `info`: the answer to `/server_info`; `page`: the metrics page;
    None: there is none.
    """
    if dialect is SGLANG and isinstance(info, Mapping):
        return tuple(_sglang(info))
    if dialect is TRTLLM and page is None:
        return (_TRTLLM_WITHOUT_METRICS,)
    return ()


_TRTLLM_WITHOUT_METRICS = (
    NO_METRICS,
    "The engine has no /prometheus/metrics: batch work is limited by a fixed cap and by latency only.",
    "Start it with --extra_llm_api_options and a YAML file with `return_perf_metrics: true` and "
    "`enable_iter_perf_stats: true`.",
)


def _sglang(info: Mapping[str, Any]) -> Iterator[Lack]:
    if info.get("enable_metrics") is False:
        yield NO_METRICS, "The engine has no /metrics: no batch work is sent.", "Start it with --enable-metrics."
    if info.get("enable_priority_scheduling") is False:
        message = "The engine does not schedule by priority: batch requests in its queue delay synchronous ones."
        flags = "--enable-priority-scheduling --schedule-low-priority-values-first --default-priority-value 0"
        yield NO_PRIORITY, message, f"Start it with {flags}."
    elif info.get("enable_priority_scheduling") is True:
        yield from _sglang_priorities(info)
    interval = info.get("decode_log_interval")
    if isinstance(interval, int) and interval > LONGEST_INTERVAL:
        message = f"The engine's gauges are updated every {interval} steps, so its load is seen late."
        yield SLOW_GAUGES, message, f"Start it with --decode-log-interval {LONGEST_INTERVAL}."


def _sglang_priorities(info: Mapping[str, Any]) -> Iterator[Lack]:
    if not isinstance(info.get("default_priority_value"), int):
        message = "A request without a priority gets the worst one, so batch requests cannot be placed behind it."
        yield NO_PRIORITY, message, "Start it with --default-priority-value 0."
    threshold = info.get("priority_scheduling_preemption_threshold")
    if info.get("disable_priority_preemption") is True:
        message = "Batch requests that run do not make room for synchronous ones."
        yield NO_PREEMPTION, message, "Start it without --disable-priority-preemption."
    elif isinstance(threshold, int) and threshold >= SGLANG_STEP:
        message = f"Batch requests that run make room only beyond a difference in priority of {threshold}; ours is {SGLANG_STEP}."
        yield NO_PREEMPTION, message, "Start it with --priority-scheduling-preemption-threshold 10."
