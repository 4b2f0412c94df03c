"""The API's URL and key for the commands: from the environment, else as `up` or `login` stored them.

They are stored in `credentials.json` in the data directory, readable by the owner only.
"""

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from app.api_url import base_url
from app.cli.data_dir_lock import running
from app.settings import Settings, bare_url
from app.user_errors import Failure

_FILE = "credentials.json"


@dataclass(frozen=True, slots=True)
class Credentials:
    """An API key, its account, and the URL of the API. `local`: `slackwater up` on this machine created the key."""

    url: str
    account: str
    key: str
    local: bool = False


def save(data_dir: Path, url: str, account: str, key: str, *, local: bool = True) -> Path:
    """Store credentials, replacing earlier ones. Returns the file. Raises OSError."""
    return _write(data_dir, Credentials(url, account, key, local))


def stored(data_dir: Path) -> Credentials | None:
    """The stored credentials, or None. Raises Failure if the file cannot be parsed."""
    file = data_dir / _FILE
    try:
        found = Credentials(**json.loads(file.read_text()))
        return replace(found, url=bare_url(found.url))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise Failure(f"{file} cannot be parsed: {error}", "Remove it; `slackwater login` writes a new one.") from error


def relocate(data_dir: Path, url: str) -> None:
    """Store the new `url` of this machine's API. Credentials for another installation are not changed."""
    known = stored(data_dir)
    if known and known.local and known.url != url:
        _write(data_dir, replace(known, url=url))


def remove(data_dir: Path) -> bool:
    """Delete the stored credentials. False if there were none."""
    file = data_dir / _FILE
    existed = file.exists()
    file.unlink(missing_ok=True)
    return existed


def api_url(settings: Settings) -> str:
    """The API's URL: SLACKWATER_URL, else the stored one, else this machine's."""
    known = None if settings.url else stored(settings.data_dir)
    return settings.url or (known.url if known else base_url(settings))


def find(settings: Settings) -> tuple[str, str]:
    """The URL and key for a command. Raises Failure if there is no key.

    A stored key is sent only to the URL it was stored with.
    """
    url, known = api_url(settings), stored(settings.data_dir)
    key = settings.api_key.get_secret_value().strip() or (known.key if known and known.url == url else "")
    if not key:
        raise Failure(f"There is no API key for {url}.", _without_key(settings, url, first=known is None))
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise Failure(
            "The API key contains characters that are not allowed in a key.",
            "Check SLACKWATER_API_KEY, or `slackwater login`.",
        )
    return url, key


def _without_key(settings: Settings, url: str, *, first: bool) -> str:
    """How a key comes. `first`: none was ever stored."""
    owner = running(settings.data_dir) if first else None
    if owner is not None and owner.url == url:
        return f"`slackwater up` is starting (pid {owner.pid}): its Ready block comes with a key."
    if first and owner is None and not settings.url:
        elsewhere = "set SLACKWATER_URL and SLACKWATER_API_KEY, or run `slackwater login`"
        return f"Run `slackwater up`, which makes one. For an API elsewhere {elsewhere}."
    return "Set SLACKWATER_API_KEY, or run `slackwater login`; `slackwater key create` makes a key on the server."


def _write(data_dir: Path, credentials: Credentials) -> Path:
    data_dir.mkdir(parents=True, exist_ok=True)
    file, new = data_dir / _FILE, data_dir / f".{_FILE}.{os.getpid()}"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as output:
        json.dump(asdict(credentials), output, indent=2)
    new.replace(file)
    return file
