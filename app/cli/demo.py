"""`slackwater demo`: starts the whole system, submits one batch of real prompts over HTTP, and shows the results."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from app import processes, telemetry
from app.api_url import base_url
from app.batches.validation import strict_json
from app.cli import demo_output, engine, privacy
from app.cli.api_address import until_ready
from app.cli.doctor import require_engine
from app.cli.key import create_key, revoke_key
from app.cli.receiver import Receiver
from app.cli.supervisor import Supervisor, on_signals
from app.engines import catalogue
from app.engines import model_weights as weights
from app.events import EventKind
from app.quantities import duration
from app.settings import DEMO_MODELS, Settings
from app.tenants.key_scope import EVERYTHING
from app.user_errors import Failure

MODEL = "@cf/openai/gpt-oss-120b"
ACCOUNT = "demo"
_ACCOUNT_PATH = f"/client/v4/accounts/{ACCOUNT}"
_SUBSCRIPTIONS = f"{_ACCOUNT_PATH}/event_subscriptions/subscriptions"
_EXAMPLES = Path(__file__).with_name("requests.jsonl")
_START_SECONDS = 60
_WEBHOOK_SECONDS = 30
_PATIENCE_SECONDS = 900


@dataclass(frozen=True)
class DemoPlan:
    """The inputs of a demo: the items, the name that they are sent to, and the settings of the installation.

    `all`: show every answer and webhook.
    """

    settings: Settings
    console: Console
    items: list[dict[str, Any]]
    model: str
    all: bool = False
    stages: demo_output.StageTimes = field(default_factory=demo_output.StageTimes)

    @property
    def answered_by(self) -> str:
        """The model whose engine answers, where it is not the one that the requests name."""
        model = catalogue.load(self.settings.models_file).resolve(self.model)
        return model.served if model is not None and model.served != model.name else ""

    @property
    def log_file(self) -> Path:
        """The file that all parts log to, because the demo uses the terminal."""
        return self.settings.data_dir / "logs" / "demo.log"


def demo(settings: Settings, console: Console, requests: Path | None, *, show_all: bool = False) -> None:
    """Run the demo. Raises Failure when something does not work; leaves nothing running.

    Unless a catalogue is set, it has the names of Workers AI that the demo's own asks for.
    """
    if "models_file" not in settings.model_fields_set:
        settings = settings.model_copy(update={"models_file": DEMO_MODELS})
    items = read_items(requests or _EXAMPLES)
    settings = require_engine(settings, answering=True)
    changes = {"port": processes.free_port(), "webhook_allow_private": "loopback", "log_format": "console"}
    # a running `slackwater up` may use these ports
    changes |= {
        "worker_metrics_port": 0,
        "notifier_metrics_port": 0,
        "maintenance_metrics_port": 0,
        "steward_metrics_port": 0,
        "console_port": 0,
    }
    asyncio.run(_demo(DemoPlan(settings.model_copy(update=changes), console, items, model_name(settings), show_all)))


def read_items(file: Path) -> list[dict[str, Any]]:
    """The requests of an NDJSON file. Raises Failure that names the line, OSError."""
    items = []
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                item = strict_json.loads(line)
            except strict_json.JsonError as error:
                raise Failure(
                    f"{file}, line {number}: {error.reason}", "Each line is one request as a JSON object."
                ) from error
            if not isinstance(item, dict):
                raise Failure(f"{file}, line {number}: no JSON object", "Each line is one request as a JSON object.")
            items.append(item)
    if not items:
        raise Failure(f"{file} holds no requests.", "Each line is one request as a JSON object.")
    return items


def model_name(settings: Settings) -> str:
    """The well-known model name if this installation's engine serves it, else the name in the settings."""
    models = catalogue.load(settings.models_file)
    known, own = models.resolve(MODEL), models.resolve(settings.engine_model)
    return MODEL if known and own and known.served == own.served else settings.engine_model


async def _demo(plan: DemoPlan) -> None:
    if not plan.settings.attached_to:
        await _prepare(plan)
    plan.log_file.parent.mkdir(parents=True, exist_ok=True)
    with plan.log_file.open("w") as log:
        telemetry.configure(plan.settings, "demo", log)
        privacy.warn(plan.settings)
        supervisor = Supervisor(plan.settings, log, command="demo")
        on_signals(supervisor)
        try:
            await attended(supervisor, _watch(plan, supervisor))
        except httpx.TransportError as error:
            raise Failure(f"The API does not answer: {error!r}", f"The log is {plan.log_file}.") from error
    plan.stages.done("shut down")
    demo_output.times(plan.console, plan.stages, plan.log_file)
    demo_output.next_steps(plan.console, plan.settings)


async def attended(supervisor: Supervisor, watch: Coroutine[Any, Any, None]) -> None:
    """Run the system until `watch` returns. Raises Failure if the system was stopped or could not start."""
    running, watching = asyncio.create_task(supervisor.run()), asyncio.create_task(watch)
    stopping = asyncio.create_task(supervisor.stopping.wait())
    try:
        await asyncio.wait({running, watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            raise Failure("The demo was stopped.")
        if not running.done():
            await watching
    finally:
        for task in (watching, stopping):
            task.cancel()
        await asyncio.gather(watching, stopping, return_exceptions=True)
        supervisor.stop()
        await running


async def _prepare(plan: DemoPlan) -> None:
    model = catalogue.load(plan.settings.models_file).resolve(plan.settings.engine_model)
    if model is None:
        raise Failure(f"SLACKWATER_ENGINE_MODEL names no model of the catalogue: {plan.settings.engine_model}")

    def report(line: str) -> None:
        plan.console.print(line, markup=False, highlight=False, soft_wrap=True)

    with plan.console.status(f"Preparing the model {escape(model.served)} (once) …"):
        await asyncio.to_thread(weights.prepare, plan.settings, model, report)
    plan.stages.done("prepare the model")


async def _watch(plan: DemoPlan, supervisor: Supervisor) -> None:
    """Run the demo as an API client. Its key is revoked at the end."""
    with plan.console.status("Starting PostgreSQL, API, notifier, steward, maintenance and GPU worker …"):
        await supervisor.ready.wait()
        key = await asyncio.to_thread(create_key, plan.settings, ACCOUNT, "demo", 1, scope=EVERYTHING)
    try:
        await _wait_for_api(plan)
        options: dict[str, Any] = {"base_url": base_url(plan.settings), "timeout": 30, "trust_env": False}
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(headers=headers, **options) as client, Receiver() as receiver:
            await _wait_for_model(plan, client)
            await _drive(plan, client, receiver)
    finally:
        with suppress(Failure):  # if the database does not answer, the key expires after a day
            await asyncio.to_thread(revoke_key, plan.settings, key)


async def _wait_for_api(plan: DemoPlan) -> None:
    with plan.console.status("Waiting for the API …"):
        try:
            async with asyncio.timeout(_START_SECONDS):
                await until_ready(plan.settings)
        except TimeoutError:
            problem = f"The API did not come up within {_START_SECONDS} seconds."
            raise Failure(problem, f"The log is {plan.log_file}.") from None
    plan.stages.done("start the database and the API")


async def _wait_for_model(plan: DemoPlan, client: httpx.AsyncClient) -> None:
    """Wait until the API knows the model. A worker enters the model of an attached engine when it starts."""
    with plan.console.status(f"Waiting for the model {escape(plan.model)} …"):
        try:
            async with asyncio.timeout(_START_SECONDS):
                while (await client.get(f"/v1/models/{plan.model}")).status_code != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        except TimeoutError:
            problem = f"The model {plan.model} did not come up within {_START_SECONDS} seconds."
            raise Failure(problem, f"The log is {plan.log_file}.") from None


async def _drive(plan: DemoPlan, client: httpx.AsyncClient, receiver: Receiver) -> None:
    subscription = await _subscribe(plan, client, receiver)
    path = f"{_ACCOUNT_PATH}/ai/run/{plan.model}"
    submitted = _checked(await client.post(path, params={"queueRequest": "true"}, json={"requests": plan.items}))
    request_id = submitted["request_id"]
    plan.stages.done("submit")
    by = f" (answered by {escape(plan.answered_by)})" if plan.answered_by else ""
    text = f"Submitted {len(plan.items)} requests as batch [bold]{escape(request_id)}[/] for {escape(plan.model)}{by}."
    plan.console.print(text, highlight=False, soft_wrap=True)
    result = await _poll(plan, client, path, request_id)
    demo_output.answers(plan.console, plan.items, result, show_all=plan.all)
    await _show_webhooks(plan, receiver, request_id)
    plan.stages.done("last webhook")
    await client.delete(f"{_SUBSCRIPTIONS}/{subscription}")


async def _subscribe(plan: DemoPlan, client: httpx.AsyncClient, receiver: Receiver) -> str:
    body = {
        "name": "demo",
        "source": {"type": "workersAi.model", "model_name": plan.model},
        "destination": {"type": "webhook", "url": receiver.url},
        "events": [EventKind.BATCH_QUEUED, EventKind.BATCH_SUCCEEDED, EventKind.BATCH_FAILED],
    }
    made = _checked(await client.post(_SUBSCRIPTIONS, json=body))
    receiver.secret = made["destination"]["secret"]
    return str(made["id"])


async def _poll(plan: DemoPlan, client: httpx.AsyncClient, path: str, request_id: str) -> dict[str, Any]:
    """Poll until the batch is neither queued nor running. Show its progress and the engine's state meanwhile."""
    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    started, done, description, waiting = False, 0, "queued", demo_output.Waiting(plan.console)
    with suppress(TimeoutError), Progress(*columns, console=plan.console) as progress:
        task = progress.add_task("queued", total=len(plan.items))
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                result = _checked(await client.post(path, json={"request_id": request_id}))
                if result.get("status") not in ("queued", "running"):
                    progress.update(task, completed=len(plan.items), description="done")
                    plan.stages.done("run the batch")
                    return result
                if result["status"] == "running" and not started:
                    started = True
                    plan.stages.done("wait for the engine")
                counts = result["progress"]
                description = "running" if started else f"queued, the engine is {await _engine(plan.settings)}"
                done = counts["succeeded"] + counts["failed"]
                progress.update(task, completed=done, description=description)
                waiting.tell(f"the batch is {description}; {done} of {len(plan.items)} are done")
                await asyncio.sleep(0.5)
    raise Failure(
        f"The batch was not done within {duration(_PATIENCE_SECONDS)}: it is {description}; {done} of {len(plan.items)} done.",
        f"What happened is in {plan.log_file}. A busy machine may only be slow: the demo can be run again.",
    )


async def _engine(settings: Settings) -> str:
    """The engine's state, from its row in the database."""
    with suppress(Failure):
        return await asyncio.to_thread(engine.reported_state, settings) or "loading"
    return "unknown: no database"


def _checked(answer: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    if not body["success"]:
        raise Failure(f"The API answered {answer.status_code}: {body['errors'][0]['message']}")
    result: dict[str, Any] = body["result"]
    return result


async def _show_webhooks(plan: DemoPlan, receiver: Receiver, request_id: str) -> None:
    """Show webhooks until the final event of this batch arrives, and the body of that one."""
    try:
        async with asyncio.timeout(_WEBHOOK_SECONDS):
            while True:
                got = await receiver.received.get()
                last = got.body["payload"]["requestId"] == request_id and got.body["type"].endswith("succeeded")
                demo_output.webhook(plan.console, got, whole=last or plan.all)
                if last:
                    return
    except TimeoutError:
        raise Failure(f"No webhook for the finished batch within {_WEBHOOK_SECONDS} seconds.") from None
