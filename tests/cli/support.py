"""What the tests of the command line share: one run of it, and an HTTP server with the pages of an engine or an API."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from app.settings import Settings, child_environment
from testing.fakes.engine import METRICS

GAUGES = METRICS.format(model="m", running=0, waiting=0, kv=0.0, prompt_tokens=0, generation_tokens=0)
PRIORITY = '{"vllm_config": {"scheduler_config": {"policy": "priority"}}}'
INFO = "/server_info?config_format=json"


def slackwater(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One run of the command line."""
    command = [sys.executable, "-m", "app.cli.main", *arguments]
    environment = child_environment(settings, {"COLUMNS": "200"})
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)


@contextmanager
def serving(pages: dict[str, str]) -> Iterator[str]:
    """A real HTTP server with these pages; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in pages else 404)
            self.end_headers()
            self.wfile.write(pages.get(self.path, "").encode())

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def engine_pages(*names: str, window: int = 8192, **pages: str) -> dict[str, str]:
    """What a running vLLM answers."""
    models = json.dumps({"data": [{"id": name, "max_model_len": window} for name in names]})
    usual = {
        "/health": "",
        "/version": '{"version": "0.32.0"}',
        "/v1/models": models,
        "/metrics": GAUGES,
        INFO: PRIORITY,
    }
    return usual | pages
