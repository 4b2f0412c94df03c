"""The attached side is compared with the managed one; without the setting, the track says why it did not run."""

import argparse

import numpy as np

from app.settings import Settings
from benchmarks.colocation import track_attached
from benchmarks.colocation.run_samples import RunSamples
from benchmarks.colocation.sync_callers import Call
from workers.engine.control_page import Report, Weights
from workers.engine.page_folder import OwnPage


def run_of(tokens):
    none = np.array([])
    return RunSamples(10.0, none, none, 0, tokens, 0, 0, 0, 0, 0, 0, none)


def test_the_attached_side_as_a_multiple():
    calls = [Call(n, n, n + 0.1, n + 0.3, 3, [0.1, 0.1]) for n in range(20)]
    found = track_attached.compared(
        {"managed": [run_of(1000), run_of(1000)], "attached": [run_of(900), run_of(1000)]},
        {"managed": calls, "attached": calls},
    )
    assert found["attached_l2_harvest_ratio"] == 0.95
    assert found["attached_ttft_p95_x"]["value"] == 1.0
    assert found["errors"] == {"managed": 0, "attached": 0}


def test_without_the_setting_it_says_so(monkeypatch):
    monkeypatch.setattr(track_attached, "SETTING", "no_such_setting")
    assert "no_such_setting" not in Settings.model_fields
    assert "no_such_setting" in track_attached.run(argparse.Namespace())["not_run"]


def test_figures_count_only_while_the_page_says_that_our_scheduler_shares_the_steps(tmp_path):
    assert not track_attached.rules(tmp_path / "pages")
    own = OwnPage(tmp_path / "pages", 0, b"one engi")
    assert not track_attached.rules(tmp_path / "pages")
    for report, ruled in (
        (Report(planning=True), True),
        (Report(planning=True, silent=True), False),
        (Report(), False),
    ):
        own.page.publish(report, Weights())
        assert track_attached.rules(tmp_path / "pages") is ruled
    own.close()
