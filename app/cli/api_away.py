"""What every command says when the API does not answer."""

import re

from app.api_url import base_url
from app.cli.data_dir_lock import running
from app.sentences import ended
from app.settings import Settings
from app.user_errors import Failure


def api_away(url: str, error: Exception, settings: Settings | None = None) -> Failure:
    """The Failure. With `settings`, it says so if `slackwater up` runs on this machine all the same."""
    reason = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
    remedy = "Start it with `slackwater up`, or name another API with SLACKWATER_URL or `slackwater login`."
    owner = running(settings.data_dir) if settings else None
    if settings and owner and url in (owner.url, base_url(settings)):
        remedy = f"`slackwater up` runs (pid {owner.pid}) and starts it: wait, or see `slackwater logs`."
    return Failure(ended(f"The API at {url} does not answer: {reason}"), remedy)
