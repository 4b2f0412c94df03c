"""Checks whether the settings allow webhooks to this machine and to private networks. Pure.

Callers choose the URLs of their webhooks. If callers on other machines could send webhooks to this machine, they would reach
services here that trust local requests.
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
    """Whether only this machine can reach the API."""
    try:
        return settings.host == "localhost" or ip_address(settings.host).is_loopback
    except ValueError:
        return False


def describe(settings: Settings) -> str:
    """Where webhooks may go, with the setting that decides it."""
    allows = settings.webhook_allow_private
    return f"{_TO[allows]} (SLACKWATER_WEBHOOK_ALLOW_PRIVATE={allows})"


def check(settings: Settings) -> None:
    """Raise Failure if `loopback`, which is meant for callers on this machine, is set while other machines reach the API."""
    if settings.webhook_allow_private == "loopback" and not only_here(settings):
        raise Failure(
            f"SLACKWATER_WEBHOOK_ALLOW_PRIVATE=loopback would let callers on other machines, which reach the API at"
            f" SLACKWATER_HOST={settings.host}, send webhooks to services on this machine.",
            "Set SLACKWATER_WEBHOOK_ALLOW_PRIVATE=off, or SLACKWATER_HOST=127.0.0.1.",
        )
