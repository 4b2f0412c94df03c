"""What an engine's `GET /metrics` says, read from Prometheus text without building a metric tree."""

import math
import re
from dataclasses import dataclass

_NAMES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_usage",
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:num_preemptions_total": "preemptions",
}
_LINE = re.compile(rf"^({'|'.join(_NAMES)})(?:\{{.*\}})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*\r?$", re.MULTILINE)


class TelemetryError(ValueError):
    """The text lacks a gauge that the gate needs, or holds a value that is no finite number."""


@dataclass(frozen=True, slots=True)
class EngineGauges:
    """One scrape. Requests and tokens are summed over the engines behind one URL; `kv_usage` (0..1) is the fullest's.

    The gauges do not tell batch from synchronous requests. Token counters start again when the engine does.
    """

    running: int
    waiting: int
    kv_usage: float
    generation_tokens: int
    prompt_tokens: int
    preemptions: int


def parse(text: str) -> EngineGauges:
    """The gauges of a vLLM metrics page. Raises TelemetryError."""
    found: dict[str, list[float]] = {}
    for match in _LINE.finditer(text):
        found.setdefault(_NAMES[match[1]], []).append(_number(match[1], match[2]))
    missing = [name for name, field in _NAMES.items() if field not in found]
    if missing:
        raise TelemetryError(f"no {', '.join(missing)}")
    return EngineGauges(
        running=int(sum(found["running"])),
        waiting=int(sum(found["waiting"])),
        kv_usage=max(found["kv_usage"]),
        generation_tokens=int(sum(found["generation_tokens"])),
        prompt_tokens=int(sum(found["prompt_tokens"])),
        preemptions=int(sum(found["preemptions"])),
    )


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise TelemetryError(f"{name} is {text!r}") from error
    if not math.isfinite(value) or value < 0:
        raise TelemetryError(f"{name} is {text}")
    return value
