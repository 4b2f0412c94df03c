"""The check of the installation that runs already, by its own word: its engines need not be those of this shell."""

from app.cli import credentials, status
from app.cli.api_address import base_url
from app.cli.doctor.check import Check, fail, ok
from app.cli.doctor.machine import slackwater_at
from app.settings import Settings
from app.user_errors import Failure

_NAME = "installation"


def installation(settings: Settings) -> Check:
    """What runs on this data directory or port has no problem."""
    url = next(filter(slackwater_at, _places(settings)), None)
    if url is None:
        return ok(_NAME, "not running")
    try:
        found = status.fetch_from(url)
    except Failure as failure:
        return fail(_NAME, failure.problem, failure.remedy)
    said = f"{url} is {found['status']}"
    if not found["problems"]:
        return ok(_NAME, said)
    whose = [f"{problem['engine']}: " if "engine" in problem else "" for problem in found["problems"]]
    pairs = list(zip(whose, found["problems"], strict=True))
    messages = "\n".join([said, *(engine + problem["message"] for engine, problem in pairs)])
    remedies = "\n".join(dict.fromkeys(engine + problem["remedy"] for engine, problem in pairs))
    return fail(_NAME, messages, remedies)


def _places(settings: Settings) -> list[str]:
    """Where an API of this installation may answer: at this port, and where `up` on this data directory said that it is."""
    known = credentials.stored(settings.data_dir)
    return list(dict.fromkeys([base_url(settings), *([known.url] if known and known.local else [])]))
