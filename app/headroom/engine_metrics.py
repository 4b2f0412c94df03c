"""The gauges of an engine's metrics page, parsed from Prometheus text without a metric tree. Pure.

The names of the metrics are those of the engine's dialect (`app/engines/dialects.py`).
"""

import math
import re
from dataclasses import dataclass

from app.engines.dialects import VLLM, MetricsPage

_CACHE = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
_NOT = re.compile(r"^vllm:engine_sleep_state\{(.*)\}[ \t]+0(?:\.0*)?[ \t]*\r?$", re.MULTILINE)
_AWAKE = 'sleep_state="awake"'
_SIZE = re.compile(r'(block_size|num_gpu_blocks)="(\d+)"')


class TelemetryError(ValueError):
    """The text lacks a gauge that the gate needs, or has a value that is not a finite number."""


@dataclass(frozen=True, slots=True)
class EngineGauges:
    """One scrape. Requests and tokens are sums over the engines behind one URL; `kv_usage` (0..1) is that of the fullest.

    Counters restart with the engine. `steps`, and the `step_tokens` computed in them, stay 0 if the engine does not count
    them. `kv_capacity` is in tokens; 0: unknown. `engines`: how many run steps in parallel. `sync`: running and waiting
    requests without ours, if the engine distinguishes them by priority; None: the gauges do not distinguish them. `asleep`:
    somebody has sent an engine to sleep; it computes nothing until it is woken.
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
    asleep: bool = False
    sync: tuple[int, int] | None = None


_Series = dict[str, list[float]]  # the values of one field, by the engine that has them
_Compiled = tuple[dict[tuple[str, str], str], re.Pattern[str]]
_COMPILED: dict[str, _Compiled] = {}  # by the prefix of a page

_PAGE = VLLM.metrics
assert _PAGE is not None


def parse(text: str, page: MetricsPage = _PAGE, batch_priority: int | None = None) -> EngineGauges:
    """The gauges of a metrics page. `batch_priority`: that of our requests, None if they carry none. Raises TelemetryError."""
    found, classes = _read(text, page, batch_priority)
    # By field, since a gauge may have had another name; the newest one is the first.
    missing = [*{field: name for name, field in reversed([*page.gauges.items()]) if field not in found}.values()]
    if missing:
        raise TelemetryError(_lacks(text, missing, page))

    def total(field: str) -> int:
        return int(sum(max(values) if page.series else sum(values) for values in found.get(field, {}).values()))

    running = found["running"]
    return EngineGauges(
        running=total("running"),
        waiting=total("waiting"),
        kv_usage=max(max(values) for values in found["kv_usage"].values()),
        generation_tokens=total("generation_tokens"),
        prompt_tokens=total("prompt_tokens"),
        preemptions=total("preemptions"),
        steps=total("steps"),
        step_tokens=total("step_tokens"),
        kv_capacity=total("kv_capacity") or _kv_capacity(text),
        engines=len(running) if page.series else len(running[""]),
        sync=(classes.get("running", 0), classes.get("waiting", 0)) if classes is not None else None,
        asleep=any(_AWAKE in state[1] for state in _NOT.finditer(text)),
    )


def _read(text: str, page: MetricsPage, batch_priority: int | None) -> tuple[dict[str, _Series], dict[str, int] | None]:
    """The values by field and series, and the requests of other priorities than ours; None if there are no classes."""
    fields, line = _compiled(page)
    found: dict[str, _Series] = {}
    classed: dict[tuple[str, str, str], float] = {}  # by field, series and priority
    for name, labels, number in line.findall(text):
        field = fields.get((name, _label(labels, "mode"))) or fields.get((name, ""))
        if field is None:
            continue
        value = _number(name, number)
        series = _label(labels, page.series) if page.series else ""
        if page.classes and (priority := _label(labels, page.classes)):
            key = field, series, priority
            classed[key] = max(value, classed.get(key, 0.0))
        else:
            found.setdefault(field, {}).setdefault(series, []).append(value)
    if batch_priority is None or not classed:
        return found, None
    others: dict[str, int] = {}
    for (field, _, priority), value in classed.items():
        if priority != str(batch_priority):
            others[field] = others.get(field, 0) + int(value)
    return found, others


def _compiled(page: MetricsPage) -> _Compiled:
    """The field of each name and mode, and the expression that finds lines of these names."""
    known = _COMPILED.get(page.prefix)
    if known is None:
        named = [*page.gauges.items(), *page.counters.items()]
        fields = {(name, "") if isinstance(name, str) else name: field for name, field in named}
        any_name = "|".join(re.escape(name) for name in dict.fromkeys(name for name, _ in fields))
        line = re.compile(rf"^({any_name})(?:\{{(.*)\}})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*\r?$", re.MULTILINE)
        known = _COMPILED[page.prefix] = fields, line
    return known


def _label(labels: str, name: str) -> str:
    """The value of a label, empty without it. Values with quotes in them are none that we look for."""
    found = re.search(rf'(?:^|,){name}="([^"]*)"', labels) if labels else None
    return found[1] if found else ""


def _lacks(text: str, missing: list[str], page: MetricsPage) -> str:
    """The error message for gauges that a page does not have."""
    if f"# TYPE {page.prefix}" not in text and len(missing) == len({*page.gauges.values()}):
        kind = "a vLLM engine" if page is VLLM.metrics else "this kind of engine"
        return f"{page.path} has no `# TYPE {page.prefix}…` line, so it is not the page of {kind}"
    announced = [
        name for name in missing if f"# TYPE {name} " in text or f"# TYPE {name.removesuffix('_total')} " in text
    ]
    lines = [f"{name} (its `# TYPE` line is there, a value is not)" if name in announced else name for name in missing]
    return f"{page.path} has no {', '.join(lines)}"


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
