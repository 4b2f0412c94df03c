"""The description that the real vLLM gives of itself, and the status that the installation reports."""

from typing import Any

import pytest

from app.engines.client import EngineClient
from app.engines.dialects import VLLM_TERMS
from testing.waiting import wait_for
from tests.system.stack import MODEL, Stack

pytestmark = pytest.mark.slow


async def test_the_real_engine_tells_its_name_its_window_and_its_version(engine_url: str, engine_token: str) -> None:
    async with EngineClient(engine_url, {"authorization": f"Bearer {engine_token}"}, timeout_seconds=5) as client:
        seen = await client.look()
        assert await client.task() == "text-generation"
    assert seen.terms == VLLM_TERMS
    assert seen.windows == {MODEL: 8192}
    assert seen.version
    assert seen.policy is None  # it would in development mode


def test_the_status_of_a_managed_engine_is_ok_and_its_protection_inside(stack: Stack, engine_url: str) -> None:
    def calm() -> dict[str, Any] | None:
        """The status once the scheduler in the engine has reported its first steps."""
        said: dict[str, Any] = stack.client.get("/status").json()
        return said if said["status"] == "ok" and said["engines"][0]["protection"] == "inside" else None

    request_id = stack.submit([{"prompt": "Say hello.", "max_tokens": 8}])
    assert wait_for(lambda: stack.poll(request_id))
    found = wait_for(calm)
    [engine] = found["engines"]
    expected = {"model": MODEL, "serves": [MODEL], "max_model_len": 8192, "mode": "managed", "state": "ready"}
    assert expected.items() <= engine.items()
    assert (engine["scheduling_policy"], found["problems"]) == ("priority", [])
    assert engine_url not in str(found)
