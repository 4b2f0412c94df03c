"""How often a yielded request has the same answer in bfloat16, where near-ties are common: a rate, not a claim.

pytest -m slow tests/engine/test_bf16.py
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app import processes
from app.db.pool import Database
from app.environment import child_environment
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, LOADING_SECONDS, wait_for
from tests.engine.continued import compared
from tests.engine.support import attaching, models_in
from tests.timing import note

pytestmark = pytest.mark.slow


@pytest.fixture
def url() -> Iterator[str]:
    """A vLLM of its own, without our scheduler."""
    port = processes.free_port()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(models_file=models_in("bfloat16", Path(folder)))
        command = [sys.executable, "-m", "workers.gpu.engine", str(port)]
        with (Path(folder) / "engine.log").open("wb") as log:
            engine = subprocess.Popen(command, env=child_environment(settings, {}), stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(
                lambda: httpx.get(f"{url}/health").status_code == 200, "the engine loaded", seconds=LOADING_SECONDS
            )
            yield url
        finally:
            engine.terminate()
            engine.wait(LIMIT_SECONDS)


async def test_in_bfloat16_every_yielded_request_is_answered_and_the_rate_of_equal_ones_is_told(
    url: str, settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with attaching(url, settings, database) as world:
        both = await compared(world, 55, monkeypatch)
    note(f"yield and resume in bfloat16: {both.summary()}")
    assert len(both.yielded) >= 50
    for cut, whole in zip(both.cut, both.whole, strict=True):
        assert cut.prompt_tokens == whole.prompt_tokens
        assert cut.completion_tokens == len(cut.transcript.output_ids)
