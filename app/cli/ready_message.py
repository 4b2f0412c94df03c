"""What `slackwater up` says once it runs: where it is, the key, and two commands that work as they are pasted."""

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
from app.cli import admin, credentials
from app.cli.api_address import base_url
from app.engines import catalogue
from app.engines import service as engines
from app.engines.service import EngineOverview
from app.headroom import reason_messages
from app.sentences import ended
from app.settings import Settings
from app.states import EngineIntake

ACCOUNT = "local"
log = structlog.get_logger("start")


@dataclass(frozen=True, slots=True)
class Access:
    """How this machine's commands reach the API. `made`: the key, where it was made just now.

    `stored`: the commands find URL and key by themselves.
    """

    url: str
    made: str
    stored: bool


def access(settings: Settings) -> Access:
    """Make sure that this machine has a key of the local account, stored for the command line. Raises Failure."""
    url = base_url(settings)
    known = credentials.stored(settings.data_dir)
    if known and not known.local:  # logged in elsewhere: that stays
        made = "" if admin.has_key(settings, ACCOUNT) else admin.create_key(settings, ACCOUNT, "first key", None)
        return Access(url, made, stored=False)
    if known and known.account == ACCOUNT and admin.works(settings, ACCOUNT, known.key):
        credentials.relocate(settings.data_dir, url)
        return Access(url, "", stored=True)
    made = admin.create_key(settings, ACCOUNT, "this machine", None)
    try:
        credentials.save(settings.data_dir, url, ACCOUNT, made)
    except OSError as error:  # the key must be shown all the same
        log.warning("key.not_stored", error=str(error))
        return Access(url, made, stored=False)
    return Access(url, made, stored=True)


def again(known: Access) -> Access:
    """The same, without the key that was shown already."""
    return replace(known, made="")


def engine_problem(settings: Settings) -> tuple[EngineOverview | None, str]:
    """This installation's engine, and why a request to it would fail now; nothing if it would succeed. Raises Failure.

    The worker's own words, as `GET /status` has them, where it has any.
    """
    engine = _engine(settings)
    if engine is not None and engine.intake != EngineIntake.OPEN:
        return engine, f"{engine.name} is drained; `slackwater engine undrain {engine.name}` ends that."
    if engine is not None and engine.ready:
        return engine, ""
    if engine is not None and engine.problems:
        problem = engine.problems[0]
        return engine, f"{problem['message']} {problem['remedy']}".strip()
    if engine is None or not engine.alive:
        return None, "The GPU worker has not started yet."
    return engine, ended(
        reason_messages.gate(engine.name, engine.reason or f"engine_{engine.state}", None, None, None, None)
    )


def usual_start(settings: Settings) -> float | None:
    """Seconds that this installation's engine takes to start, as its worker learned; None if it did not. Raises Failure."""
    engine = _engine(settings)
    return engine.start_seconds if engine else None


def _engine(settings: Settings) -> EngineOverview | None:
    found = {engine.name: engine for engine in admin.on_database(settings, engines.overview)}
    return found.get(settings.engine_name)


def ready(settings: Settings, access: Access, served: str, console: Console) -> None:
    """The box of an installation that answers requests, with the next two commands."""
    _rule(console, "Ready", "green")
    _facts(console, settings, access)
    for title, command in commands(settings, access, served):
        _say(console, f"\n  {title}")
        _say(console, command)
    _rule(console, "", "green")


def waiting(settings: Settings, access: Access, problem: str, console: Console) -> None:
    """The box of an installation whose engine is not ready."""
    _rule(console, "Running, but no request is answered yet", "yellow")
    _facts(console, settings, access)
    _say(console, f"\n  {problem}")
    _say(console, "  Until that is mended batches wait, and synchronous requests get 503.")
    _rule(console, "", "yellow")


def commands(settings: Settings, access: Access, served: str) -> list[tuple[str, str]]:
    """A synchronous request and a batch, each with a title, as they can be pasted into a shell."""
    known = catalogue.load(settings.models_file).resolve(settings.engine_model)
    model = settings.engine_model if known and known.served == served else served
    setup = _setup(settings, access)
    key = f"$({program()} key show)" if access.stored else "$SLACKWATER_API_KEY"
    embeds = known is not None and known.task == "text-embeddings"
    path = "/v1/embeddings" if embeds else "/v1/chat/completions"
    asked = (
        '"input": "Slack water"'
        if embeds
        else '"max_tokens": 40,\n    "messages": [{"role": "user", "content": "Name three colours."}]'
    )
    curl = (
        f'{setup}curl -s {access.url}{path} \\\n  -H "Authorization: Bearer {key}" \\\n'
        f'  -H "Content-Type: application/json" \\\n  -d \'{{"model": "{model}", {asked}}}\''
    )
    submit = (
        f"{setup}printf 'Name three colours.\\nWhat is a tide?\\n' > prompts.txt\n"
        f"{program()} submit prompts.txt --model {shlex.quote(model)} --watch"
    )
    return [("One answer now:", curl), ("A batch:", submit)]


def program() -> str:
    """How this installation's command is called from the current directory."""
    called = Path(sys.argv[0])
    if called.name != "slackwater":
        return f"{shlex.quote(sys.executable)} -m app.cli.main"
    found = shutil.which("slackwater")
    if found and Path(found).resolve() == called.resolve():
        return "slackwater"
    whole = Path(os.path.abspath(called))  # not resolved: the way it was called is what works
    return shlex.quote(str(whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole))


def _setup(settings: Settings, access: Access) -> str:
    """What another terminal needs before the commands."""
    if not access.stored:
        key = access.made or "…"
        return f"export SLACKWATER_URL={access.url}\nexport SLACKWATER_API_KEY={key}\n"
    if settings.data_dir != Settings.model_fields["data_dir"].default:
        return f"export SLACKWATER_DATA_DIR={shlex.quote(str(settings.data_dir.resolve()))}\n"
    return ""


def _facts(console: Console, settings: Settings, access: Access) -> None:
    _say(console, f"  URL      {access.url}")
    _say(console, f"  Account  {ACCOUNT}")
    if access.made:
        _say(console, f"  Key      {access.made}")
        _say(console, "           shown this once" + ("; this machine's commands find it" if access.stored else ""))
    _say(console, f"  Webhooks go to {private_targets.told(settings)}")
    _say(console, f"  Data     {settings.data_dir}")
    _say(console, f"  Logs     {program()} logs --follow")
    _say(console, "  Ctrl-C stops everything.")


def _rule(console: Console, title: str, style: str) -> None:
    if console.is_terminal:
        console.rule(f"[bold]{title}[/]" if title else "", style=style, align="left")
    elif title:
        _say(console, title)


def _say(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)
