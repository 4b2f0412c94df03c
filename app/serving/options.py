"""The options of uvicorn that every server of ours has."""

from typing import Any

from app.serving.connection_limits import backlog, limits_of, raise_file_limit
from app.serving.http_protocol import ClientTimeouts, Refusal, limited, parsers
from app.serving.request_limits import HEAD_BYTES
from app.settings import Settings


def limited_options(settings: Settings, refusal: Refusal) -> dict[str, Any]:
    """Options with the limits on clients. Raises this process's limit of open files. `refusal`: see `http_protocol`."""
    files = raise_file_limit()
    timeouts = ClientTimeouts(settings.header_seconds, settings.body_seconds)
    return {
        "http": limited(parsers()[0], limits_of(settings, files), timeouts, refusal),
        "ws": "none",  # an upgrade would bypass the limits
        "h11_max_incomplete_event_size": HEAD_BYTES,
        "backlog": backlog(files),
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
    }
