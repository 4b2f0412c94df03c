"""`slackwater status`: the state of the installation on one screen, from the API's `GET /status`."""

import json
from datetime import datetime
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from app.cli import tables
from app.cli.api_away import api_away
from app.cli.credentials import api_url
from app.cli.options import Json, console
from app.cli.options import settings as configured
from app.cli.text import money_wait, places, plain
from app.engines.adoption import SLOTS, SLOTS_WRONG
from app.headroom.gate_rules import Reason
from app.quantities import duration, many
from app.settings import Settings
from app.states import EngineIntake
from app.user_errors import Failure

Status = dict[str, Any]
SECONDS = 5.0
_COLOURS = {
    **dict.fromkeys(("ok", "ready"), "green"),
    **dict.fromkeys(("warning", "degraded", "starting", "slow"), "yellow"),
    **dict.fromkeys(("down", "away"), "red"),
}


def fetch(settings: Settings) -> Status:
    """The API's status document. Raises Failure if the API does not answer."""
    return fetch_from(api_url(settings), settings)


def fetch_from(url: str, settings: Settings | None = None) -> Status:
    """The status document of the API at `url`. Raises Failure if it does not answer."""
    try:
        answer = httpx.get(f"{url}/status", timeout=SECONDS, trust_env=False)
        found: Status = answer.raise_for_status().json()
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise api_away(url, error, settings) from error
    except (httpx.HTTPStatusError, ValueError) as error:
        remedy = "Slackwater's console, an older one or another program listens there. Set SLACKWATER_PORT or SLACKWATER_URL."
        raise Failure(f"The program at {url} has no Slackwater status.", remedy) from error
    return found


def status(
    as_json: Json = False,
    only_duties: Annotated[
        bool, typer.Option("--duties", help="Show when each duty was done, and when it is next.")
    ] = False,
) -> None:
    """Show the state of the installation: parts, engines, queue, problems. The exit code is 1 if it is down."""
    raise typer.Exit(report(configured(), console, as_json=as_json, only_duties=only_duties))


def report(settings: Settings, to: Console, *, as_json: bool, only_duties: bool = False) -> int:
    """Print the status. Returns the exit code: 1 if the installation is down. Raises Failure."""
    found = fetch(settings)
    if only_duties:
        for line in duties(found):
            to.print(line, markup=False, highlight=False, soft_wrap=True)
    elif as_json:
        to.print(json.dumps(found, indent=2), markup=False, highlight=False, soft_wrap=True)
    else:
        show(found, api_url(settings), to)
    return int(found["status"] == "down")


def show(found: Status, url: str, to: Console) -> None:
    """Print one screen: overall state, parts, engines, queue, and each problem with its remedy."""
    head = Text.assemble(
        _coloured(found["status"]), plain(_drained(found)), f" · Slackwater {found['version']} at {url}"
    )
    to.print(head, soft_wrap=True)
    to.print()
    rows = [
        ("parts", _parts(found["parts"])),
        ("callers", plain(_callers(found["callers"]))),
        ("queue", plain(_queue(found["queue"]))),
    ]
    rows += [("engine", _engine(engine)) for engine in found["engines"]]
    if found.get("duties"):
        rows.append(("duties", plain(_summary(found))))
    if to.is_terminal:
        facts = Table.grid(Column(style="cyan", no_wrap=True, width=8), Column(overflow="fold"), padding=(0, 2, 0, 0))
        for row in rows:
            facts.add_row(*row)
        to.print(facts)
    for name, fact in () if to.is_terminal else rows:
        tables.raw(to, f"{name}\t{fact.plain.replace(chr(10), ' · ')}")
    for line in problems(found):
        to.print()
        to.print(plain(line), soft_wrap=not to.is_terminal)


def _drained(found: Status) -> str:
    """Which engines an operator keeps from work: it may be why nothing runs."""
    names = [problem["engine"] for problem in found["problems"] if problem["code"] == "drained"]
    if len(names) > 1:
        return f" · {len(names)} engines are drained"
    return f" · {names[0]} is drained" if names else ""


def problems(found: Status) -> list[str]:
    """The problems of a status document: each a message and, on a second line, its remedy."""
    return [
        "".join(
            (
                "Warning: " if problem["severity"] == "warning" else "",
                f"{problem['engine']}: " if "engine" in problem else "",
                f"{problem['message']}\n→ {problem['remedy']}",
            )
        )
        for problem in found["problems"]
    ]


def duties(found: Status) -> list[str]:
    """A line for each duty of a status document: its last success, how long that took, and when it is asked for next."""
    now = datetime.fromisoformat(found["at"])
    return [_duty(duty, now) for duty in found.get("duties", ())]


def _summary(found: Status) -> str:
    """Those that fail; all are shown by `--duties`."""
    failing = [duty["name"] for duty in found["duties"] if duty["error"]]
    waiting = [duty["name"] for duty in found["duties"] if not duty["succeeded_at"]]
    told = [f"{', '.join(names)} {what}" for names, what in ((failing, "failing"), (waiting, "not done yet")) if names]
    return "; ".join(told) or f"all {len(found['duties'])} done"


def _duty(duty: Status, now: datetime) -> str:
    done = "not done yet"
    if duty["succeeded_at"]:
        ago = (now - datetime.fromisoformat(duty["succeeded_at"])).total_seconds()
        done = f"done {duration(ago)} ago in {duration(duty['took_seconds'])}"
    wait = (datetime.fromisoformat(duty["due_at"]) - now).total_seconds()
    following = f"next in {duration(wait)}" if wait > 0 else "due now"
    failing = f" · fails: {duty['error']}" if duty["error"] else ""
    return f"{duty['name']} {done} · {following}{failing}"


def _parts(parts: Status) -> Text:
    text = Text()
    for name, state in parts.items():
        label = plain(name + " ") if name != "workers" else plain("GPU workers ")
        text.append(" · " if text else "").append(label).append(_coloured("unknown" if state is None else str(state)))
    return text


def _callers(callers: Status) -> str:
    """Where callers are slowed, a problem has the details."""
    details = "" if callers["verdict"] == "slowed" else callers["details"]
    return f"{callers['headline']}. {details}".strip()


def _queue(queue: Status) -> str:
    if queue["open_batches"] is None:
        return "unknown"
    batches = many(queue["open_batches"], "open batch").replace("batchs", "batches")
    summary = f"{batches}; items: {places(queue, 'items_')}" if queue["open_batches"] else batches
    oldest = queue["oldest_waiting_seconds"]
    summary += money_wait(queue)
    return summary if oldest is None else f"{summary}; the oldest has waited {duration(oldest)}"


def _engine(engine: Status) -> Text:
    """The lines about one engine: state and model, message, limits."""
    window = "" if engine["max_model_len"] is None else f", {engine['max_model_len']:,} tokens"
    version = "" if engine["version"] is None else f" · vLLM {engine['version']}"
    searched = any(problem["code"] in (SLOTS, SLOTS_WRONG) for problem in engine["problems"])
    places = "" if engine["allowance"] is None else f"batch may hold {engine['allowance']}"
    if places and engine["reason"] not in (Reason.FULL, Reason.CLOSED_SLOTS):  # whose message says how many there are
        places += f" of {many(engine['slots'], 'slot')}{' found so far' if searched else ''}"
    return Text.assemble(
        plain(engine["name"] + " "),
        _coloured(engine["state"]),
        plain("" if engine["intake"] == EngineIntake.OPEN else ", drained"),
        plain(f" · {engine['mode']} · {engine['model'] or 'model unknown'}{window}{version}\n"),
        plain(engine["message"] + ("\n" if places else "")),
        plain(places + (f" · protection {engine['protection']} the engine" if engine["protection"] else "")),
    )


def _coloured(word: str) -> Text:
    return Text(word, _COLOURS.get(word, ""))
