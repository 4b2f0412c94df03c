"""The URLs of the API. Pure."""

from app.settings import Settings

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


def known_url(settings: Settings) -> str:
    """The URL of the API: the one that is set, else as `base_url`."""
    return settings.url or base_url(settings)


def base_url(settings: Settings) -> str:
    """The URL at which this machine reaches the API."""
    host = _EVERYWHERE.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
