"""`slackwater up`: everything on this machine until Ctrl-C."""

import asyncio
import sys

import structlog
from rich.console import Console
from rich.markup import escape

from app.cli import admin
from app.cli.address import base_url, bind_problem, until_ready
from app.cli.doctor import require_engine
from app.cli.supervisor import Supervisor, on_signals
from app.failure import Failure
from app.settings import Settings

log = structlog.get_logger("supervisor")
ACCOUNT = "local"


def up(settings: Settings, console: Console) -> None:
    """Run until told to stop. While its account has no live key, one is made and shown. Raises Failure."""
    require_engine(settings)
    if problem := bind_problem(settings):
        remedy = "Stop what listens there, or choose another port: SLACKWATER_PORT or --port."
        raise Failure(f"The API cannot listen on port {settings.port} of {settings.host}: {problem}", remedy)
    asyncio.run(_up(settings, console))


async def _up(settings: Settings, console: Console) -> None:
    supervisor = Supervisor(settings, sys.stderr)
    on_signals(supervisor)
    greeting = asyncio.create_task(_greet(settings, supervisor, console))
    try:
        await supervisor.run()
    finally:
        greeting.cancel()


async def _greet(settings: Settings, supervisor: Supervisor, console: Console) -> None:
    """Say where the API is once it answers. A key that cannot be made is no reason to stop, but it is said."""
    await supervisor.ready.wait()
    await until_ready(settings)
    url = f"{base_url(settings)}/client/v4/accounts/{ACCOUNT}/ai/run/{settings.engine_model}?queueRequest=true"
    lines = [f"\n[bold]Slackwater[/] takes batches at\n  {escape(url)}"]
    try:
        if not await asyncio.to_thread(admin.has_key, settings, ACCOUNT):
            key = await asyncio.to_thread(admin.create_key, settings, ACCOUNT, "first key", None)
            lines.append(f"API key of account [bold]{ACCOUNT}[/], shown this once:\n  {key}")
    except Exception as error:
        log.error("key.not_made", error=str(error), remedy=f"slackwater key create --account {ACCOUNT}")
    lines.append(f"Data, logs and the model are in {escape(str(settings.data_dir))}. Ctrl-C stops everything.\n")
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
