"""A worker's metrics page: what is there from the start, and what each number is called."""

from collections.abc import Sequence
from dataclasses import replace

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app import processes
from app.headroom.gate_rules import Reason
from app.headroom.gpu import Gpu
from app.settings import Settings
from app.usage_counts import UsageCounts
from testing.waiting import eventually
from tests.gpu.world import World
from workers.gpu.metrics import PREFIX, REASONS, HarvestView, Latency, View, exposition
from workers.gpu.metrics import port as fixed_port

ALWAYS = {"harvest_active", "harvest_obstacle"}
IDLE = View(engine="engine-0", model="toy", mode="attached", reason="closed_unknown")
BUSY = View(
    engine="engine-0",
    model="toy",
    mode="managed",
    reason="shrink_latency",
    allowance=12,
    tokens_allowed=4096,
    in_flight=9,
    changes={"open": 3, "shrink_latency": 2},
    yields=5,
    resumes=4,
    wasted_tokens=77,
    resumed_cached_tokens=64,
    probes=1,
    dropped_decisions=6,
    telemetry_age=0.2,
    predicted_step=0.012,
    measured_step=0.031,
    ttft=Latency(0.1, 0.4),
    itl=Latency(0.02, 0.03),
    harvest=HarvestView(active=True, tripped=False, frozen=7, evictions=2, faults=0, plan_seconds=0.0001),
    stored=UsageCounts(10, 8, prompt=100, cached=40, output=30, retried=3, retried_ok=2, engine_ms=1500),
)
GPUS = [Gpu("GPU-a", "NVIDIA H200", 0.87, 30, 120, 412.5), Gpu("MIG-b", "NVIDIA H200", None, 1, 2, None)]


def scraped(view: View, gpus: Sequence[Gpu] = ()) -> dict[tuple[str, str], float]:
    """(name without prefix, value of the first label beside the engine's) → value."""
    return {
        (
            sample.name.removeprefix(PREFIX),
            next((v for k, v in sample.labels.items() if k != "engine"), ""),
        ): sample.value
        for family in text_string_to_metric_families(exposition([view], gpus).decode())
        for sample in family.samples
    }


def test_every_reason_exists_at_zero_from_the_start_and_one_holds() -> None:
    found = scraped(IDLE)
    reasons = {label: value for (name, label), value in found.items() if name == "reason"}
    assert reasons.keys() >= {*map(str, Reason), "engine_down", "model_missing"}
    assert [label for label, value in reasons.items() if value] == ["closed_unknown"]
    assert {found["reason_changes_total", reason] for reason in REASONS} == {0}
    assert [found[f"{name}_total", ""] for name in ("yields", "resumes", "wasted_tokens", "probes")] == [0] * 4


def test_what_was_not_measured_is_absent_and_not_zero() -> None:
    names = {name for name, _ in scraped(IDLE)}
    unmeasured = {"telemetry_age_seconds", "predicted_step_seconds", "measured_step_seconds", "sync_ttft_seconds"}
    assert not names & unmeasured
    assert not [name for name in names if name.startswith(("gpu_", "harvest_")) and name not in ALWAYS]
    assert scraped(IDLE)["harvest_active", ""] == 0


def test_a_busy_worker_shows_gate_work_steps_plug_in_and_gpus() -> None:
    found = scraped(BUSY, GPUS)
    expected = {
        ("allowance_requests", ""): 12,
        ("allowance_tokens", ""): 4096,
        ("in_flight_requests", ""): 9,
        ("reason", "shrink_latency"): 1,
        ("reason", "open"): 0,
        ("reason_changes_total", "open"): 3,
        ("yields_total", ""): 5,
        ("resumes_total", ""): 4,
        ("wasted_tokens_total", ""): 77,
        ("resumed_cached_tokens_total", ""): 64,
        ("probes_total", ""): 1,
        ("dropped_decisions_total", ""): 6,
        ("telemetry_age_seconds", ""): 0.2,
        ("predicted_step_seconds", ""): 0.012,
        ("measured_step_seconds", ""): 0.031,
        ("sync_ttft_seconds", "0.95"): 0.4,
        ("sync_itl_seconds", "0.5"): 0.02,
        ("harvest_active", ""): 1,
        ("harvest_tripped", ""): 0,
        ("harvest_frozen_requests", ""): 7,
        ("harvest_evictions_total", ""): 2,
        ("harvest_faults_total", ""): 0,
        ("harvest_plan_seconds", ""): 0.0001,
        ("gpu_utilization", "GPU-a"): 0.87,
        ("gpu_memory_used_bytes", "MIG-b"): 1,
        ("gpu_memory_total_bytes", "GPU-a"): 120,
        ("gpu_power_watts", "GPU-a"): 412.5,
        ("engine_info", "managed"): 1,
        ("harvested_tokens_total", "prompt"): 60,
        ("harvested_tokens_total", "cached"): 40,
        ("harvested_tokens_total", "output"): 30,
        ("batch_engine_seconds_total", ""): 1.5,
    }
    assert {key: found.get(key) for key in expected} == expected
    assert ("gpu_utilization", "MIG-b") not in found


def test_results_are_told_apart_by_their_outcome_and_by_whether_they_were_retried() -> None:
    families = text_string_to_metric_families(exposition([BUSY], GPUS).decode())
    [results] = [family for family in families if family.name == f"{PREFIX}results"]
    found = {(s.labels["outcome"], s.labels["retried"]): s.value for s in results.samples}
    assert found == {("ok", "yes"): 2, ("ok", "no"): 6, ("failed", "yes"): 1, ("failed", "no"): 1}


async def test_a_worker_counts_what_it_has_stored(world: World) -> None:
    async with world.worker() as running:
        await world.finished(await world.submit([f"item {n}" for n in range(20)]))
        stored = running.worker._puller.stored
    [sums] = await world.fetch("select sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens) from batch")
    assert (stored.requests, stored.ok, stored.retried) == (20, 20, 0)
    assert (stored.prompt, stored.cached, stored.output) == tuple(sums)
    assert stored.engine_ms > 0


def test_a_reason_of_the_engine_that_is_new_to_us_is_shown_all_the_same() -> None:
    found = scraped(View(engine="e", model="m", mode="attached", reason="brand_new"))
    assert found["reason", "brand_new"] == 1


@pytest.mark.parametrize(
    ("name", "port"),
    [("engine-0", 8710), ("engine-1", 8711), ("gpu7", 8717), ("a-99", 8809), ("a-100", 8710), ("mine", 8710)],
)
def test_workers_on_one_host_have_fixed_ports_by_the_number_of_their_engine(name: str, port: int) -> None:
    assert fixed_port(Settings(engine_name=name)) == port
    assert fixed_port(Settings(engine_name=name, worker_metrics_port=0)) == 0


async def test_a_worker_answers_at_its_fixed_port(world: World) -> None:
    port = processes.free_port()
    async with world.worker(worker_metrics_port=port, engine_name="mine"), httpx.AsyncClient(trust_env=False) as client:
        page = (await eventually(lambda: client.get(f"http://127.0.0.1:{port}/metrics"))).text
    assert f'{PREFIX}engine_info{{engine="mine"' in page


def test_the_page_of_a_process_with_several_engines_has_a_series_for_each_and_each_family_once() -> None:
    page = exposition([IDLE, replace(BUSY, engine="engine-7")], GPUS).decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert page.count(f"# TYPE {PREFIX}allowance_requests ") == 1
    allowed = families[f"{PREFIX}allowance_requests"].samples
    assert [(each.labels, each.value) for each in allowed] == [
        ({"engine": "engine-0"}, 0),
        ({"engine": "engine-7"}, 12),
    ]
    assert [each.labels["engine"] for each in families[f"{PREFIX}engine_info"].samples] == ["engine-0", "engine-7"]
