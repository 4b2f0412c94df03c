"""vLLM's own HTTP server with a fake chat behind it, once bare and once for each kind of door, in one process.

    python -m benchmarks.door.server --ports BARE,DOOR,KEYS --core 0 --api URL --page-dir FOLDER

The routes, the validation, uvicorn with httptools, and uvloop are those of `vllm serve`. The chat answers at once with a stream.
"""

import argparse
import asyncio
import os
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import uvloop
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.entrypoints.launchers.launcher import serve_http
from vllm.utils.argparse_utils import FlexibleArgumentParser

TOKEN = "engine-0.benchmark"
ANSWER_TOKENS = 8


class FakeChat:
    """In the place of vLLM's chat."""

    async def create_chat_completion(self, request: Any, raw_request: Any) -> AsyncIterator[str]:
        return self._stream()

    async def _stream(self) -> AsyncIterator[str]:
        for number in range(ANSWER_TOKENS):
            yield f'data: {{"choices":[{{"index":0,"delta":{{"content":"token {number}"}}}}]}}\n\n'
            await asyncio.sleep(0)
        yield "data: [DONE]\n\n"


def application(environment: dict[str, str] | None) -> Any:
    """vLLM's application, behind a door with these variables; None: bare. vLLM creates the door in `build_app`."""
    os.environ.update(environment or {})
    flags = [] if environment is None else ["--middleware", "workers.engine.door.Door"]
    parser = make_arg_parser(FlexibleArgumentParser())  # type: ignore[no-untyped-call]
    app = build_app(parser.parse_args(["--model", "fake", *flags]), ("generate",))
    app.state.openai_serving_chat = FakeChat()
    app.state.engine_client = None
    app.state.enable_server_load_tracking = app.state.log_stats = False
    app.state.args = SimpleNamespace(sse_keep_alive_interval=0, enable_ssl_refresh=False, log_error_stack=False)
    return app


async def serve(ports: list[int], api: str, page_dir: str) -> None:
    """Serve all three until killed; prints `ready` once they listen."""
    variables = {"SLACKWATER_DOOR_TOKEN": TOKEN, "SLACKWATER_PAGE_DIR": page_dir}
    kinds = (None, variables, {**variables, "SLACKWATER_DOOR_API": api})
    plain: dict[str, Any] = {"host": "127.0.0.1", "log_level": "warning", "access_log": False, "timeout_keep_alive": 5}
    servers = [
        asyncio.create_task(serve_http(application(kind), None, port=port, **plain))
        for kind, port in zip(kinds, ports, strict=True)
    ]
    for port in ports:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            break
    print("ready", flush=True)
    await asyncio.gather(*servers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ports", required=True)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--api", required=True)
    parser.add_argument("--page-dir", required=True)
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {given.core})
    uvloop.run(serve([int(port) for port in given.ports.split(",")], given.api, given.page_dir))
