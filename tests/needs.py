"""What tests need beside Python. Where it is missing they are skipped, with one line that says how to get it; CI fails."""

import fcntl
import importlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it where CI=true. `what`: what is missing, and how to get it."""
    if os.environ.get("CI") == "true":
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def module(name: str, extra: str = "cpu") -> Any:
    """The module of a package that an extra of pyproject.toml brings. It may be called while a file is imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"{name} cannot be imported ({error}): pip install '.[{extra}]'"
        if os.environ.get("CI") == "true":
            raise ImportError(message) from error
        pytest.skip(message, allow_module_level=True)


@contextmanager
def installing(what: str) -> Iterator[None]:
    """Of all test processes of the machine, one at a time runs the block."""
    with (Path(tempfile.gettempdir()) / f"slackwater-installing-{what}-{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
