"""What runs inside vLLM, tested in one process that imports it: it takes seconds, which each process of a run would need."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from tests import needs, sets

ROOT = Path(__file__).parents[2]
FILES = (
    *(
        f"tests/harvest/test_{name}.py"
        for name in ("canaries", "decisions", "features", "plugin", "scheduler", "step_stats")
    ),
    *(f"tests/harvest/test_{name}.py" for name in ("transfers", "worker_link")),
    "tests/door/test_vllm_server.py",
    "tests/gpu/test_key_check.py",
    "tests/batches/test_parts_as_vllm_reads_them.py",
    "tests/engines/test_cpu_seeds.py",
)


def test_what_runs_inside_vllm_keeps_its_claims_there() -> None:
    if sets.everything():
        return  # the files run by themselves
    if importlib.util.find_spec("vllm") is None:
        needs.missing("vLLM is not installed: pip install '.[cpu]'")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *FILES]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:]
