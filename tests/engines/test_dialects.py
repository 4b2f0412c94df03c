"""How each kind of engine is recognised and spoken to."""

from typing import Any

import orjson
import pytest

from app.engines import dialects
from app.engines.continuation import Continuation
from app.engines.dialects import DIALECTS, OPENAI, SGLANG, TRTLLM, VLLM, Dialect
from app.engines.requests import CHAT, COMPLETIONS, EngineRequest

INFO = {
    "enable_priority_scheduling": True,
    "schedule_low_priority_values_first": True,
    "default_priority_value": 0,
}


@pytest.mark.parametrize(
    ("owner", "dialect"), [("vllm", VLLM), ("sglang", SGLANG), ("tensorrt_llm", TRTLLM), ("acme", None), (None, None)]
)
def test_the_owner_of_a_model_names_the_engine(owner: str | None, dialect: Dialect | None) -> None:
    assert dialects.by_owner({"data": [{"id": "m", "owned_by": owner}]}) is dialect


def test_an_unknown_owner_is_recognised_by_its_page() -> None:
    assert dialects.by_page("# TYPE vllm:num_requests_running gauge\n") is VLLM
    assert dialects.by_page("# TYPE sglang:token_usage gauge\n") is SGLANG
    assert dialects.by_page("# TYPE up gauge\n") is OPENAI
    assert dialects.by_page(None) is OPENAI


@pytest.mark.parametrize(
    ("changes", "priority"),
    [
        ({}, 20),
        ({"schedule_low_priority_values_first": False}, -20),
        ({"default_priority_value": 5}, 25),
        ({"default_priority_value": None}, None),
        ({"enable_priority_scheduling": False}, None),
    ],
)
def test_sglangs_batch_priority_is_on_the_worse_side_of_the_default(
    changes: dict[str, Any], priority: int | None
) -> None:
    assert dialects.terms_of(SGLANG, INFO | changes).batch_priority == priority


def test_sglang_that_says_nothing_gets_no_priority_because_its_sign_is_unknown() -> None:
    assert dialects.terms_of(SGLANG, None).batch_priority is None


def test_the_difference_makes_sglang_preempt_running_batch_requests() -> None:
    assert dialects.SGLANG_STEP > 10


def test_slots_are_read_where_the_engine_tells_them() -> None:
    ranks = [{"effective_max_running_requests_per_dp": 48}] * 2
    assert dialects.slots_of(SGLANG, {"max_running_requests": None, "internal_states": ranks}) == 96
    assert dialects.slots_of(SGLANG, {"max_running_requests": 64}) == 64
    assert dialects.slots_of(VLLM, {"vllm_config": {"scheduler_config": {"max_num_seqs": 32}}}) == 32
    assert dialects.slots_of(TRTLLM, {}, 'trtllm_max_num_active_requests{model_name="m"} 2048.0\n') == 2048
    assert [dialects.slots_of(dialect, None) for dialect in DIALECTS.values()] == [None] * 4


def first_call(dialect: Dialect, *, prompt_ids: list[int]) -> tuple[str, dict[str, Any]]:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "model": "m"}
    transcript = Continuation(EngineRequest(CHAT, orjson.dumps(body)), 100, dialect, prompt_ids=prompt_ids)
    call = transcript.call()
    return call.route, orjson.loads(call.body)


def test_a_chat_that_may_yield_is_a_completion_of_its_tokens_at_sglang() -> None:
    route, body = first_call(SGLANG, prompt_ids=[1, 2])
    assert (route, body["prompt"], body["max_tokens"], body["return_token_ids"]) == (COMPLETIONS, [1, 2], 9, True)
    assert "stream_interval" not in body


def test_without_its_tokens_it_stays_a_chat_that_streams_no_ids() -> None:
    route, body = first_call(SGLANG, prompt_ids=[])
    assert (route, "return_token_ids" in body) == (CHAT, False)
