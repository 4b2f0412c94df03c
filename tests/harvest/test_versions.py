"""Every supported vLLM, in an environment of its own. `make engines` builds the environments and writes the documents' table."""

import pytest

from testing import vllm_versions
from workers.engine.vllm_versions import SUPPORTED


@pytest.mark.slow
@pytest.mark.parametrize("version", SUPPORTED)
def test_the_plug_in_passes_its_checks_in_this_version(version: str) -> None:
    results = vllm_versions.check(version)
    if results["facts"].startswith("not run"):
        pytest.skip(f"vLLM {version} is not run: `make engines` builds its environment")
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
