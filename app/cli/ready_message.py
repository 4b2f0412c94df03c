"""The message of `slackwater up` when it runs: the URL, the key, and two commands to paste into a shell."""

import os
import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from rich.console import Console
from rich.text import Text

from app import private_targets
from app.access import origin
from app.api_url import base_url
from app.batches import why_text
from app.causes import cause
from app.cli import credentials, key, status
from app.cli.database import on_database
from app.cli.doctor import attached_engine
from app.engines import catalogue
from app.engines import overview as engine_overview
from app.engines.adoption import SLOTS
from app.engines.overview import EngineOverview
from app.engines.told_state import NO_WORKER
from app.quantities import many
from app.sentences import ended
from app.settings import Settings
from app.states import EngineIntake
from app.tenants.key_scope import EVERYTHING
from app.user_errors import Failure

ACCOUNT = "local"
_REASON = "slackwater up needs a key of this machine"
log = structlog.get_logger("start")


@dataclass(frozen=True, slots=True)
class Access:
    """How this machine's commands reach the API. `new_key`: a key that was just created, else empty.

    `stored`: the commands find the URL and the key in the stored credentials.
    """

    url: str
    new_key: str
    stored: bool


def access(settings: Settings) -> Access:
    """Ensure that this machine has a key of the local account, stored for the command line. Raises Failure."""
    url = base_url(settings)
    known = credentials.stored(settings.data_dir)
    if known and not known.local:  # logged in to another installation: keep that
        made = (
            ""
            if key.has_key(settings, ACCOUNT)
            else key.create_key(settings, ACCOUNT, "first key", None, scope=EVERYTHING, reason=_REASON)
        )
        return Access(url, made, stored=False)
    if known and known.account == ACCOUNT and key.is_live(settings, ACCOUNT, known.key):
        credentials.relocate(settings.data_dir, url)
        return Access(url, "", stored=True)
    made = key.create_key(settings, ACCOUNT, "this machine", None, scope=EVERYTHING, reason=_REASON)
    try:
        credentials.save(settings.data_dir, url, ACCOUNT, made)
    except OSError as error:  # show the key all the same
        log.warning("key.not_stored", error=cause(error))
        return Access(url, made, stored=False)
    return Access(url, made, stored=True)


def without_key(known: Access) -> Access:
    """The same access without its key, which was already shown."""
    return replace(known, new_key="")


def engine_problem(settings: Settings) -> tuple[EngineOverview | None, str]:
    """This installation's engine, and why a request to it would fail now; empty if it would succeed. Raises Failure.

    If the worker reported a problem, the text is that problem, as in `GET /status`.
    """
    engine = _engine(settings)
    if engine is not None and engine.intake != EngineIntake.OPEN:
        return engine, f"{engine.name} is drained; `{program()} engine undrain {engine.name}` undoes it."
    if engine is not None and engine.ready:
        return engine, ""
    if engine is not None and engine.problems and engine.told_reason != NO_WORKER:
        problem = engine.problems[0]
        return engine, f"{problem['message']} {problem['remedy']}".strip()
    if engine is None or not engine.alive:
        return None, "The GPU worker has not started yet."
    return engine, ended(why_text.gate(engine.name, engine.reason or f"engine_{engine.state}", None, None, None, None))


def usual_start_seconds(settings: Settings) -> float | None:
    """Seconds that this engine usually takes to start, as its worker measured; None if unknown. Raises Failure."""
    engine = _engine(settings)
    return engine.start_seconds if engine else None


def requests_running(settings: Settings) -> int:
    """Requests in the engines, of batches and of callers, as workers last reported. Raises Failure."""
    return sum(each.batch_in_flight + each.sync_in_flight for each in on_database(settings, engine_overview.overview))


def _engine(settings: Settings) -> EngineOverview | None:
    found = {engine.name: engine for engine in on_database(settings, engine_overview.overview)}
    if settings.engines:  # any will do, if possible one that is ready
        return max((engine for engine in found.values() if engine.alive), key=lambda engine: engine.ready, default=None)
    return found.get(settings.engine_name)


def ready(settings: Settings, access: Access, served: str, console: Console) -> None:
    """Print the message for an installation that answers requests, with the next two commands."""
    _rule(console, "Ready", "green")
    _facts(console, settings, access)
    for title, command in commands(settings, access, served):
        _print(console, f"\n  {title}")
        _print(console, command)
    _rule(console, "", "green")


def waiting(settings: Settings, access: Access, problem: str, console: Console) -> None:
    """Print the message for an installation whose engine is not ready."""
    _rule(console, "Running, but the engine does not answer requests yet", "yellow")
    _facts(console, settings, access)
    _print(console, f"\n  {problem}")
    _print(console, "  Until this is fixed, batches wait and synchronous requests get 503.")
    _rule(console, "", "yellow")


def commands(settings: Settings, access: Access, served: str) -> list[tuple[str, str]]:
    """A synchronous request and a batch, each with a title, to paste into a shell."""
    known = catalogue.load(settings.models_file).resolve(settings.engine_model)
    model = settings.engine_model if known and known.served == served else served
    setup = _setup(settings, access)
    secret = f"$({program()} key show)" if access.stored else "$SLACKWATER_API_KEY"
    embeds = known is not None and known.task == "text-embeddings"
    path = "/v1/embeddings" if embeds else "/v1/chat/completions"
    fields = (
        '"input": "Slack water"'
        if embeds
        else '"temperature": 0, "max_tokens": 30,\n    "messages": [{"role": "user", "content": "Name three colours."}]'
    )
    curl = (
        f'{setup}curl -s {access.url}{path} \\\n  -H "Authorization: Bearer {secret}" \\\n'
        f'  -H "Content-Type: application/json" \\\n  -d \'{{"model": "{model}", {fields}}}\''
    )
    wanted = f"--model {shlex.quote(model)}"
    if embeds:
        items, file = '{"text": "Slack water"}\\n', "items.jsonl"
    else:
        items, file = "Name three colours.\\nWhat is a tide?\\n", "prompts.txt"
        wanted += " \\\n  --temperature 0 --max-tokens 30"
    batch = f"{setup}printf '{items}' > {file}\n{program()} submit {file} {wanted} --watch"
    return [("One answer now:", curl), ("A batch:", batch)]


def program() -> str:
    """The command to call this installation's `slackwater` from the current directory: its name only if it was called by that,
    because another terminal may have another PATH.
    """
    command = Path(sys.argv[0])
    if command.name != "slackwater":
        return f"{shlex.quote(sys.executable)} -m app.cli.main"
    found = shutil.which("slackwater")
    if found and os.path.normpath(found) == str(command):
        return "slackwater"
    whole = Path(os.path.abspath(command))  # links are not resolved, because the command works as it was called
    return shlex.quote(str(whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole))


def _setup(settings: Settings, access: Access) -> str:
    """The lines that another terminal needs before the commands."""
    if not access.stored:
        secret = access.new_key or "…"
        return f"export SLACKWATER_URL={access.url}\nexport SLACKWATER_API_KEY={secret}\n"
    if settings.data_dir != Settings.model_fields["data_dir"].default:
        return f"export SLACKWATER_DATA_DIR={shlex.quote(str(settings.data_dir.resolve()))}\n"
    return ""


def _facts(console: Console, settings: Settings, access: Access) -> None:
    _print(console, f"  URL      {access.url}")
    _print(console, f"  Account  {ACCOUNT}")
    if access.new_key:
        _print(console, f"  Key      {access.new_key}")
        kept = f"stored for this machine's commands: {program()} key show"
        _print(console, f"           {kept if access.stored else 'shown only once'}")
    if settings.console_port:
        _print(console, f"  Console  {origin.of(settings)}   (sign in: {program()} console login)")
    stands, codes = _status(access.url)
    if stands:
        _print(console, f"  Status   {stands}")
    if settings.attached_to:
        _print(console, f"  Sharing  {attached_engine.protection(settings)}")
        if SLOTS in codes:
            _print(console, "           how many requests it runs at once is not known yet (--slots N)")
    _print(console, f"  Webhooks go to {private_targets.describe(settings)}")
    _print(console, f"  Data     {settings.data_dir}")
    _print(console, f"  Logs     {program()} logs --follow")
    _print(console, "  Ctrl-C, or `slackwater down` elsewhere, stops everything.")


def _status(url: str) -> tuple[str, set[str]]:
    """The status word and the number of problems of `GET /status`, and their codes; empty if it cannot be read now."""
    try:
        found = status.fetch_from(url)
    except Failure:
        return "", set()
    codes = {problem["code"] for problem in found["problems"]}
    severities = [problem["severity"] for problem in found["problems"]]
    counts = {"problem": severities.count("error"), "warning": severities.count("warning")}
    told = ", ".join(many(count, what) for what, count in counts.items() if count)
    return f"{found['status']}: {told}; {program()} status" if told else str(found["status"]), codes


def _rule(console: Console, title: str, style: str) -> None:
    if console.is_terminal:
        console.rule(f"[bold]{title}[/]" if title else "", style=style, align="left")
    elif title:
        _print(console, title)


def _print(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)
