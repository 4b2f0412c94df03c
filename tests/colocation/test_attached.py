"""The attached side is compared with the managed one; without the setting, the track says why it did not run."""

import argparse

import numpy as np
import pytest

from app.settings import Settings
from benchmarks.colocation import track_attached, track_first
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


def test_the_first_callers_beside_batch_work_as_a_multiple_of_those_alone():
    alone = [Call(n, n, n + 0.1, n + 0.3, 3, [0.1, 0.1]) for n in range(9)]
    beside = [*(Call(n, n, n + 0.12, n + 0.3, 3, [0.1, 0.1]) for n in range(8)), Call(8, 8, error="HTTP 503")]
    routes = dict.fromkeys(track_first.ROUTES, alone)
    found = track_first.compared("plain", routes, routes | {"gateway": beside})
    assert found["first_plain_gateway_x"]["value"] == pytest.approx(1.2)
    assert found["first_plain_gateway_ms"] == {"alone": 100.0, "beside": 120.0}
    assert (found["first_plain_direct_errors"], found["first_plain_gateway_errors"]) == (0, 1)


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
