"""Checks the installation that already runs, from its status. Its engines may differ from this shell's settings."""

from app.api_url import base_url
from app.cli import credentials, status
from app.cli.data_dir_lock import running
from app.cli.doctor import services
from app.cli.doctor.check import Check, fail, ok, skip, warn
from app.cli.doctor.machine import slackwater_at
from app.settings import Settings
from app.user_errors import Failure

_NAME = "installation"
_DUTIES = "duties"


def installation(settings: Settings) -> Check:
    """Whether the installation on this data directory or port reports no problem."""
    url = at(settings)
    if url is None:
        owner = running(settings.data_dir)
        return skip(_NAME, f"{owner.named}; its API at {owner.url} does not answer yet" if owner else "not running")
    try:
        found = status.fetch_from(url)
    except Failure as failure:
        return fail(_NAME, failure.problem, failure.remedy)
    owner = running(settings.data_dir)
    of = f", of `slackwater {owner.command}`," if owner and owner.url == url and owner.command != "up" else ""
    summary = f"{url}{of} is {found['status']}"
    if found["status"] == "ok":
        return ok(_NAME, summary)
    pairs = [(f"{each['engine']}: " if "engine" in each else "", each) for each in found["problems"]]
    messages = "\n".join([summary, *(engine + each["message"] for engine, each in pairs)])
    remedies = "\n".join(dict.fromkeys(engine + each["remedy"] for engine, each in pairs))
    return (fail if _broken(found) else warn)(_NAME, messages, remedies)


def _broken(found: status.Status) -> bool:
    """Whether something does not work, other than an engine that is being started."""
    starting = {each["name"] for each in found["engines"] if each["state"] == "starting"}
    errors = [each for each in found["problems"] if each["severity"] == "error"]
    return found["status"] == "down" or any(each.get("engine") not in starting for each in errors)


def engine(settings: Settings) -> Check:
    """The engines of the running installation as their workers see them. Without one, and where the settings name an engine to
    attach to, what could be started from here.
    """
    found = None if settings.attached_to else _status(settings)
    if found is None or not found["engines"]:
        return services.engine(settings)
    lines = "\n".join(map(_described, found["engines"]))
    remedies = [problem["remedy"] for each in found["engines"] for problem in each["problems"]]
    if remedies:
        return warn("engine", lines, "\n".join(dict.fromkeys(remedies)))
    if all(each["state"] == "ready" for each in found["engines"]):
        return ok("engine", lines)
    return warn("engine", lines, "see why: slackwater status")


def _described(each: status.Status) -> str:
    version = f", vLLM {each['version']}" if each["version"] else ""
    policy = each["scheduling_policy"] or "not reported"
    where = f"protection {each['protection']} the engine" if each["protection"] else "protection not known yet"
    return f"{each['name']} is {each['state']} ({each['mode']}{version}), scheduling policy {policy}; {where}"


def model(settings: Settings) -> Check:
    """What the engines of the running installation serve; without one, the model of the settings."""
    found = None if settings.attached_to else _status(settings)
    served = [f"{each['model']}, of {each['name']}" for each in found["engines"] if each["model"]] if found else []
    return ok("model", "\n".join(served)) if served else services.model(settings)


def webhooks(settings: Settings) -> Check:
    """Where webhooks of the running installation may go; without one, as the settings say."""
    found = _status(settings)
    if found is None:
        return services.webhooks(settings)
    return services.webhooks(settings.model_copy(update={"webhook_allow_private": found["webhooks"]["allow_private"]}))


def _status(settings: Settings) -> status.Status | None:
    """The status of the installation that runs here. None: none does, or `installation` says what is wrong with it."""
    url = at(settings)
    if url is None:
        return None
    try:
        return status.fetch_from(url)
    except Failure:
        return None


def duties(settings: Settings) -> Check:
    """When each duty was last done, and which of them fail. One that is stuck is a problem of the installation."""
    found = _status(settings)
    if found is None:
        runs = at(settings) is not None
        return skip(_DUTIES, "unknown, because the installation does not say it" if runs else "not running")
    lines = "\n".join(status.duties(found)) or "none yet"
    if any(duty["error"] for duty in found.get("duties", ())):
        return warn(_DUTIES, lines, "see the words of the error: slackwater logs maintenance")
    return ok(_DUTIES, lines)


def at(settings: Settings) -> str | None:
    """The URL of the installation that runs here; None if none does."""
    return next(filter(slackwater_at, _possible_urls(settings)), None)


def _possible_urls(settings: Settings) -> list[str]:
    """The URLs where this installation's API may answer: that of what runs on the data directory, its port, and the URL that
    `up` stored in the data directory.
    """
    known, owner = credentials.stored(settings.data_dir), running(settings.data_dir)
    running_at, stored = [owner.url] if owner else [], [known.url] if known and known.local else []
    return list(dict.fromkeys([*running_at, base_url(settings), *stored]))
