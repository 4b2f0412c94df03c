"""Claims about the metrics page of a background process."""

import asyncio
import socket

import httpx
import pytest

from app import processes
from testing.waiting import eventually, in_time
from workers import metrics_page

VARIABLE = "SLACKWATER_WORKER_METRICS_PORT"


async def scraped(port: int) -> str:
    """The page, once it answers."""
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await eventually(lambda: client.get(f"http://127.0.0.1:{port}/metrics"))).text


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_page_is_at_its_port_and_its_address_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    port = processes.free_port()
    task = asyncio.create_task(metrics_page.serve("127.0.0.1", port, VARIABLE, lambda: b"up 1\n"))
    assert await scraped(port) == "up 1\n"
    assert f"http://127.0.0.1:{port}/metrics" in capsys.readouterr().out
    await ended(task)
    with socket.create_server(("127.0.0.1", port)):
        pass  # it is free again


async def test_a_port_that_is_taken_is_told_once_and_taken_over_when_it_is_free(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_page, "AGAIN_SECONDS", 0.01)
    tries: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        tries.append(seconds)
        await real(seconds)

    monkeypatch.setattr(metrics_page.asyncio, "sleep", sleep)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        task = asyncio.create_task(metrics_page.serve("127.0.0.1", port, VARIABLE, lambda: b"up 1\n"))
        async with in_time():
            while tries.count(0.01) < 3:
                await real(0.001)
    assert await scraped(port) == "up 1\n"
    await ended(task)
    said = capsys.readouterr().out
    assert said.count("metrics.port_taken") == 1
    assert VARIABLE in said


async def test_port_0_is_no_page() -> None:
    async with in_time():
        await metrics_page.serve("127.0.0.1", 0, VARIABLE, bytes)
