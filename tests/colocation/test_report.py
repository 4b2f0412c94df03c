"""The format of tables, verdict and plot."""

import json

import pytest

from tests import needs

np = needs.module("numpy", "dev")

from benchmarks.colocation.report import draw, markdown, shared  # noqa: E402
from benchmarks.colocation.result_table import LATENCIES, table_with_ratios, tabulate  # noqa: E402
from benchmarks.colocation.run_samples import RunSamples  # noqa: E402

KEYS = {"ttft_p50_x", "ttft_p99_x", "itl_p50_x", "itl_p95_x", "itl_p99_x", "batch_tok_s", "harvest", "wasted_tok_s"}


def outcome(latency, tokens, plan=()):
    samples = np.linspace(0, latency, 101)
    return RunSamples(10.0, samples, samples / 10, tokens, 0, 50, 0, 0, 0, 0, 0, np.array(plan))


@pytest.fixture
def table():
    runs = {
        ("sync_only", "burst"): [outcome(1.0, 0), outcome(1.0, 0)],
        ("batch_only", "burst"): [
            RunSamples(10.0, np.array([]), np.array([]), 4000, 0, 0, 0, 0, 0, 0, 0, np.array([]))
        ],
        ("priority", "burst"): [outcome(4.0, 2000)],
        ("l2", "burst"): [outcome(1.1, 1500, [1e-4, 3e-4])],
    }
    return table_with_ratios(tabulate(runs))


def test_every_arm_has_the_promised_keys(table):
    assert all(by_workload["burst"].keys() >= KEYS for by_workload in table.values())
    assert json.loads(json.dumps(table)) == table


def test_the_clients_of_one_engine_and_whether_they_agree():
    row = {"client": "AIPerf", "client_version": "0.13.0", **{f"{k}_p{q}_ms": 1234.5 for k, q in LATENCIES}}
    text = markdown(
        {"arms": {}, "clients": {"aiperf": row}, "outside_client_agreement": {"aiperf": {"within_5_percent": False}}}
    )
    assert "| TTFT p50 |" in text
    assert "| aiperf: AIPerf 0.13.0 | 1,234.5 |" in text
    assert text.strip().endswith("| no |")


def test_ratios_are_over_synchronous_callers_alone_and_the_flood(table):
    l2 = table["l2"]["burst"]
    assert l2["ttft_p99_x"] == pytest.approx(1.1)
    assert l2["itl_p50_x"] == pytest.approx(1.1)
    assert (l2["batch_tok_s"], l2["harvest"], l2["of_batch_only"]) == (150, 0.75, 0.375)
    assert (l2["plan_us_p50"], l2["wasted_tok_s"]) == (200, 5)


def test_an_arm_without_callers_has_no_latency(table):
    assert table["batch_only"]["burst"]["ttft_p99_x"] is None


def test_the_table_shows_every_arm_and_the_verdict(table):
    line = {"holds": False, "values": {"burst": 1.2}, "at_most": 1.1}
    text = markdown(
        {"arms": table, "ablations": {"l2_evict": {"burst": table["l2"]["burst"]}}, "verdict": {"promise": line}}
    )
    assert all(f"| {arm} |" in text for arm in table)
    assert "| l2_evict, burst |" in text
    assert "**fails**: `promise`" in text


def test_each_workload_has_a_picture_of_every_arm_with_callers(table, tmp_path):
    needs.module("matplotlib", "dev")
    assert [each.arm for each in shared(table, "burst")] == ["priority", "l2"]
    draw(tmp_path, {"arms": table})
    assert [each.name for each in tmp_path.iterdir()] == ["sharing-burst.png"]
