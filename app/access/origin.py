"""Where browsers reach the console, and whether their session would travel in the clear."""

from urllib.parse import urlsplit

from app.settings import Settings

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_EVERYWHERE = {"0.0.0.0", "::", ""}  # noqa: S104


def of(settings: Settings) -> str:
    """The URL at which browsers reach the console, without a path."""
    host = settings.console_host
    shown = "127.0.0.1" if host in _EVERYWHERE else f"[{host}]" if ":" in host else host
    return settings.console_url.rstrip("/") or f"http://{shown}:{settings.console_port}"


def exposed(settings: Settings) -> bool:
    """Whether browsers of other machines would send their session in the clear."""
    place = urlsplit(of(settings))
    return place.scheme != "https" and (place.hostname or "") not in _LOOPBACK
