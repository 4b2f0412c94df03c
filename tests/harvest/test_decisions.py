"""The recorded decisions are those of every supported vLLM; `make engines` runs this in each."""

import pytest
import vllm

from tests.harvest import decisions
from workers.engine.vllm_versions import SUPPORTED, public

pytestmark = pytest.mark.slow

VERSION = public(vllm.__version__)


@pytest.mark.parametrize("load", decisions.loads())
@pytest.mark.parametrize("name", decisions.CLASSES)
def test_this_vllm_decides_as_recorded_or_as_explained(load: str, name: str) -> None:
    made, recorded = decisions.record(decisions.CLASSES[name], load), decisions.expected()[load][name]
    first = next((n for n, pair in enumerate(zip(made, recorded, strict=True)) if pair[0] != pair[1]), None)
    reason = decisions.explanations().get(VERSION, {}).get(f"{load}, {name}")
    if reason is None:
        assert first is None, f"step {first}: {made[first]} instead of {recorded[first]}"
    else:
        assert first is not None, f"nothing differs any more; delete: {reason}"


def test_only_supported_versions_are_explained() -> None:
    assert set(decisions.explanations()) <= set(SUPPORTED)
