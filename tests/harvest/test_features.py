"""Features of vLLM beside which the harvest must be right or refused: each on vLLM's own scheduler code."""

import random
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.config.lora import LoRAConfig
from vllm.lora.request import LoRARequest
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.engine.parallel_sampling import ParentRequest
from vllm.v1.outputs import DraftTokenIds

from testing.bare_scheduler import BATCH, SYNC, AsyncScheduler
from tests.harvest.support import BOTH, COMMANDS, Bench
from workers.engine import vllm_support
from workers.engine.scheduler import HarvestScheduler, SyncHarvestScheduler

pytestmark = pytest.mark.slow

both = pytest.mark.parametrize("cls", BOTH)
STRICT = replace(COMMANDS, itl_budget=0.0, itl_stretch=0.0, tolerance=0.0)  # no batch work beside synchronous requests


def lora(number: int) -> LoRARequest:
    return LoRARequest(f"adapter{number}", number, f"/adapter{number}")


def loras(bench: Bench) -> set[int]:
    return {r.lora_request.lora_int_id for r in bench.scheduler.running if r.lora_request}


# LoRA


@both
def test_a_synchronous_request_gets_the_lora_place_that_a_batch_request_holds(cls: Any) -> None:
    bench = Bench(cls, STRICT, lora_config=LoRAConfig(max_loras=1)).learnt()
    bench.add("b", 100, 100, BATCH, lora_request=lora(1))
    for _ in range(5):
        bench.step()
    bench.add("s0", 20, 10, SYNC, lora_request=lora(2))
    assert bench.steps_until("s0") == 0
    assert loras(bench) == {2}
    bench.finish()
    assert (bench.tokens["b"], bench.tokens["s0"]) == (100, 10)


@both
def test_the_running_requests_never_use_more_loras_than_a_step_has_room_for(cls: Any) -> None:
    bench, rng = Bench(cls, lora_config=LoRAConfig(max_loras=2), max_seqs=8).learnt(), random.Random(4)
    said = {}
    for step in range(240):
        if step % 4 == 0:
            said[f"b{step}"] = rng.randint(3, 40)
            bench.add(f"b{step}", 30, said[f"b{step}"], BATCH, lora_request=lora(1 + step // 4 % 5))
        if step % 9 == 0:
            said[f"s{step}"] = 4
            bench.add(f"s{step}", 30, 4, SYNC, lora_request=lora(1 + rng.randrange(5)))
        bench.step()
        assert len(loras(bench)) <= 2
        assert not bench.scheduler.report.tripped
    bench.finish()
    assert {rid: bench.tokens[rid] for rid in said} == said


# Structured output


@both
def test_a_synchronous_request_gets_a_slot_once_its_grammar_is_compiled(cls: Any) -> None:
    bench = Bench(cls, max_seqs=4).learnt()
    bench.scheduler.structured_output_manager = SimpleNamespace(
        accept_tokens=lambda *_, **__: True,
        should_advance=lambda *_, **__: False,
        grammar_bitmask=lambda *_, **__: None,
    )
    bench.crowd(6)
    made = bench.add("s", 20, 5, SYNC, structured=StructuredOutputsParams(regex="a*"))
    made.structured_output_request.grammar = compiling = Future[Any]()
    for _ in range(5):
        assert "s" not in bench.step()
    assert bench.scheduler.report.evictions == 0
    compiling.set_result(SimpleNamespace(is_terminated=lambda: False))
    assert bench.steps_until("s") == 0
    assert bench.scheduler.report.evictions == 1
    bench.finish()
    assert bench.tokens["s"] == 5


# Speculative decoding


def speculating(cls: Any) -> Bench:
    bench = Bench(cls, STRICT).learnt()
    bench.scheduler.num_spec_tokens = 3
    return bench


def test_drafts_in_flight_are_forgotten_when_a_request_is_frozen() -> None:
    bench = speculating(HarvestScheduler)
    made = bench.crowd(2, output=100)
    assert made[0].spec_token_ids == [-1, -1, -1]
    bench.add("s", 10, 12, SYNC)
    for _ in range(3):
        bench.step()
    assert all(r.spec_token_ids == [] for r in made)
    after = {}
    while not {"b0", "b1"} & set(after):
        after = bench.step()
    assert {rid: n for rid, n in after.items() if rid[0] == "b"} == {"b0": 1, "b1": 1}
    bench.finish()
    assert [r.num_output_tokens for r in made] == [100, 100]


def test_known_drafts_survive_a_freeze() -> None:
    bench = speculating(SyncHarvestScheduler)
    made = bench.crowd(1, output=100)[0]
    bench.scheduler.update_draft_token_ids(DraftTokenIds(["b0"], [[5, 5, 5]]))
    bench.add("s", 10, 4, SYNC)
    for _ in range(3):
        assert "b0" not in bench.step()
    assert made.spec_token_ids == [5, 5, 5]
    while "b0" not in (given := bench.step()):
        pass
    assert given["b0"] == 4
    bench.finish()
    assert made.num_output_tokens == 100


# Prefix caching and chunked prefill


@both
def test_blocks_in_the_prefix_cache_are_not_asked_of_batch_requests(cls: Any) -> None:
    bench = Bench(cls, max_seqs=16, kv_blocks=120, prefix_cache=True)
    bench.learnt(30)
    system = list(range(1, 801))  # 50 blocks, shared by the synchronous requests
    bench.add("s0", [*system, 2001], 200, SYNC)
    bench.step()
    for k in range(3):
        bench.add(f"b{k}", [3000 + k] * 160, 200, BATCH)
    for _ in range(30):
        bench.step()
    before = bench.scheduler.report.evictions
    bench.add("s1", [*system, *range(5000, 5700)], 10, SYNC)  # 44 blocks more
    assert bench.steps_until("s1") <= 1
    assert 0 < bench.scheduler.report.evictions - before < 3


@both
def test_a_block_that_other_requests_share_is_not_counted_as_freed(cls: Any) -> None:
    bench = Bench(cls, max_seqs=16, kv_blocks=130, prefix_cache=True).learnt(30)
    shared = list(range(1, 1281))  # 80 blocks
    for k in range(5):
        bench.add(f"b{k}", [*shared, 3000 + k], 300, BATCH)
        bench.step()
        bench.step()
    bench.add("s", list(range(9000, 10_000)), 10, SYNC)  # 63 blocks
    assert bench.steps_until("s") == 0
    assert bench.scheduler.report.evictions == 5
    bench.finish()
    assert all(bench.tokens[f"b{k}"] == 300 for k in range(5))


# Without asynchronous scheduling


def test_an_engine_without_asynchronous_scheduling_gets_a_scheduler_that_waits_for_each_token() -> None:
    """vLLM switches it off for some drafts, pipeline parallelism and pooling. An AsyncScheduler would add placeholders."""
    bench = Bench(HarvestScheduler, STRICT, asynchronous=False)
    assert not isinstance(bench.scheduler, AsyncScheduler)
    bench.depth = 1
    bench.learnt()
    bench.scheduler.num_spec_tokens = 3
    made = bench.crowd(4, output=40)
    assert all((r.spec_token_ids, r.num_output_placeholders) == ([], 0) for r in made)
    bench.add("s", 10, 4, SYNC)
    assert bench.steps_until("s") == 0
    bench.finish()
    assert bench.scheduler.report.freezes > 0
    assert (bench.tokens["b0"], bench.tokens["s"]) == (40, 4)


# Several answers of one prompt


@both
def test_each_of_n_answers_is_a_request_of_its_own(cls: Any) -> None:
    params = SamplingParams(n=3, max_tokens=60, ignore_eos=True, output_kind=RequestOutputKind.FINAL_ONLY)
    parent = ParentRequest(SimpleNamespace(request_id="b", external_req_id="b", params=params, sampling_params=params))
    bench = Bench(cls, STRICT, max_seqs=3).learnt()
    children = [parent.get_child_info(index)[0] for index in range(3)]
    for child in children:
        bench.add(child, 50, 60, BATCH)
    for k in range(6):
        for _ in range(10):
            bench.step()
        bench.add(f"s{k}", 10, 4, SYNC)
        assert bench.steps_until(f"s{k}") == 0
    bench.finish()
    assert bench.scheduler.report.evictions > 0
    assert [bench.tokens[child] for child in children] == [60, 60, 60]


# Pooling models


@both
def test_requests_for_a_vector_share_steps_like_any_prompt(cls: Any) -> None:
    bench = Bench(cls).learnt()
    for k in range(20):
        bench.add(f"b{k}", 900, 1, BATCH, pooling=PoolingParams(task="embed"))
    bench.step()
    bench.add("s", 300, 1, SYNC, pooling=PoolingParams(task="embed"))
    assert bench.steps_until("s") == 0
    bench.finish()
    assert all(bench.tokens[f"b{k}"] == 1 for k in range(20))


# Sleep


@both
def test_a_sleeping_engine_evicts_nobody_and_goes_on_afterwards(cls: Any) -> None:
    bench = Bench(cls, max_seqs=4).learnt()
    bench.crowd(4)
    bench.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    bench.add("s", 10, 5, SYNC)
    assert all(bench.step() == {} for _ in range(10))
    assert (bench.scheduler.report.evictions, bench.scheduler.report.tripped) == (0, False)
    bench.scheduler.set_pause_state(PauseState.UNPAUSED)
    assert bench.steps_until("s") == 0
    bench.finish()


# Refused


@pytest.mark.parametrize(
    ("engine", "objection"),
    [
        ({"prefill_interval": 4}, "prefill_schedule_interval is above 1"),
        ({"chunked_prefill": False, "step_tokens": 16_384}, "chunked prefill is off"),
        ({"policy": "fcfs"}, "the scheduling policy is not priority"),
    ],
)
def test_what_is_not_tested_is_left_to_vllm(engine: dict[str, Any], objection: str) -> None:
    bench = Bench(SyncHarvestScheduler, **engine)
    assert vllm_support.objections(bench.scheduler) == [objection]
    assert not bench.scheduler.report.supported


def test_a_mamba_cache_whose_prefill_chunks_must_end_at_blocks_is_left_to_vllm() -> None:
    scheduler = Bench(SyncHarvestScheduler).scheduler
    assert vllm_support.objections(scheduler) == []
    scheduler.need_mamba_block_aligned_split = True
    assert vllm_support.objections(scheduler) == ["a Mamba cache in mode align was not tested"]
