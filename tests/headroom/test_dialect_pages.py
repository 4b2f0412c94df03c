"""Reading the metrics page of each engine: vLLM's as it was recorded, the others as they were written from their sources."""

from pathlib import Path

import pytest

from app.engines.dialects import SGLANG, TRTLLM, VLLM, by_page
from app.headroom.engine_metrics import EngineGauges, TelemetryError, parse
from app.headroom.signals import Scrape

# SGLang 0.5.23, observability/metrics_collector.py: with priority scheduling, totals have an empty priority.
_LABELS = 'engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0"'


def sglang(rank: str = "0", dp: str = "", running: int = 5, sync: int = 2) -> str:
    """A page of one tensor-parallel rank, of which `sync` of `running` requests have the default priority."""
    base = f'{_LABELS},tp_rank="{rank}"' + (f',dp_rank="{dp}"' if dp else "")
    total, classed = f'{base},priority=""', f'{base},priority="{{}}"'
    return "\n".join(
        [
            "# HELP sglang:num_running_reqs The number of running requests.",
            "# TYPE sglang:num_running_reqs gauge",
            f"sglang:num_running_reqs{{{total}}} {running}.0",
            f"sglang:num_running_reqs{{{classed.format(0)}}} {sync}.0",
            f"sglang:num_running_reqs{{{classed.format(20)}}} {running - sync}.0",
            f"sglang:num_queue_reqs{{{total}}} 3.0",
            f"sglang:num_queue_reqs{{{classed.format(0)}}} 1.0",
            f"sglang:num_queue_reqs{{{classed.format(20)}}} 2.0",
            f"sglang:token_usage{{{total}}} 0.25",
            f"sglang:max_total_num_tokens{{{total}}} 1000.0",
            f'sglang:realtime_tokens_total{{{total},mode="prefill_compute"}} 100.0',
            f'sglang:realtime_tokens_total{{{total},mode="prefill_cache"}} 900.0',
            f'sglang:realtime_tokens_total{{{total},mode="decode"}} 50.0',
            "",
        ]
    )


# TensorRT-LLM, metrics/collector.py at 050f80d
TRTLLM_PAGE = """\
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{engine_type="undefined",model_name="undefined"} 7.0
trtllm_num_requests_waiting{engine_type="undefined",model_name="undefined"} 1.0
trtllm_kv_cache_utilization{engine_type="undefined",model_name="undefined"} 0.5
trtllm_max_num_active_requests{engine_type="undefined",model_name="undefined"} 64.0
"""


def test_sglangs_totals_are_not_added_to_its_classes() -> None:
    assert SGLANG.metrics is not None
    found = parse(sglang(), SGLANG.metrics, 20)
    assert found == EngineGauges(5, 3, 0.25, 50, 100, 0, kv_capacity=1000, sync=(2, 1))
    scrape = Scrape(found, 0.0, own=8)  # of which it shows five: its gauges are late
    assert (scrape.others, scrape.others_waiting) == (3, 1)


def test_classes_count_only_if_our_requests_have_their_own() -> None:
    assert SGLANG.metrics is not None
    assert parse(sglang(), SGLANG.metrics, None).sync is None


def test_ranks_of_one_engine_are_one_and_data_parallel_ranks_are_summed() -> None:
    assert SGLANG.metrics is not None
    one = parse(sglang("0") + sglang("1"), SGLANG.metrics, 20)
    assert (one.running, one.engines, one.kv_capacity) == (5, 1, 1000)
    two = parse(sglang(dp="0") + sglang(dp="1", running=4), SGLANG.metrics, 20)
    assert (two.running, two.engines, two.kv_capacity, two.sync) == (9, 2, 2000, (4, 2))


def test_sglang_before_its_first_token_has_no_counters_and_can_be_read() -> None:
    assert SGLANG.metrics is not None
    page = "\n".join(line for line in sglang().splitlines() if "realtime" not in line)
    assert parse(page, SGLANG.metrics).generation_tokens == 0


def test_trtllm_is_read_and_what_it_lacks_is_named() -> None:
    assert TRTLLM.metrics is not None
    assert parse(TRTLLM_PAGE, TRTLLM.metrics) == EngineGauges(7, 1, 0.5, 0, 0, 0)
    with pytest.raises(TelemetryError, match="has no trtllm_kv_cache_utilization"):
        parse("\n".join(line for line in TRTLLM_PAGE.splitlines() if "kv_cache" not in line), TRTLLM.metrics)


def test_the_page_that_the_real_vllm_sent_is_read() -> None:
    """Recorded from vLLM 0.32.0 for CPU after one completion of 2 + 8 tokens; without buckets."""
    page = (Path(__file__).parent / "pages" / "vllm-0.32.0.prom").read_text()
    assert by_page(page) is VLLM
    found = parse(page)
    assert (found.running, found.waiting, found.kv_usage) == (0, 0, 0.0)
    assert (found.generation_tokens, found.prompt_tokens, found.steps, found.step_tokens) == (8, 2, 8, 10)
    assert (found.kv_capacity, found.engines, found.sync) == (46_592, 1, None)
