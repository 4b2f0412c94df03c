"""What `doctor` says of attached engines that are not vLLM: which flags they lack, and what protects synchronous requests."""

import json

import pytest

from app.cli.doctor import services
from app.cli.doctor.check import CheckStatus
from app.settings import Settings
from tests.cli.support import INFO, serving

OWN = "smollm2-135m-instruct"


def attached(settings: Settings, url: str) -> Settings:
    return settings.model_copy(update={"engine_url": url, "engine_model": OWN})


def other_engine_pages(owner: str, **pages: str) -> dict[str, str]:
    """What a running server of another kind answers, with a model of the catalogue."""
    models = json.dumps({"data": [{"id": OWN, "owned_by": owner, "max_model_len": 8192}]})
    return {"/health": "", "/v1/models": models, **pages}


SGLANG_PAGE = "".join(
    f'# TYPE {name} gauge\n{name}{{model_name="m",tp_rank="0"}} 0.0\n'
    for name in ("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage")
)
SGLANG_INFO = {
    "enable_metrics": True,
    "enable_priority_scheduling": False,
    "schedule_low_priority_values_first": False,
    "default_priority_value": None,
    "priority_scheduling_preemption_threshold": 10,
    "decode_log_interval": 40,
    "version": "0.5.23",
}


@pytest.mark.parametrize(
    ("told", "status", "fix"),
    [
        ({}, CheckStatus.FAIL, "Start it with --enable-priority-scheduling --schedule-low-priority-values-first "
         "--default-priority-value 0. Start it with --decode-log-interval 4."),
        ({"enable_priority_scheduling": True, "decode_log_interval": 1}, CheckStatus.FAIL,
         "Start it with --default-priority-value 0."),
        ({"enable_priority_scheduling": True, "default_priority_value": 0}, CheckStatus.WARN,
         "Start it with --decode-log-interval 4."),
        ({"enable_priority_scheduling": True, "default_priority_value": 0, "decode_log_interval": 4,
          "priority_scheduling_preemption_threshold": 50}, CheckStatus.WARN,
         "Start it with --priority-scheduling-preemption-threshold 10."),
        ({"enable_priority_scheduling": True, "default_priority_value": 0, "decode_log_interval": 4}, CheckStatus.OK, ""),
    ],
)  # fmt: skip
def test_the_flags_that_sglang_lacks_are_named(
    settings: Settings, told: dict[str, object], status: CheckStatus, fix: str
) -> None:
    pages = other_engine_pages("sglang", **{INFO: json.dumps(SGLANG_INFO | told), "/metrics": SGLANG_PAGE})
    with serving(pages) as url:
        check = services.engine(attached(settings, url))
    assert (check.status, check.fix) == (status, fix)


def test_sglang_without_metrics_is_told_the_flag(settings: Settings) -> None:
    info = SGLANG_INFO | {"enable_metrics": False}
    with serving(other_engine_pages("sglang", **{INFO: json.dumps(info)})) as url:
        check = services.engine(attached(settings, url))
    assert check.status is CheckStatus.FAIL
    assert "--enable-metrics" in check.fix


def test_trtllm_serve_without_its_metrics_page_is_told_the_options(settings: Settings) -> None:
    with serving(other_engine_pages("tensorrt_llm", **{"/version": '{"version": "1.2.1"}'})) as url:
        check = services.engine(attached(settings, url))
    assert check.status is CheckStatus.WARN
    assert "return_perf_metrics: true" in check.fix


def test_any_other_server_is_said_to_be_protected_by_cap_and_latency_only(settings: Settings) -> None:
    with serving(other_engine_pages("acme")) as url:
        check = services.engine(attached(settings, url))
    assert check.status is CheckStatus.OK
    assert "only a cap and latency protect synchronous requests" in check.detail
