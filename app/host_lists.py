"""Lists of hosts that something may go to: webhooks and media, by settings, account and policy. One form, one match. Pure.

`example.com` is that host alone; `.example.com` is every host below it.
"""

import re
from collections.abc import Iterable

NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
FORM = "write it like example.com, or .example.com for all hosts below it"


def lists(allowed: Iterable[str], host: str) -> bool:
    """Whether the list has this host, which is in small letters."""
    return any(host == each or (each.startswith(".") and host.endswith(each)) for each in allowed)


def parse(text: str) -> tuple[str, ...]:
    """The hosts of a list with commas."""
    return tuple(host.strip().lower().rstrip(".") for host in text.split(",") if host.strip(" ."))


def is_entry(text: str) -> bool:
    """Whether this can stand in a list."""
    return NAME.fullmatch(text.removeprefix(".")) is not None
