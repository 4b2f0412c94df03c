"""Reading vLLM's metrics page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.headroom.engine_metrics import EngineGauges, TelemetryError, parse

PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/a}b{ c"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:num_preemptions_total{engine="0",model_name="m"} 1.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.79e+09
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.0e+03 1700000000000
vllm:generation_tokens_total{engine="0",model_name="m"} 77.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 1.0
"""


def test_a_page_of_vllm_is_read_and_similar_names_are_not_mistaken() -> None:
    assert parse(PAGE) == EngineGauges(3, 2, 0.25, 77, 1000, 1, engines=1)


def test_the_older_name_of_a_gauge_is_known_and_not_asked_for() -> None:
    older = PAGE.replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
    assert parse(older) == parse(PAGE)
    with pytest.raises(TelemetryError, match=r"has no vllm:kv_cache_usage_perc$"):
        parse(PAGE.replace("vllm:kv_cache_usage_perc", "x"))


@pytest.mark.parametrize(("awake", "asleep"), [("1.0", False), ("0.0", True), ("0", True)])
def test_a_sleeping_engine_is_recognised(awake: str, asleep: bool) -> None:
    states = [("weights_offloaded", "0.0"), ("awake", awake), ("discard_all", "0.0")]
    lines = [
        f'vllm:engine_sleep_state{{engine="0",model_name="m",sleep_state="{name}"}} {value}' for name, value in states
    ]
    assert parse(PAGE + "\n".join(lines) + "\n").asleep is asleep
    assert not parse(PAGE).asleep


def test_engines_behind_one_url_are_summed_and_the_fullest_cache_counts() -> None:
    second = "\n".join(line.replace('engine="0"', 'engine="1"') for line in PAGE.splitlines() if line[0] != "#")
    both = parse(PAGE + second.replace(" 0.25", " 0.5"))
    assert (both.running, both.waiting, both.kv_usage, both.generation_tokens, both.engines) == (6, 4, 0.5, 154, 2)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "three", ""])
def test_a_value_that_is_no_finite_number_is_an_error(value: str) -> None:
    with pytest.raises(TelemetryError):
        parse(PAGE.replace(" 0.25", f" {value}"))


def test_a_missing_gauge_is_named() -> None:
    with pytest.raises(TelemetryError, match="vllm:num_requests_waiting"):
        parse("\n".join(line for line in PAGE.splitlines() if "waiting{" not in line))


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("vllm:kv_cache_usage_perc{", "/metrics has no vllm:kv_cache_usage_perc"),
        ("vllm:num_requests_running{", "/metrics has no vllm:num_requests_running (its `# TYPE` line is there, a value is not)"),
        ("vllm:", "/metrics has no `# TYPE vllm:…` line, so it is not the page of a vLLM engine"),
    ],
)  # fmt: skip
def test_what_a_page_lacks_is_said_exactly(gone: str, said: str) -> None:
    with pytest.raises(TelemetryError) as error:
        parse("\n".join(line for line in PAGE.splitlines() if gone not in line))
    assert str(error.value) == said


@given(st.text())
def test_any_other_text_is_an_error_and_nothing_worse(text: str) -> None:
    with pytest.raises(TelemetryError):
        parse(text)
