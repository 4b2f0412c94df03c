"""Where the caller's commands find the API and a key: the environment first, then what `up` or `login` has stored.

Stored in `credentials.json` of the data directory, readable by its owner only.
"""

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from app.cli.api_address import base_url
from app.settings import Settings
from app.user_errors import Failure

_FILE = "credentials.json"


@dataclass(frozen=True, slots=True)
class Credentials:
    """An API key, the account that it belongs to, and the URL of the API. `local`: `slackwater up` on this machine made it."""

    url: str
    account: str
    key: str
    local: bool = False


def save(data_dir: Path, url: str, account: str, key: str, *, local: bool = True) -> Path:
    """Store credentials in place of any others. Returns the file. Raises OSError."""
    return _write(data_dir, Credentials(url, account, key, local))


def stored(data_dir: Path) -> Credentials | None:
    """What is stored; None if nothing is. Raises Failure for a file that cannot be understood."""
    file = data_dir / _FILE
    try:
        return Credentials(**json.loads(file.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise Failure(
            f"{file} cannot be understood: {error}", "Remove it; `slackwater login` writes a new one."
        ) from error


def relocate(data_dir: Path, url: str) -> None:
    """Note that the API of this machine now listens at `url`. Credentials of another installation stay as they are."""
    known = stored(data_dir)
    if known and known.local and known.url != url:
        _write(data_dir, replace(known, url=url))


def remove(data_dir: Path) -> bool:
    """Forget what is stored. False if nothing was."""
    file = data_dir / _FILE
    existed = file.exists()
    file.unlink(missing_ok=True)
    return existed


def api_url(settings: Settings) -> str:
    """Where commands find the API: at SLACKWATER_URL, else where the stored credentials are for, else on this machine."""
    known = None if settings.url else stored(settings.data_dir)
    return settings.url or (known.url if known else base_url(settings))


def find(settings: Settings) -> tuple[str, str]:
    """URL and key for a caller's command. Raises Failure if there is no key.

    A stored key is sent only to the URL that it was stored for.
    """
    url, known = api_url(settings), stored(settings.data_dir)
    key = settings.api_key.get_secret_value().strip() or (known.key if known and known.url == url else "")
    if not key:
        remedy = "Set SLACKWATER_API_KEY, or run `slackwater login`; `slackwater key create` makes a key on the server."
        raise Failure(f"There is no API key for {url}.", remedy)
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise Failure(
            "The API key holds characters that no key has.", "Check SLACKWATER_API_KEY, or `slackwater login`."
        )
    return url, key


def _write(data_dir: Path, credentials: Credentials) -> Path:
    data_dir.mkdir(parents=True, exist_ok=True)
    file, new = data_dir / _FILE, data_dir / f".{_FILE}.{os.getpid()}"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as output:
        json.dump(asdict(credentials), output, indent=2)
    new.replace(file)
    return file
