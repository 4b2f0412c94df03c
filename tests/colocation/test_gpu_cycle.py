"""The GPU track: turns, what is stored of a cycle, a kill at any moment, and the step model that is fitted."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import mean, pstdev

import pytest

from app.headroom.engine_metrics import EngineGauges
from benchmarks.colocation import gpu_model, track_gpu
from benchmarks.colocation.gpu_cycle import CycleStore, blocks_of, fitted
from benchmarks.colocation.gpu_plan import ARMS, visits
from benchmarks.colocation.gpu_sizes import SIZES, differences
from benchmarks.colocation.sync_callers import Call

SMALL = SIZES["small"]
ROWS = [(at, asdict(EngineGauges(1, 0, 0.1, tokens, 0, 0))) for at, tokens in ((0.0, 0), (16.0, 1600))]


def test_a_cycle_has_a_turn_of_many_and_a_turn_of_few():
    size = SIZES["8b"]
    due = size.arrivals(1)
    burst = [each for each in due if each.at < size.turn_seconds]
    assert 230 < len(burst) < 370
    assert 8 < len(due) - len(burst) < 35
    assert due == size.arrivals(1) != size.arrivals(2)
    assert [each.at for each in due] == sorted(each.at for each in due)
    assert {(each.prompt, each.output) for each in due} == {(505, 128)}


def test_batch_lengths_are_lognormal_and_cut():
    lengths = SIZES["8b"].batch_lengths(1)
    assert max(lengths) == 2048
    assert min(lengths) >= 1
    assert 430 < mean(lengths) < 530
    assert 280 < pstdev(lengths) < 420


def test_calls_and_batch_tokens_belong_to_their_turn():
    calls = [Call(1.0, 1.0, 2.0, 4.0, 3, [1.0, 1.0]), Call(7.5, 7.5, 8.5, 9.0, 2, [0.5])]
    blocks = blocks_of(SMALL, calls, ROWS)
    assert blocks_of(SMALL, calls, ROWS, batch=False)["cycle"].outcome.output_tokens == 0
    assert blocks["burst"].outcome.ttft.tolist() == [1.0, 1.0]
    assert blocks["calm"].calls == []
    assert blocks["burst"].outcome.output_tokens == 800 - 3
    assert blocks["calm"].outcome.output_tokens == 800 - 2
    assert blocks["cycle"].outcome.output_tokens == 1600 - 5
    assert blocks["cycle"].outcome.seconds == 16.0


def test_a_finished_cycle_is_found_again(tmp_path):
    blocks = blocks_of(SMALL, [Call(1.0, 1.0, 2.0, 3.0, 2, [1.0])], ROWS)
    CycleStore(tmp_path, {"size": "small"}).store(("l1", 2), blocks, ROWS)
    kept = CycleStore(tmp_path, {"size": "small"})
    assert kept.done(3) == [("l1", 2)]
    assert kept.rows(("l1", 2)) == ROWS
    assert kept.load(("l1", 2), "calm").outcome.output_tokens == 800
    with pytest.raises(SystemExit, match="other options"):
        CycleStore(tmp_path, {"size": "8b"})


STORING = """
import sys
from pathlib import Path
from benchmarks.colocation.gpu_cycle import CycleStore, blocks_of
from benchmarks.colocation.gpu_plan import ARMS, visits
from benchmarks.colocation.gpu_sizes import SIZES
from benchmarks.colocation.sync_callers import Call

store = CycleStore(Path(sys.argv[1]), {"size": "small"})
calls = [Call(0.01 * n, 0.01 * n, 1.0, 2.0, 50, [0.02] * 49) for n in range(400)]
rows = [(0.5 * n, {"generation_tokens": 100 * n}) for n in range(40)]
print("ready", flush=True)
for visit in visits(ARMS, 50, store.done(50)):
    store.store(visit, blocks_of(SIZES["small"], calls, rows), rows)
    print("stored", flush=True)
"""


def test_a_kill_at_any_moment_keeps_the_finished_cycles(tmp_path):
    done: list[tuple[str, int]] = []
    for stored, milliseconds in enumerate((3, 0, 24)):
        process = subprocess.Popen([sys.executable, "-c", STORING, str(tmp_path)], stdout=subprocess.PIPE)
        lines = [process.stdout.readline() for _ in range(1 + stored)]
        assert lines == [b"ready\n", *[b"stored\n"] * stored]
        time.sleep(milliseconds / 1e3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        store = CycleStore(tmp_path, {"size": "small"})
        found = store.done(50)
        assert set(done) <= set(found)
        for visit in found:
            assert len(store.load(visit, "cycle").calls) == 400
            assert len(store.rows(visit)) == 40
        assert len(visits(ARMS, 50, found)) == 50 * len(ARMS) - len(found)
        assert len(found) >= len(done) + stored
        done = found


def test_the_step_model_is_fitted_to_counters():
    listed = []
    for running in (1, 20, 60, 100, 30):
        at, rows, steps = 0.0, [], 0
        for _ in range(30):
            gauges = EngineGauges(running, 0, 0.1, steps * running, 0, 0, steps, steps * running, 10_000)
            rows.append((at, asdict(gauges)))
            steps, at = steps + 10, at + 10 * (0.010 + 0.0001 * running)
        listed.append(rows)
    found = fitted(listed)
    assert found is not None
    assert found["relative_error"] < 0.1
    assert 5 < found["base_ms"] < 15
    assert fitted([]) is None


def options(tmp_path, *more):
    return parsed(tmp_path, "--size", "small", "--minutes", "0", *more)


def parsed(tmp_path, *more):
    command = argparse.ArgumentParser()
    command.add_argument("--out", type=Path)
    track_gpu.add_arguments(command)
    return command.parse_args(["--out", str(tmp_path / "out"), *more])


def test_a_run_without_time_reports_what_there_is(tmp_path):
    first = track_gpu.run(options(tmp_path))
    assert (first["arms"], first["left"]) == ({}, 3 * len(ARMS))
    with pytest.raises(SystemExit, match="--resume"):
        track_gpu.run(options(tmp_path))
    blocks = blocks_of(SMALL, [Call(1.0, 1.0, 2.0, 3.0, 2, [1.0])], ROWS)
    same = json.loads((tmp_path / "out" / "cycles" / "same.json").read_text())
    CycleStore(tmp_path / "out" / "cycles", same).store(("sync_only", 1), blocks, ROWS)
    found = track_gpu.run(options(tmp_path, "--resume", "--arms", "alone,cap_20"))
    assert found["cycles"] == {"sync_only": 1, "static_20": 0}
    assert found["arms"]["sync_only"]["burst"]["ttft_p50_ms"] == 1000.0
    assert found["left"] == 5
    assert json.loads(json.dumps(found)) == found


def test_without_a_gpu_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(track_gpu, "_obstacle", lambda gpu: "no GPU")
    found = track_gpu.run(parsed(tmp_path))
    assert found == {"not_run": "no GPU", "arms": {}}


def test_the_differences_from_the_original_are_told():
    listed = differences(SIZES["8b"], {"l2": 2})
    assert any("20 s instead of 90 s" in line for line in listed)
    assert any("l2 2" in line for line in listed)
    assert len(differences(SMALL, {})) == len(listed) + 1


def test_words_and_digits_are_tokens_and_every_token_has_a_text():
    found = gpu_model.vocabulary(49152)
    assert len(found) == 49152
    assert sorted(found.values()) == list(range(49152))
    assert {"river", "7"} <= set(found)
