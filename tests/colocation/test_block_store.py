"""A stored block is read back unchanged, and blocks of other machines or options are refused."""

import numpy as np
import pytest

from benchmarks.colocation.block_store import Block, BlockStore
from benchmarks.colocation.run_samples import RunSamples
from benchmarks.colocation.sync_callers import Call

HERE = {"machine": "this one", "rate": 2.0}


def block():
    outcome = RunSamples(
        seconds=10.5,
        ttft=np.array([0.1, 0.2]),
        itl=np.array([]),
        prompt_tokens=3,
        output_tokens=4,
        wasted=0,
        unserved=1,
        evicted=0,
        preempted=0,
        faults=0,
        yields=2,
        plan=np.array([]),
    )
    return Block(outcome, [Call(0.5, 0.6, 0.7, 0.9, 2, [0.1, 0.1]), Call(1.0, 1.0, error="HTTP 503")], 0.25)


def test_a_later_run_finds_what_was_done(tmp_path):
    made = block()
    BlockStore(tmp_path / "runs", HERE).store("ours", "poisson", 1, made)
    kept = BlockStore(tmp_path / "runs", HERE)
    assert kept.has("ours", "poisson", 1)
    assert not kept.has("ours", "poisson", 2)
    found = kept.load("ours", "poisson", 1)
    assert (found.calls, found.idle) == (made.calls, made.idle)
    assert found.outcome.ttft.tolist() == [0.1, 0.2]
    assert (found.outcome.seconds, found.outcome.yields) == (10.5, 2)
    assert np.percentile(np.concatenate([found.outcome.itl, [1.0]]), 50) == 1.0


def test_another_machine_or_other_options_are_refused(tmp_path):
    BlockStore(tmp_path, HERE)
    with pytest.raises(SystemExit, match="another machine"):
        BlockStore(tmp_path, HERE | {"rate": 3.0})


def test_without_a_folder_nothing_is_kept():
    kept = BlockStore(None, HERE)
    kept.store("ours", "poisson", 1, block())
    assert not kept.has("ours", "poisson", 1)
