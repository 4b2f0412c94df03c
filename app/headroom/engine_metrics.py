"""The gauges of an engine's `GET /metrics`, parsed from Prometheus text without a metric tree."""

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
_OPTIONAL = {
    "vllm:iteration_tokens_total_count": "steps",
    "vllm:iteration_tokens_total_sum": "step_tokens",
}
_FIELDS = _NAMES | _OPTIONAL
_LINE = re.compile(rf"^({'|'.join(_FIELDS)})(?:\{{.*\}})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*\r?$", re.MULTILINE)
_CACHE = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
_SIZE = re.compile(r'(block_size|num_gpu_blocks)="(\d+)"')


class TelemetryError(ValueError):
    """The text lacks a gauge that the gate needs, or has a value that is not a finite number."""


@dataclass(frozen=True, slots=True)
class EngineGauges:
    """One scrape. Requests and tokens are sums over the engines behind one URL; `kv_usage` (0..1) is that of the fullest.

    The gauges do not distinguish batch from synchronous requests. Counters restart with the engine. `steps`, and the
    `step_tokens` computed in them, stay 0 if the engine does not count them. `kv_capacity` is in tokens; 0: unknown.
    `engines`: how many run steps in parallel.
    """

    running: int
    waiting: int
    kv_usage: float
    generation_tokens: int
    prompt_tokens: int
    preemptions: int
    steps: int = 0
    step_tokens: int = 0
    kv_capacity: int = 0
    engines: int = 1


def parse(text: str) -> EngineGauges:
    """The gauges of a vLLM metrics page. Raises TelemetryError."""
    found: dict[str, list[float]] = {}
    for match in _LINE.finditer(text):
        found.setdefault(_FIELDS[match[1]], []).append(_number(match[1], match[2]))
    missing = [name for name, field in _NAMES.items() if field not in found]
    if missing:
        raise TelemetryError(_lacks(text, missing))
    return EngineGauges(
        running=int(sum(found["running"])),
        waiting=int(sum(found["waiting"])),
        kv_usage=max(found["kv_usage"]),
        generation_tokens=int(sum(found["generation_tokens"])),
        prompt_tokens=int(sum(found["prompt_tokens"])),
        preemptions=int(sum(found["preemptions"])),
        steps=int(sum(found.get("steps", ()))),
        step_tokens=int(sum(found.get("step_tokens", ()))),
        kv_capacity=_kv_capacity(text),
        engines=len(found["running"]),
    )


def _lacks(text: str, missing: list[str]) -> str:
    """The error message for gauges that a page does not have."""
    if "# TYPE vllm:" not in text and len(missing) == len(_NAMES):
        return "/metrics has no `# TYPE vllm:…` line, so it is not the page of a vLLM engine"
    announced = [
        name for name in missing if f"# TYPE {name} " in text or f"# TYPE {name.removesuffix('_total')} " in text
    ]
    lines = [f"{name} (its `# TYPE` line is there, a value is not)" if name in announced else name for name in missing]
    return f"/metrics has no {', '.join(lines)}"


def _kv_capacity(text: str) -> int:
    """Tokens of KV cache, from the labels of `vllm:cache_config_info`."""
    tokens = 0
    for labels in _CACHE.findall(text):
        sizes = dict(_SIZE.findall(labels))
        tokens += int(sizes.get("block_size", 0)) * int(sizes.get("num_gpu_blocks", 0))
    return tokens


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise TelemetryError(f"/metrics has {name} as {text!r}, which is no number") from error
    if not math.isfinite(value) or value < 0:
        raise TelemetryError(f"/metrics has {name} as {text}, which must be finite and not negative")
    return value
