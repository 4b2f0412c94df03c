"""What every command says when the API does not answer."""

from app.api_url import base_url
from app.causes import cause
from app.cli.data_dir_lock import Owner, running
from app.sentences import ended
from app.settings import Settings
from app.user_errors import Failure


def api_away(url: str, error: Exception, settings: Settings | None = None) -> Failure:
    """The Failure. With `settings`, it says so if `slackwater up` or `demo` runs on this machine all the same."""
    remedy = "Start it with `slackwater up`, or name another API with SLACKWATER_URL or `slackwater login`."
    owner = running(settings.data_dir) if settings else None
    if settings and owner and url in (owner.url, base_url(settings)):
        remedy = _of_running(owner, url)
    return Failure(ended(f"The API at {url} does not answer: {cause(error)}"), remedy)


def _of_running(owner: Owner, url: str) -> str:
    """What to do while an installation runs here: its API is at `url`, or at another port."""
    logs = "`slackwater logs demo`" if owner.command == "demo" else "`slackwater logs`"
    if url == owner.url:
        return f"{owner.named} and starts it: wait, or see {logs}."
    if owner.command == "demo":
        return (
            f"{owner.named}, whose own API is at {owner.url} until it ends. After it, start one with `slackwater up`."
        )
    return f"{owner.named}, with its API at {owner.url}: set SLACKWATER_URL to that."
