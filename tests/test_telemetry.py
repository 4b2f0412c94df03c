"""What must not be in a log."""

import asyncio
import io
import json
from collections.abc import Iterator

import pytest
import structlog

from app import telemetry, trace_context
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


async def test_a_line_names_the_trace_of_the_work_it_is_about() -> None:
    out, header = io.StringIO(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    telemetry.configure(Settings(log_format="json"), "test", out)

    async def work(traceparent: str | None) -> None:
        trace_context.enter(traceparent)
        await asyncio.sleep(0)
        structlog.get_logger().info("did.it")

    await asyncio.gather(work(header), work(None))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line.get("trace_id") for line in lines] == [header[3:35], None]
