"""Which version of Slackwater this is."""

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The installed package's; `unknown` where the code runs without having been installed."""
    try:
        return metadata.version("slackwater")
    except metadata.PackageNotFoundError:
        return "unknown"
