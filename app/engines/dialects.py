"""The engines that can be attached, and how each is spoken to: one table. Pure.

    vLLM           run; its metrics page in the tests was recorded from the real engine (0.32.0)
    SGLang         read in the source of 0.5.23, not run
    TensorRT-LLM   trtllm-serve; read in the source of commits 050f80d (metrics) and 0076e93 (requests), not run
    OpenAI         any other server with OpenAI's routes: only what OpenAI documents is used

A request is aborted in the same way everywhere: its connection is closed. trtllm-serve looks for that once a second.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workers.engine.request_class import BATCH_PRIORITY, SYNC_PRIORITY

DialectName = Literal["vllm", "sglang", "trtllm", "openai"]
LoadSource = Literal["needed", "optional", "none"]

SGLANG_STEP = 20  # SGLang preempts a running request only if priorities differ by more than a threshold, 10 by default


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """A page of Prometheus text with the engine's load.

    `gauges` and `counters`: the metric's name, or its name and the value of its label `mode`, by the field of `EngineGauges`.
    A gauge must be there, by one of its names; a counter that has not counted yet may be missing. `series` is the label whose
    values are engines that run steps in parallel; of several series with one value the largest counts, because they describe one
    engine. Without `series` every line is an engine. `classes`: the label that splits the request gauges by priority, with an
    empty value for the total. `live`: whether counters move while a request runs, and not only at its end.
    """

    path: str
    prefix: str
    gauges: Mapping[str, str]
    counters: Mapping[str | tuple[str, str], str]
    series: str = ""
    classes: str = ""
    live: bool = True


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of engine.

    `owner`: what `/v1/models` names as the owner of a model. `health`: the path that answers 200 while the engine can serve.
    `metrics`: its page, None if there is none, and `load` whether the gate needs it. `counts_steps`: the page counts steps, so
    step times come from there and not from our own streams. `sync_priority`: the priority of a synchronous request of ours;
    None: the engine's default. `salts`: it takes `cache_salt`. `rest_of_window`: it cuts a limit of answer tokens to the room
    that the prompt leaves. `resume`: how an answer can go on from its tokens after a yield: `stream` if a stream brings the
    token ids, `tokenize` if only that of a text completion does, so that a chat's prompt is tokenized first; None: it starts
    again. `text_field`: of the answer to `/detokenize`. `interval`: it takes `stream_interval`.
    """

    name: DialectName
    title: str
    owner: str
    health: str
    metrics: MetricsPage | None
    load: LoadSource
    counts_steps: bool = False
    sync_priority: int | None = None
    salts: bool = False
    rest_of_window: bool = False
    resume: Literal["stream", "tokenize"] | None = None
    text_field: str = ""
    interval: bool = False


VLLM = Dialect(
    name="vllm",
    title="vLLM",
    owner="vllm",
    health="/health",
    metrics=MetricsPage(
        path="/metrics",
        prefix="vllm:",
        gauges={
            "vllm:num_requests_running": "running",
            "vllm:num_requests_waiting": "waiting",
            "vllm:kv_cache_usage_perc": "kv_usage",
            "vllm:gpu_cache_usage_perc": "kv_usage",  # its name in older versions
            "vllm:generation_tokens_total": "generation_tokens",
            "vllm:prompt_tokens_total": "prompt_tokens",
            "vllm:num_preemptions_total": "preemptions",
        },
        counters={"vllm:iteration_tokens_total_count": "steps", "vllm:iteration_tokens_total_sum": "step_tokens"},
    ),
    load="needed",
    counts_steps=True,
    sync_priority=SYNC_PRIORITY,
    salts=True,
    rest_of_window=True,
    resume="stream",
    text_field="prompt",
    interval=True,
)

SGLANG = Dialect(
    name="sglang",
    title="SGLang",
    owner="sglang",
    health="/v1/models",  # its /health computes a token, takes a second, and waits for a long step
    metrics=MetricsPage(
        path="/metrics",
        prefix="sglang:",
        gauges={
            "sglang:num_running_reqs": "running",
            "sglang:num_queue_reqs": "waiting",
            "sglang:token_usage": "kv_usage",
        },
        counters={
            ("sglang:realtime_tokens_total", "decode"): "generation_tokens",
            ("sglang:realtime_tokens_total", "prefill_compute"): "prompt_tokens",
            "sglang:num_retracted_requests_total": "preemptions",
            "sglang:max_total_num_tokens": "kv_capacity",
        },
        series="dp_rank",
        classes="priority",
    ),
    load="needed",
    salts=True,
    resume="tokenize",
    text_field="text",
)

TRTLLM = Dialect(
    name="trtllm",
    title="TensorRT-LLM",
    owner="tensorrt_llm",
    health="/health",
    metrics=MetricsPage(
        path="/prometheus/metrics",  # its /metrics is JSON
        prefix="trtllm_",
        gauges={
            "trtllm_num_requests_running": "running",
            "trtllm_num_requests_waiting": "waiting",
            "trtllm_kv_cache_utilization": "kv_usage",
        },
        counters={
            "trtllm_generation_tokens_total": "generation_tokens",
            "trtllm_prompt_tokens_total": "prompt_tokens",
        },
        live=False,
    ),
    load="optional",
)

OPENAI = Dialect(
    name="openai",
    title="an OpenAI server",
    owner="",
    health="/v1/models",
    metrics=None,
    load="none",
)

_TRTLLM_SLOTS = re.compile(r"^trtllm_max_num_active_requests(?:\{.*\})?[ \t]+([0-9][0-9.e+]*)", re.MULTILINE)

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (VLLM, SGLANG, TRTLLM, OPENAI)}


@dataclass(frozen=True, slots=True)
class Terms:
    """How one engine is spoken to: its dialect, and the priority of our batch requests. None: requests carry no priority."""

    dialect: Dialect = VLLM
    batch_priority: int | None = BATCH_PRIORITY


VLLM_TERMS = Terms()


def by_owner(models: object) -> Dialect | None:
    """The dialect of a server, from the owner of a model in its answer to `/v1/models`; None if that says nothing."""
    data = models.get("data") if isinstance(models, Mapping) else None
    owners = (
        {entry.get("owned_by") for entry in data if isinstance(entry, Mapping)} if isinstance(data, list) else set()
    )
    return next((dialect for dialect in DIALECTS.values() if dialect.owner and dialect.owner in owners), None)


def by_page(page: object) -> Dialect:
    """The dialect of a server, from the text of its `/metrics`. An unknown page is that of any OpenAI server."""
    text = page if isinstance(page, str) else ""
    known = (d for d in DIALECTS.values() if d.metrics is not None and f"# TYPE {d.metrics.prefix}" in text)
    return next(known, OPENAI)


def terms_of(dialect: Dialect, info: object) -> Terms:
    """How to speak to a server. `info`: its answer to `/server_info`, None without one.

    SGLang serves higher numbers first unless it is told otherwise, and gives a request without a priority the worst one unless
    there is a default. So we send a priority only if it has a default, on the worse side of it.
    """
    if dialect is VLLM:
        return VLLM_TERMS
    facts: Mapping[str, Any] = info if dialect is SGLANG and isinstance(info, Mapping) else {}
    default = facts.get("default_priority_value")
    if facts.get("enable_priority_scheduling") is not True or not isinstance(default, int):
        return Terms(dialect, None)
    sign = 1 if facts.get("schedule_low_priority_values_first") is True else -1
    return Terms(dialect, default + sign * SGLANG_STEP)


def slots_of(dialect: Dialect, info: object, page: object = None) -> int | None:
    """How many requests the engine runs at once, by its `/server_info` or metrics page; None if it does not say.

    vLLM answers only in development mode. SGLang reports the number of each data-parallel rank.
    """
    if dialect is TRTLLM and isinstance(page, str):
        found = _TRTLLM_SLOTS.search(page)
        return _count(int(float(found[1]))) if found else None
    if not isinstance(info, Mapping):
        return None
    if dialect is VLLM:
        config = info.get("vllm_config")
        scheduler = config.get("scheduler_config") if isinstance(config, Mapping) else None
        return _count(scheduler.get("max_num_seqs")) if isinstance(scheduler, Mapping) else None
    if dialect is not SGLANG:
        return None
    ranks = info.get("internal_states")
    each = [
        _count(rank.get("effective_max_running_requests_per_dp")) for rank in ranks or () if isinstance(rank, Mapping)
    ]
    return sum(n for n in each if n) or _count(info.get("max_running_requests"))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
