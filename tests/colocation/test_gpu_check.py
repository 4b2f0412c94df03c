"""The check on a GPU, whole, at its reduced size on a CPU: the script, one engine, each kind of piece, the tables."""

import json
import subprocess
from pathlib import Path

import pytest

from tests import needs

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 3600  # on a loaded machine
SHARE = "88 % of the knee"


@pytest.fixture(scope="module", autouse=True)
def vllm() -> None:
    needs.module("vllm")


def run(out: Path, *options: str) -> dict[str, object]:
    command = [str(ROOT / "deploy" / "gpu-check.sh"), "--size", "small", "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(SECONDS + 60)
def test_one_run_of_the_check_has_a_figure_of_every_piece(tmp_path):
    out = tmp_path / "out"
    plan = "steps,ramp,alone@88,l2@88,priority@88"
    found = run(out, "--minutes", str(SECONDS / 60), "--pieces", plan)
    assert found["failed"] == {}
    assert found["left"] == []
    assert found["knee"]["rate"] > 0
    assert found["step_times"]["fitted_errors"]["steps"]["all"]["steps"] > 0
    for arm in ("sync_only", "l2", "priority"):
        assert found["arms"][arm][SHARE]["cycles"] == 1
        assert found["arms"][arm][SHARE]["ttft_p95_ms"] > 0
    assert found["arms"]["sync_only"][SHARE]["batch_tok_s"] == 0
    assert found["arms"]["priority"][SHARE]["batch_tok_s"] > 0
    assert {"ttft_p99_ms", "itl_p99_ms", "batch_tok_s"} <= found["verdict"]["ttft_p95_at_88"].keys()
    assert sorted(path.name for path in out.iterdir() if path.suffix != ".png") == [
        "engine.log",
        "pieces.jsonl",
        "result.json",
        "table.md",
        "up.log",
    ]
    printed = run(out, "--minutes", "0", "--resume", "--pieces", plan)
    assert printed["arms"] == found["arms"]
