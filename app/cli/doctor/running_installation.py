"""Checks the installation that already runs, from its status. Its engines may differ from this shell's settings."""

from app.api_url import base_url
from app.cli import credentials, status
from app.cli.doctor.check import Check, fail, ok, skip, warn
from app.cli.doctor.machine import slackwater_at
from app.settings import Settings
from app.user_errors import Failure

_NAME = "installation"
_DUTIES = "duties"


def installation(settings: Settings) -> Check:
    """Whether the installation on this data directory or port reports no problem."""
    url = _running(settings)
    if url is None:
        return skip(_NAME, "not running")
    try:
        found = status.fetch_from(url)
    except Failure as failure:
        return fail(_NAME, failure.problem, failure.remedy)
    summary = f"{url} is {found['status']}"
    if not found["problems"]:
        return ok(_NAME, summary)
    prefixes = [f"{problem['engine']}: " if "engine" in problem else "" for problem in found["problems"]]
    pairs = list(zip(prefixes, found["problems"], strict=True))
    messages = "\n".join([summary, *(engine + problem["message"] for engine, problem in pairs)])
    remedies = "\n".join(dict.fromkeys(engine + problem["remedy"] for engine, problem in pairs))
    return fail(_NAME, messages, remedies)


def duties(settings: Settings) -> Check:
    """When each duty was last done, and which of them fail. One that is stuck is a problem of the installation."""
    url = _running(settings)
    if url is None:
        return skip(_DUTIES, "not running")
    try:
        found = status.fetch_from(url)
    except Failure:
        return skip(_DUTIES, "unknown, because the installation does not say it")
    lines = "\n".join(status.duties(found)) or "none yet"
    if any(duty["error"] for duty in found.get("duties", ())):
        return warn(_DUTIES, lines, "see the words of the error: slackwater logs maintenance")
    return ok(_DUTIES, lines)


def _running(settings: Settings) -> str | None:
    return next(filter(slackwater_at, _possible_urls(settings)), None)


def _possible_urls(settings: Settings) -> list[str]:
    """The URLs where this installation's API may answer: its port, and the URL that `up` stored in the data directory."""
    known = credentials.stored(settings.data_dir)
    return list(dict.fromkeys([base_url(settings), *([known.url] if known and known.local else [])]))
