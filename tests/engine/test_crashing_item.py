"""A request that really crashes vLLM, in an installation of its own: it starts the engine three times (2.5 minutes).

pytest -m slow tests/engine/test_crashing_item.py
"""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.settings import PACKAGE
from testing.waiting import LOADING_SECONDS, wait_for
from tests.system.stack import Stack, running
from tests.timing import note

pytestmark = pytest.mark.slow


@pytest.fixture
def unmended() -> Iterator[Stack]:
    """On CPU vLLM 0.32 dies of a seed whose prompt takes several steps, unless the catalogue's mending is left in."""
    models = (PACKAGE / "models.toml").read_text()
    mending = re.compile(r'^ *"--worker-extension-cls".*\n', re.MULTILINE)
    assert mending.search(models)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder) / "models.toml"
        file.write_text(mending.sub("", models))
        with running(real_engine=True, models_file=file, idle_step_ms=60_000) as stack:
            yield stack


def test_an_item_that_really_crashes_vllm_costs_two_restarts_and_its_neighbours_nothing(unmended: Stack) -> None:
    items: list[dict[str, object]] = [{"prompt": f"Count to {n}.", "max_tokens": 8} for n in range(12)]
    items[5] = {"prompt": "tide " * 600, "seed": 7, "max_tokens": 4}
    request_id = unmended.submit(items)
    result = wait_for(lambda: unmended.poll(request_id), seconds=LOADING_SECONDS)
    assert [response["id"] for response in result["responses"] if not response["success"]] == [5]
    assert "the engine died 2 times while this item was running" in result["responses"][5]["error"]["message"]
    deaths = unmended.log.read_text().count("engine.died")
    note(f"an item that crashes vLLM among 12: {deaths} engine deaths, 11 answers")
    assert deaths == 2
