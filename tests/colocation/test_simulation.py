"""The simulator is deterministic and counts every token once."""

from dataclasses import replace

import numpy as np
import pytest

from tests.needs import module

module("vllm")

from benchmarks.colocation.engine_profiles import SLOW  # noqa: E402
from benchmarks.colocation.policy_arms import arms  # noqa: E402
from benchmarks.colocation.simulated_engine import SimulatedEngine  # noqa: E402
from benchmarks.colocation.simulation import Simulation  # noqa: E402
from benchmarks.colocation.simulation_view import Conditions  # noqa: E402
from benchmarks.colocation.workloads import Arrival, Workload  # noqa: E402
from testing.bare_scheduler import BATCH, BLOCK  # noqa: E402
from workers.engine.quiet import Quiet  # noqa: E402

pytestmark = pytest.mark.slow

SHORT = Workload("burst", 4.0, speed=0.5, batch_output=(16, 200))


def simulation(arm, workload=SHORT, arrivals=None, **conditions):
    return Simulation(
        arms()[arm], workload, workload.arrivals(1) if arrivals is None else arrivals, 1, Conditions(**conditions)
    )


def run_open_ended(run, seconds=4.0):
    """So that tokens of the last step count, too."""
    run._over = lambda: run.now > seconds
    run.workload = replace(run.workload, seconds=1e9)
    run.run()


@pytest.fixture
def items(monkeypatch):
    """Every batch item that an engine was ever given."""
    seen = {}
    add = SimulatedEngine.add

    def noting(self, item, now):
        if item.priority == BATCH:
            seen[item.number] = item
        add(self, item, now)

    monkeypatch.setattr(SimulatedEngine, "add", noting)
    return seen


@pytest.mark.parametrize("arm", ["priority", "l1", "l2"])
def test_the_same_arguments_give_the_same_figures(arm):
    first, second = simulation(arm).run(), simulation(arm).run()
    assert np.array_equal(first.ttft, second.ttft)
    assert np.array_equal(first.itl, second.itl)
    assert (first.prompt_tokens, first.output_tokens) == (second.prompt_tokens, second.output_tokens)
    assert first.output_tokens > 0


@pytest.mark.parametrize("arm", ["static_64", "l2"])
def test_every_batch_token_is_counted_once(arm, items):
    run = simulation(arm)
    run_open_ended(run)
    assert run.useful.output == sum(item.made for item in items.values())
    assert run.useful.prompt == sum(item.prompt for item in items.values() if item.made)
    assert run.engine.tally.fresh == sum(item.computed for item in items.values())
    done = [item for item in items.values() if item.made == item.output]
    assert done
    assert all(item.computed == item.prompt + item.output - 1 for item in done)


def test_a_request_that_yields_keeps_its_tokens_and_finds_its_blocks_again(items):
    run = simulation("static_16", arrivals=[])
    run.at(1.0, lambda: run.yield_batch(8))
    run_open_ended(run)
    back = [item for item in items.values() if item.yields]
    assert run.yields == len(back) == 8
    assert run.useful.output == sum(item.made for item in items.values())
    assert any(item.made == item.output for item in back)
    assert run.useful.wasted < 8 * BLOCK  # at most the last, partial block of each
    assert run.engine.tally.fresh == sum(item.computed for item in items.values())


def test_a_static_cap_is_never_exceeded(monkeypatch):
    most = 0
    begin = SimulatedEngine.begin

    def watching(self):
        nonlocal most
        most = max(most, len(self.scheduler.requests))
        return begin(self)

    monkeypatch.setattr(SimulatedEngine, "begin", watching)
    simulation("static_32", arrivals=[]).run()
    assert most == 32


def test_the_engine_gets_an_arrival_between_two_steps():
    run = simulation("priority", arrivals=[Arrival(2.0, 100, 3)])
    found = run.run()
    assert len(found.ttft) == 1
    assert len(found.itl) == 2
    assert 0.01 < found.ttft[0] < 0.3
    assert found.unserved == 0


def test_a_restart_loses_waiting_requests_and_serves_later_ones():
    long = Workload("burst", 16.0)
    arrivals = [Arrival(7.999, 500, 50), Arrival(9.0, 100, 5), Arrival(14.0, 100, 5)]
    for arm in ("sync_only", "l2"):
        found = simulation(arm, long, arrivals, restart=True).run()
        assert (len(found.ttft), found.unserved) == (1, 2)


def test_l1_stops_admitting_when_the_engine_stops_answering(items):
    run = simulation("l1", Workload("burst", 16.0), [], restart=True)
    at_restart = []
    run.at(8.0 + 2.5, lambda: at_restart.append(run.worker.decision.reason))
    run.run()
    assert at_restart == ["closed_stale"]


@pytest.mark.parametrize("freeze", [True, False])
def test_our_scheduler_plans_without_a_fault_and_batch_goes_on(freeze):
    workload = replace(SHORT, seconds=6.0)
    arrivals = [Arrival(4 + 0.1 * n, 800, 40) for n in range(20)]
    run = simulation("l2", workload, arrivals, freeze=freeze)
    run.engine.scheduler.commands = replace(
        run.engine.scheduler.commands, itl_budget=0.012
    )  # so little that not all of the batch fits
    found = run.run()
    assert run.engine.scheduler.report.freezes > 0 or not freeze
    assert found.faults == 0
    assert found.output_tokens > 0
    assert (found.evicted > 0) is not freeze


def test_while_callers_stay_away_batch_work_has_the_whole_engine_and_the_first_caller_waits_for_one_step(monkeypatch):
    evening = [Arrival(0.3 * n, 50, 6) for n in range(20)]
    night = Workload("night", 36.0, batch_prompt=(75, 95), batch_output=(64, 64), engine=SLOW)
    arrivals = [*evening, Arrival(36.0, 50, 6)]

    def rate(arm, grown=True):
        with monkeypatch.context() as patch:
            if not grown:
                patch.setattr(Quiet, "step", lambda self, now: 0.0)
            run, seen = simulation(arm, night, arrivals if arms()[arm].synchronous else []), []
            for second in (16.0, 36.0):
                run.at(second, lambda: seen.append(run.useful.prompt + run.useful.output))
            found = run.run()
        return (seen[1] - seen[0]) / 20.0, found.ttft

    whole, _ = rate("batch_only")
    ours, ttft = rate("l2")
    careful, _ = rate("l2", grown=False)
    assert ours >= 0.93 * whole  # two of 32 slots stay free for callers
    assert careful < 0.8 * whole
    full_step = SLOW.seconds(SLOW.step_tokens, 0)
    assert ttft[-1] < 1.3 * (full_step + SLOW.seconds(50, 0))
