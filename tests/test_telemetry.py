"""What must not be in a log."""

import io
from collections.abc import Iterator

import pytest
import structlog

from app import telemetry
from app.settings import Settings


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_traceback_shows_no_local_variables(form: str) -> None:
    """They hold keys, prompts and answers."""
    out = io.StringIO()
    telemetry.configure(Settings(log_format=form), "test", out)
    prompt = "".join(["whispered", "-", "secret"])
    try:
        raise RuntimeError(f"{len(prompt)} characters")
    except RuntimeError:
        structlog.get_logger().exception("request.failed")
    assert f"{len(prompt)} characters" in out.getvalue()
    assert prompt not in out.getvalue()
