"""A vLLM started by hand with our door, and an installation attached to it: callers keep the engine's URL."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from app.engines import catalogue, model_weights
from app.engines.engine_key import door_token
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, LOADING_SECONDS, wait_for
from tests.engine.conftest import models_in
from tests.system.stack import ACCOUNT, MODEL, Stack
from workers.engine.door.middleware import PAGE
from workers.engine.door.settings import OUR_HEADER
from workers.gpu.managed_engine import vllm_command, vllm_environment

pytestmark = pytest.mark.slow

INNER_KEY = "the-engine's-own-key"
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]


class DoorStack(Stack):
    """An installation, and a vLLM that is none of its processes."""

    def start_door(self, page_dir: Path) -> None:
        """Start vLLM with the door."""
        model = catalogue.load(self.settings.models_file).resolve(MODEL)
        assert model is not None
        model_weights.prepare(Settings(), model)
        command = vllm_command(model, Settings().data_dir, self.engine_port)
        door = {
            "SLACKWATER_DOOR_TOKEN": self.token,
            "SLACKWATER_DOOR_API": f"http://127.0.0.1:{self.settings.port}",
            "SLACKWATER_PAGE_DIR": str(page_dir),
            "VLLM_API_KEY": INNER_KEY,
            "VLLM_CPU_KVCACHE_SPACE": "1",
        }
        with self.log.with_name("engine.log").open("wb") as log:
            self.engine = subprocess.Popen(
                [*command, "--enforce-eager", "--middleware", "workers.engine.door.Door"],
                env={**vllm_environment(model), **door, "PYTHONPATH": os.getcwd()},
                stdout=log,
                stderr=log,
            )
        wait_for(self._is_healthy, "the engine loaded", seconds=LOADING_SECONDS)

    def _is_healthy(self) -> bool:
        assert self.engine
        assert self.engine.poll() is None, "the engine has ended; see its log"
        return httpx.get(f"http://127.0.0.1:{self.engine_port}/health").status_code == 200

    @property
    def token(self) -> str:
        secret = self.settings.secret_key.get_secret_value().encode()
        return door_token(secret, self.settings.engine_name)

    def page(self) -> dict[str, Any]:
        """The door's counters."""
        url = f"http://127.0.0.1:{self.engine_port}{PAGE}"
        found: dict[str, Any] = httpx.get(url, headers={OUR_HEADER.decode(): self.token}).json()
        return found


@pytest.fixture(scope="module")
def door_stack() -> Iterator[DoorStack]:
    with tempfile.TemporaryDirectory(prefix="slackwater-door-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (pages := folder / "pages").mkdir()
        models = models_in("float32", folder)
        changes = {"engine_api_key": INNER_KEY, "page_dir": str(pages), "models_file": models, "engine_slots": 32}
        stack = DoorStack(folder, **changes, idle_step_ms=60_000, batch_min_in_flight=4)
        try:
            stack.start_door(pages)
            stack.start()
            wait_for(lambda: stack.query("select 1 from engine where state = 'ready'"), "the engine attached")
            yield stack
        finally:
            for log in folder.glob("*.log"):  # pytest shows them if the test fails
                print(log.name, log.read_text()[-4000:])
            if stack.engine:
                stack.engine.terminate()  # before the kill, so that vLLM ends the processes that compute
                stack.engine.wait(LIMIT_SECONDS)
            stack.close()


def client_of(stack: DoorStack, key: str | None = None) -> openai.OpenAI:
    return openai.OpenAI(
        api_key=key or stack.key, base_url=f"http://127.0.0.1:{stack.engine_port}/v1", timeout=120, max_retries=0
    )


def admitted(client: openai.OpenAI) -> bool:
    """Whether the door knows the key. An API that has just started may be too slow for the first question."""
    try:
        return bool(client.models.list().data)
    except openai.InternalServerError:
        return False


def test_callers_keep_the_engines_url_beside_batch_work_and_without_the_api(door_stack: DoorStack) -> None:
    client = client_of(door_stack)
    wait_for(lambda: admitted(client), "the API answered the door")
    with pytest.raises(openai.AuthenticationError):
        client_of(door_stack, "sk_sw_0_wrong").chat.completions.create(model=MODEL, messages=CAPITAL)
    items = [{"prompt": f"Count up from {n}.", "max_tokens": 24, "ignore_eos": True} for n in range(24)]
    batch = door_stack.submit(items)
    wanted = {"priority": -9, "cache_salt": "mine", "request_id": "mine"}
    for _ in range(4):
        answer = client.chat.completions.create(
            model=MODEL,
            messages=CAPITAL,
            max_tokens=16,
            temperature=0,
            extra_body=wanted,
            extra_headers={"X-Vllm-Priority": "-9"},
        )
        assert "Paris" in str(answer.choices[0].message.content)
    stream = client.chat.completions.create(model=MODEL, messages=CAPITAL, max_tokens=16, temperature=0, stream=True)
    assert "Paris" in "".join(event.choices[0].delta.content or "" for event in stream)
    wait_for(lambda: door_stack.poll(batch), "the batch completed beside them")
    result = door_stack.poll(batch)
    assert result
    assert all(each["success"] for each in result["responses"])
    page = door_stack.page()
    assert page["faults"] == {}
    assert page["cleaned"] == 4
    assert page["announced"] == page["accounts"][ACCOUNT]["requests"] == 5
    assert page["accounts"][ACCOUNT]["completion_tokens"] >= 5
    assert page["ours"] >= len(items)
    assert page["open"] == 0
    door_stack.stop()
    answer = client.chat.completions.create(model=MODEL, messages=CAPITAL, max_tokens=16, temperature=0)
    assert "Paris" in str(answer.choices[0].message.content)
    with pytest.raises(openai.APIStatusError) as refused:
        client_of(door_stack, "sk_sw_0_other").chat.completions.create(model=MODEL, messages=CAPITAL)
    assert refused.value.status_code == 503
