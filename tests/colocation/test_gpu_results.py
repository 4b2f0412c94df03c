"""What is stored of a run on a GPU, a kill at any moment, and the figures made of it."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.needs import module

np = module("numpy")

from app.headroom.engine_metrics import EngineGauges  # noqa: E402
from benchmarks.colocation import gpu_results, track_gpu  # noqa: E402
from benchmarks.colocation.engine_profiles import GPU  # noqa: E402
from benchmarks.colocation.engine_verdict import ratio  # noqa: E402
from benchmarks.colocation.gpu_model import SIZES  # noqa: E402
from benchmarks.colocation.gpu_plan import PLAN, parsed  # noqa: E402
from benchmarks.colocation.gpu_results import PieceFile, recorded  # noqa: E402
from benchmarks.colocation.report import markdown  # noqa: E402
from benchmarks.colocation.sync_callers import Call  # noqa: E402
from workers.engine.step_stats_receiver import StepStats  # noqa: E402

STEPS_, RAMP_, ALONE_, L2_, *_ = PIECES = parsed(PLAN)
CAPACITY = 400_000


def rows(tokens):
    return [(at, asdict(EngineGauges(1, 0, 0.1, tokens * at // 10, 0, 0))) for at in (0, 5, 10)]


def piece(which, *, ttft=0.1, batch=0, rate=10.0):
    """Ten seconds of ten calls a second with three tokens each, and batch tokens beside them."""
    calls = [
        Call(0.1 * n, 0.1 * n, 0.1 * n + ttft * (1 + n % 10 / 100), 0.1 * n + 1, 3, [0.02, 0.03]) for n in range(100)
    ]
    calls = [Call(**{**asdict(call), "end": call.first + 0.05}) for call in calls]
    worker = {"wasted": 0, "yields": 1, "evicted": 0, "faults": 0}
    steps = [StepStats(0.02 * n, 0, 4, 0, 0.1, 0, 4 + n % 7, 0.0) for n in range(200)]
    return recorded(
        which, calls, rows(300 + batch), steps, seconds=10.0, kv_capacity=CAPACITY, worker=worker, rate=rate
    )


def ramped():
    calls = [Call(0.1 * n, 0.1 * n, 0.1 * n + (0.1 if n < 300 else 9.0), 0.1 * n + 10, 3) for n in range(450)]
    return recorded(RAMP_, calls, [], [], seconds=45.0, kv_capacity=CAPACITY, worker={}, low=5.0, high=20.0)


def test_a_finished_piece_is_found_again(tmp_path):
    PieceFile(tmp_path / "pieces.jsonl", {"size": "small"}).add(piece(L2_))
    kept = PieceFile(tmp_path / "pieces.jsonl", {"size": "small"})
    assert kept.done() == {"l2@88#1"}
    assert kept.records == [json.loads(json.dumps(piece(L2_)))]
    with pytest.raises(SystemExit, match="other options"):
        PieceFile(tmp_path / "pieces.jsonl", {"size": "8b"})


def test_a_line_that_was_cut_is_dropped(tmp_path):
    path = tmp_path / "pieces.jsonl"
    file = PieceFile(path, {"size": "small"})
    file.add(piece(ALONE_))
    whole = path.read_bytes()
    file.add(piece(L2_))
    for length in (len(whole) + 1, len(whole) + 300, len(path.read_bytes()) - 1):
        path.write_bytes((whole + path.read_bytes()[len(whole) :])[:length])
        assert PieceFile(path, {"size": "small"}).done() == {"alone@88#1"}
        assert path.read_bytes() == whole
        PieceFile(path, {"size": "small"}).add(piece(L2_))
        assert PieceFile(path, {"size": "small"}).done() == {"alone@88#1", "l2@88#1"}


STORING = """
import sys
from pathlib import Path
from benchmarks.colocation.gpu_plan import parsed
from benchmarks.colocation.gpu_results import PieceFile, recorded
from benchmarks.colocation.sync_callers import Call

file = PieceFile(Path(sys.argv[1]) / "pieces.jsonl", {"size": "small"})
calls = [Call(0.01 * n, 0.01 * n, 1.0, 2.0, 50, [0.02] * 49) for n in range(400)]
print("ready", flush=True)
for piece in parsed(",".join(["l2@88"] * 200)):
    if piece.name not in file.done():
        file.add(recorded(piece, calls, [], []))
        print("stored", flush=True)
"""


def test_a_kill_at_any_moment_keeps_the_finished_pieces(tmp_path):
    done: set[str] = set()
    for stored, milliseconds in enumerate((3, 0, 24)):
        process = subprocess.Popen([sys.executable, "-c", STORING, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(1 + stored)]
        assert lines == [b"ready\n", *[b"stored\n"] * stored]
        time.sleep(milliseconds / 1e3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        file = PieceFile(tmp_path / "pieces.jsonl", {"size": "small"})
        assert done <= file.done()
        assert len(file.records) == len(file.done()) >= len(done) + stored
        assert all(len(record["calls"]) == 400 for record in file.records)
        done = file.done()


def test_batch_tokens_are_the_engines_without_those_of_callers():
    assert gpu_results.samples(piece(L2_, batch=1000)).output_tokens == pytest.approx(1000, abs=20)
    assert gpu_results.samples(piece(ALONE_, batch=1000)).output_tokens == 0


def verdict(records):
    return gpu_results.verdict(records, gpu_results.table(records))


def test_the_verdict_states_p95_with_p99_the_gaps_and_the_batch_rate():
    alone, ours = parsed("alone@88,alone@88,alone@60"), parsed("l2@88,l2@88,l2@60")
    records = [piece(each) for each in alone] + [piece(each, ttft=0.108, batch=5000) for each in ours[:2]]
    found = verdict([*records, piece(ours[2], ttft=0.12)])
    assert found["ttft_p95_at_88"]["holds"]
    assert found["ttft_p95_at_88"]["value"] == pytest.approx(1.08, abs=0.01)
    assert found["ttft_p95_at_88"]["batch_tok_s"] == pytest.approx(500, abs=5)
    assert all(
        len(found["ttft_p95_at_88"][f"{name}_ms"]) == 2 for name in ("ttft_p95", "ttft_p99", "itl_p50", "itl_p99")
    )
    assert not found["ttft_p95_at_60"]["holds"]


def test_a_call_that_nobody_answered_breaks_the_target():
    lost = piece(L2_)
    lost["calls"][0] |= {"first": None, "end": None, "tokens": 0, "gaps": []}
    found = verdict([piece(ALONE_), lost])["ttft_p95_at_88"]
    assert found["value"] <= found["at_most"]
    assert not found["holds"]
    assert found["unserved"] == [0, 1]


def test_without_alone_there_is_no_verdict():
    assert verdict([piece(L2_)]) == {}


def test_the_step_times_are_fitted_to_the_first_piece_and_judged_by_the_others():
    found = gpu_results.step_times([piece(STEPS_), piece(L2_)], GPU)
    assert found is not None
    assert found["fitted_errors"]["later pieces"]["all"]["error_p50_percent"] < 2
    assert found["assumed_errors"]["steps"]["all"]["total_percent"] < -30
    assert gpu_results.step_times([piece(L2_)], GPU) is None


def options(tmp_path, *more):
    command = argparse.ArgumentParser()
    command.add_argument("--out", type=Path)
    track_gpu.add_arguments(command)
    return command.parse_args(["--out", str(tmp_path / "out"), "--minutes", "0", *more])


def test_a_run_without_time_reports_what_there_is(tmp_path):
    first = track_gpu.run(options(tmp_path, "--size", "small"))
    assert (first["arms"], first["knee"], len(first["left"])) == ({}, None, len(PIECES))
    with pytest.raises(SystemExit, match="--resume"):
        track_gpu.run(options(tmp_path, "--size", "small"))
    path = tmp_path / "out" / "pieces.jsonl"
    file = PieceFile(path, json.loads(path.read_text().splitlines()[0]))
    for record in (piece(STEPS_), ramped(), piece(ALONE_), piece(L2_, batch=3000)):
        file.add(record)
    found = track_gpu.run(options(tmp_path, "--size", "small", "--resume"))
    assert found["left"] == [each.name for each in PIECES[4:]]
    assert found["knee"]["reached"]
    assert found["arms"]["sync_only"]["88 % of the knee"]["arrivals"] == 100
    assert found["arms"]["l2"]["88 % of the knee"]["batch_tok_s"] == pytest.approx(300, abs=5)
    assert json.loads(json.dumps(found)) == found
    text = markdown(found)
    assert "Knee: " in text
    assert "| TTFT p95 × |" in text
    assert "ttft_p95_at_88" in text


def test_without_a_gpu_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(track_gpu, "_obstacle", lambda gpu: "no GPU")
    assert track_gpu.run(options(tmp_path)) == {"not_run": "no GPU", "arms": {}}


def test_a_wrong_plan_ends_the_command_with_a_reason(tmp_path):
    with pytest.raises(SystemExit, match="no arm 'l9'"):
        track_gpu.run(options(tmp_path, "--pieces", "l9@88"))


def test_differences_from_the_original_are_told():
    listed = gpu_results.notes(SIZES["8b"], [piece(ALONE_)], None, None)
    assert any("pieces of 30 s (alone@88)" in line for line in listed)
    assert len(gpu_results.notes(SIZES["small"], [], None, None)) == len(listed) + 1


def test_the_interval_of_a_ratio_counts_each_call_as_often_as_it_is_drawn():
    chance = np.random.default_rng(3)
    waits = chance.lognormal(-2, 0.5, 400)
    alone = [Call(0.0, 0.0, wait, 9.0, 3, [wait, 2 * wait]) for wait in waits] + [Call(0.0, 0.0)]
    twice = [Call(0.0, 0.0, call.first and 2 * call.first, 9.0, 3, [2 * gap for gap in call.gaps]) for call in alone]
    for kind in ("ttft", "itl"):
        assert ratio(alone, twice, kind, 95) == (2.0, 2.0, 2.0)
    value, low, high = ratio(alone, [Call(0.0, 0.0, 1.1 * wait, 9.0) for wait in waits[::-1]], "ttft", 95)
    assert low < value < high
    assert value == pytest.approx(1.1, abs=1e-3)
