"""The `/metrics` page of a background process, at a fixed port that its settings name; with it `/live`, for whoever watches it.

Metrics never keep a process from its work: while the port is taken, that is logged once and tried again.
"""

import asyncio
from collections.abc import Callable

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from app import life_signs, processes

AGAIN_SECONDS = 5.0
log = structlog.get_logger(__name__)


async def live(request: web.Request) -> web.Response:
    """503 once a loop for which this process lives stands still."""
    return (
        web.json_response({"status": "still"}, status=503)
        if life_signs.still()
        else web.json_response({"status": "ok"})
    )


async def serve(host: str, port: int, variable: str, render: Callable[[], bytes]) -> None:
    """Answer `GET /metrics` with what `render` gives, until cancelled; with port 0 return at once.

    `variable`: the setting of the port, for the log.
    """
    if not port:
        return

    async def scrape(request: web.Request) -> web.Response:
        return web.Response(body=render(), headers={"content-type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/metrics", scrape)
    app.router.add_get("/live", live)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await _listen(runner, host, port, variable)
        log.info("metrics.serving", url=f"{processes.address(host, port)}/metrics")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int, variable: str) -> None:
    """Return once the port is ours."""
    warned = False
    while True:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            await site.stop()
            if not warned:
                remedy = f"free the port, or set {variable} (0: no page)"
                log.warning("metrics.port_taken", host=host, port=port, error=error.strerror, remedy=remedy)
            warned = True
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            return
