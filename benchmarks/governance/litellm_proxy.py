"""The proxy that our budgets are compared with: LiteLLM in front of the same fake engine.

Its budgets of keys need a PostgreSQL client that is downloaded at its first start. A budget of a deployment, which it keeps in
memory, needs none and is settled in the same way: after each call.
"""

import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

from app import processes
from benchmarks.gateway.installation import running
from benchmarks.governance.callers import Budgeted
from benchmarks.harness import MODEL
from benchmarks.peer import PeerMissingError, environment

NAME = "litellm"
VERSION = "1.106.2"
START_SECONDS = 120.0
TOKEN_PRICE = 1e-6
_KEY = "sk-benchmark-0123456789abcdef0123456789abcdef"


@contextlib.contextmanager
def proxy(folder: Path, engine: str, tokens: int) -> Iterator[Budgeted | str]:
    """Run it with a budget for so many tokens. Yields the reason if it cannot be installed."""
    try:
        command = str(environment(NAME, VERSION, "[proxy]") / "bin" / NAME)
    except PeerMissingError as error:
        yield str(error)
        return
    config, port = folder / "litellm.json", processes.free_port()  # JSON is YAML too
    config.write_text(json.dumps(_config(engine, tokens)))
    base = f"http://127.0.0.1:{port}"
    arguments = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "litellm.log").open("w") as log, running([command, *arguments], log) as process:
        if not _healthy(f"{base}/health/liveliness", process):
            yield f"{NAME} {VERSION} did not start within {START_SECONDS:.0f} s"
            return
        yield Budgeted(base, {"authorization": f"Bearer {_KEY}"})


def _config(engine: str, tokens: int) -> dict[str, object]:
    price = {"input_cost_per_token": TOKEN_PRICE, "output_cost_per_token": TOKEN_PRICE}
    budget = {"max_budget": tokens * TOKEN_PRICE, "budget_duration": "30d"}
    target = {"model": f"openai/{MODEL}", "api_base": f"{engine}/v1", "api_key": "none", **price, **budget}
    return {
        "model_list": [{"model_name": MODEL, "litellm_params": target}],
        "litellm_settings": {"num_retries": 0},
        "general_settings": {"master_key": _KEY},
    }


def _healthy(url: str, process: "subprocess.Popen[str]") -> bool:
    deadline = monotonic() + START_SECONDS
    while monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
            if answer.status == 200:
                return True
        sleep(0.2)
    return False
