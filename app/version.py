"""The version of Slackwater."""

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The version of the installed package; `unknown` if the code is not installed."""
    try:
        return metadata.version("slackwater")
    except metadata.PackageNotFoundError:
        return "unknown"
