"""What lies outside the KV cache of text: caches that a connector loads, and the encoder's cache for images."""

from dataclasses import replace
from typing import Any

import pytest
from vllm.config import KVTransferConfig
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.outputs import KVConnectorOutput

from testing.bare_scheduler import BATCH, SYNC, finish_step
from tests.harvest.support import BOTH, COMMANDS, Bench
from tests.needs import only
from workers.engine import vllm_support
from workers.engine.scheduler import SyncHarvestScheduler

pytestmark = pytest.mark.slow

both = pytest.mark.parametrize("cls", BOTH)
STRICT = replace(COMMANDS, itl_budget=0.0, itl_stretch=0.0, tolerance=0.0)
LOADS = vllm_support.differences().connectors


def transfer(role: str = "kv_consumer") -> KVTransferConfig:
    return KVTransferConfig(
        kv_connector="LoadingConnector",
        kv_connector_module_path="testing.loading_connector",
        kv_role=role,
        engine_id="test",
    )


@only(not LOADS, "supported in this vLLM")
def test_a_connector_is_refused_where_its_tests_do_not_pass() -> None:
    bench = Bench(SyncHarvestScheduler, kv_transfer_config=transfer())
    assert vllm_support.objections(bench.scheduler) == ["KV connectors need vLLM 0.31"]


@only(LOADS, "refused in this vLLM")
@both
def test_loading_batch_requests_that_hold_all_memory_do_not_block_a_synchronous_one(cls: Any) -> None:
    bench = Bench(cls, kv_blocks=100, max_seqs=8, kv_transfer_config=transfer()).learnt(30)
    for k in range(3):
        bench.add(f"remote{k}", 400, 20, BATCH)
    bench.step()
    bench.step()
    assert bench.scheduler.kv_cache_manager.usage > 0.5
    bench.add("s", 600, 5, SYNC)
    for _ in range(3):
        assert "s" not in bench.step()
    out = bench.scheduler.schedule()
    loaded = KVConnectorOutput(finished_recving={"remote0", "remote1", "remote2"})
    finish_step(bench.scheduler, out, loaded)
    assert bench.steps_until("s", 10) < 10
    bench.finish()
    assert {rid: bench.tokens[rid] for rid in ("s", "remote0", "remote1", "remote2")} == {
        "s": 5,
        "remote0": 20,
        "remote1": 20,
        "remote2": 20,
    }


@only(LOADS, "refused in this vLLM")
@both
def test_a_synchronous_request_whose_cache_is_loaded_gets_a_slot(cls: Any) -> None:
    bench = Bench(cls, max_seqs=4, kv_transfer_config=transfer()).learnt(30)
    bench.crowd(3)
    bench.add("remote-s", 300, 5, SYNC)
    bench.step()
    bench.add("b3", 100, 300, BATCH)
    while len(bench.scheduler.running) < 4:
        bench.step()
    evictions = bench.scheduler.report.evictions
    for _ in range(5):
        assert "remote-s" not in bench.step()
    assert bench.scheduler.report.evictions == evictions
    bench.scheduler.finished_recving_kv_req_ids.add("remote-s")
    # With steps in flight, the blocks of a running request are free only when these have ended.
    assert bench.steps_until("remote-s", 10) == (1 if bench.scheduler.defer_block_free else 0)


@only(LOADS, "refused in this vLLM")
def test_a_request_whose_blocks_a_connector_may_still_write_is_frozen_and_not_evicted() -> None:
    bench = Bench(SyncHarvestScheduler, STRICT, max_seqs=2, kv_transfer_config=transfer()).learnt(30)
    made = bench.crowd(2)
    bench.scheduler.defer_block_free = True
    for r in made:
        r.last_sched_seq = bench.scheduler.processed_step_seq + 5
    bench.add("s", 10, 5, SYNC)
    for _ in range(3):
        assert bench.step() == {}
    assert (bench.scheduler.report.evictions, bench.scheduler.report.batch_frozen) == (0, 2)
    for r in made:
        r.last_sched_seq = bench.scheduler.processed_step_seq
    assert bench.steps_until("s") == 0


@only(LOADS, "refused in this vLLM")
def test_a_batch_prompt_that_holds_the_encoder_cache_is_evicted_only_when_its_blocks_can_be_freed() -> None:
    bench = seeing(SyncHarvestScheduler, step_tokens=512, kv_transfer_config=transfer())
    batch = bench.add("b", 4000, 10, BATCH, mm_features=image("one", 0, 590))
    while not batch.num_computed_tokens:
        bench.step()
    bench.scheduler.defer_block_free = True
    batch.last_sched_seq = bench.scheduler.processed_step_seq + 5
    bench.add("s", 400, 5, SYNC, mm_features=image("two", 10, 300))
    for _ in range(3):
        assert "b" not in bench.step()
    assert (bench.scheduler.report.evictions, bench.scheduler.report.batch_frozen) == (0, 1)
    batch.last_sched_seq = bench.scheduler.processed_step_seq
    assert bench.steps_until("s") == 0


def image(name: str, at: int, length: int) -> list[MultiModalFeatureSpec]:
    return [MultiModalFeatureSpec(None, "image", name, PlaceholderRange(offset=at, length=length))]


def seeing(cls: Any, **engine: Any) -> Bench:
    """A scheduler whose encoder takes 600 embeddings a step, and keeps as many."""
    bench = Bench(cls, **engine).learnt()
    bench.scheduler.max_num_encoder_input_tokens = 600
    bench.scheduler.encoder_cache_manager = EncoderCacheManager(cache_size=600)
    return bench


@both
def test_a_synchronous_image_gets_the_encoder_cache_that_a_batch_prompt_holds(cls: Any) -> None:
    bench = seeing(cls, step_tokens=512)
    batch = bench.add("b", 4000, 10, BATCH, mm_features=image("one", 0, 590))
    while not batch.num_computed_tokens:
        bench.step()
    assert batch.is_prefill_chunk
    bench.add("s", 400, 5, SYNC, mm_features=image("two", 10, 300))
    assert bench.steps_until("s") == 0
    bench.finish()
    assert (bench.tokens["b"], bench.tokens["s"]) == (10, 5)


@both
def test_no_batch_image_is_encoded_beside_a_synchronous_request(cls: Any) -> None:
    bench = seeing(cls)
    bench.add("s", 20, 12, SYNC)
    bench.step()
    bench.add("image", 200, 5, BATCH, mm_features=image("one", 10, 100))
    bench.add("text", 200, 5, BATCH)
    given = [bench.step() for _ in range(8)]
    assert any("text" in step for step in given)
    assert not any("image" in step for step in given)
    bench.finish()
    assert bench.tokens["image"] == 5
