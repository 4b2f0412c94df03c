"""Whom the settings let have webhooks sent to this machine and its networks. Pure.

Whoever may subscribe chooses where webhooks go. Where others than this machine reach the API, services that trust this machine
would answer them.
"""

from ipaddress import ip_address

from app.settings import PrivateTargets, Settings
from app.user_errors import Failure

_TO: dict[PrivateTargets, str] = {
    "off": "public addresses only",
    "loopback": "this machine too",
    "all": "private networks too",
}


def only_here(settings: Settings) -> bool:
    """Whether the API listens where none but this machine reaches it."""
    try:
        return settings.host == "localhost" or ip_address(settings.host).is_loopback
    except ValueError:
        return False


def describe(settings: Settings) -> str:
    """Where webhooks may go, and what says so."""
    allows = settings.webhook_allow_private
    return f"{_TO[allows]} (SLACKWATER_WEBHOOK_ALLOW_PRIVATE={allows})"


def check(settings: Settings) -> None:
    """Raises Failure where `loopback`, which is meant for one machine's own callers, is given to those of others."""
    if settings.webhook_allow_private == "loopback" and not only_here(settings):
        raise Failure(
            f"SLACKWATER_WEBHOOK_ALLOW_PRIVATE=loopback would let callers from other machines, who reach the API at"
            f" SLACKWATER_HOST={settings.host}, have webhooks sent to services of this one.",
            "Set SLACKWATER_WEBHOOK_ALLOW_PRIVATE=off, or SLACKWATER_HOST=127.0.0.1.",
        )
