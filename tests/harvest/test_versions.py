"""Every supported vLLM, in an environment of its own, which is built once. `make engines` writes the documents' table."""

import subprocess
from pathlib import Path

import pytest

from testing import vllm_versions
from tests import needs
from workers.engine.vllm_versions import SUPPORTED

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("version", SUPPORTED)
def test_the_plug_in_passes_its_checks_in_this_version(version: str) -> None:
    subprocess.run([ROOT / "deploy" / "engines.sh", version], check=True)
    results = vllm_versions.check(version)
    if results["facts"].startswith("not run"):
        needs.missing(f"vLLM {version}: {results['facts']} (deploy/engines.sh {version})")
    assert not [result for result in results.values() if result.startswith("failed")]


def test_a_version_that_fails_one_check_is_not_supported() -> None:
    passed = {"facts": "3 passed", "features": "2 passed", "decisions": "1 passed", "real batch": "not run: no wheel"}
    made = vllm_versions.summary(
        {
            "0.1": passed,
            "0.2": passed | {"decisions": "failed: step 3"},
            "0.3": dict.fromkeys(passed, "not run: no environment"),
        }
    )
    assert (made["versions_supported"], made["versions_failed"]) == (["0.1"], ["0.2"])
    assert made["not_run"] == {"0.1": "not run: no wheel", "0.2": "not run: no wheel"}
