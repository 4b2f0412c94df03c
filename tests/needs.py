"""What tests need beside Python. What can be installed and is missing skips them, with one line that says how to get it;
CI fails. What the machine itself cannot do skips them everywhere. No other place skips a test (tests/test_needs.py).
"""

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


def unable(why: str) -> NoReturn:
    """Skip the test: this machine, its user or this version of a package cannot do what it is about."""
    pytest.skip(why)


def only(able: object, why: str) -> pytest.MarkDecorator:
    """A mark of tests that only some machines, users or versions can run. `why`: what the others lack."""
    return pytest.mark.skipif(not able, reason=why)


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
