"""What we believe of vLLM's own scheduler. A flip of the first, second or fourth is good news: vLLM protects synchronous
requests better, so simplify. A flip of any other breaks the plug-in: add the version to the tested ones only after
reading what changed."""

import pytest

from testing.bare_scheduler import BATCH, SYNC, AsyncScheduler, Scheduler
from tests.harvest.support import Bench
from workers.engine import vllm_support

pytestmark = pytest.mark.slow


def test_slots_full_of_batch_keep_a_synchronous_request_waiting_until_they_finish() -> None:
    bench = Bench(Scheduler, max_seqs=4)
    bench.crowd(4, steps=5)
    bench.add("s", 100, 10, SYNC)
    assert bench.steps_until("s") == 295


def test_kv_full_of_batch_keeps_a_synchronous_request_waiting_until_it_is_freed() -> None:
    bench = Bench(Scheduler, max_seqs=64, kv_blocks=200)
    bench.crowd(20, prompt=150, steps=5)
    bench.add("s", 600, 10, SYNC)
    assert bench.steps_until("s") == 295


def test_the_freeze_hook_skips_one_call_and_keeps_blocks_progress_and_place() -> None:
    for cls in (Scheduler, AsyncScheduler):
        bench = Bench(cls, max_seqs=64, kv_blocks=1000)
        frozen, _ = bench.crowd(2, steps=5)
        done, usage = frozen.num_computed_tokens, bench.scheduler.kv_cache_manager.usage
        for _ in range(5):
            frozen.next_decode_eligible_step = bench.scheduler.current_step + 2
            assert set(bench.step()) == {"b1"}
        assert (frozen.num_computed_tokens, frozen.num_preemptions) == (done, 0)
        assert bench.scheduler.kv_cache_manager.usage >= usage
        assert "b0" in bench.step()


def test_a_long_batch_prompt_takes_whole_steps_before_a_synchronous_request() -> None:
    bench = Bench(Scheduler, max_seqs=64)
    bench.crowd(1, prompt=12_000, output=10, steps=1)
    bench.add("s", 500, 10, SYNC)
    assert bench.steps_until("s") == 4


def test_a_preempted_request_returns_to_waiting_and_repeats_nothing_it_has_said() -> None:
    for cls in (Scheduler, AsyncScheduler):
        bench = Bench(cls, max_seqs=64)
        victim = bench.crowd(1, output=40, steps=6)[0]
        bench.scheduler.running.remove(victim)
        bench.scheduler._preempt_request(victim, 0.0)
        assert list(bench.scheduler.waiting) == [victim]
        while bench.scheduler.has_unfinished_requests():
            bench.step()
        assert bench.tokens["b0"] == 40


def test_two_queues_hold_what_waits_and_both_are_ordered_by_priority() -> None:
    bench = Bench(Scheduler)
    for rid, priority in (("b", BATCH), ("s", SYNC)):
        bench.add(rid, 10, 1, priority)
    names = vllm_support.differences()
    assert [r.request_id for r in bench.scheduler.waiting] == ["s", "b"]
    assert len(getattr(bench.scheduler, names.second_queue)) == 0
    assert getattr(bench.scheduler, names.slots) == 256
    others = {"kv_holding_waiting", "skipped_waiting"} - {names.second_queue}
    assert not any(hasattr(bench.scheduler, other) for other in others)
