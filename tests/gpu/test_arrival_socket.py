"""Claims about announcements of an engine's door to the worker: by the socket in the shared folder, and by the stream."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import pytest

from app.engines.engine_key import door_token
from app.headroom.arrivals import Arrivals
from app.settings import Settings
from workers.engine.door.announcer import SOCKETS, DoorAnnouncer
from workers.gpu.arrival_events import ArrivalEvents
from workers.gpu.arrival_socket import ArrivalSocket
from workers.gpu.http_server import HttpServer

SECRET = b"a secret key of at least thirty-two bytes"
ARRIVED = {"id": "a", "event": "arrived", "class": "sync", "prompt_tokens": 100, "max_tokens": 20}
SOON = 0.05


class Woken:
    """The worker's side: its ledger, and an event that is set when the control loop would wake."""

    def __init__(self) -> None:
        self.ledger = Arrivals(600)
        self.woke = asyncio.Event()
        self.events = ArrivalEvents(self.ledger, self.woke.set)

    async def within(self, seconds: float) -> bool:
        """Whether it wakes in time."""
        try:
            await asyncio.wait_for(self.woke.wait(), seconds)
        except TimeoutError:
            return False
        self.woke.clear()
        return True


@pytest.fixture
async def woken() -> Woken:
    return Woken()


@pytest.fixture
async def announcer(tmp_path: Path) -> AsyncIterator[DoorAnnouncer]:
    announcer = DoorAnnouncer("engine-0.x", tmp_path, "")
    yield announcer
    announcer.close()


async def test_an_arrival_at_the_door_wakes_the_worker_at_once(
    tmp_path: Path, woken: Woken, announcer: DoorAnnouncer
) -> None:
    async with ArrivalSocket(tmp_path, woken.events):
        assert announcer.tell(ARRIVED, at_once=True)
        assert await woken.within(SOON)
        assert woken.ledger.load(monotonic()).awaiting_tokens == 100
        announcer.tell({"id": "a", "event": "first_token", "ttft_ms": 12.5})
        announcer.tell({"id": "a", "event": "finished", "output_tokens": 3})
        await asyncio.sleep(SOON)
        assert woken.ledger.load(monotonic()).open == 0
        assert woken.ledger.latency().ttft_p50 == 12.5
    assert not list(tmp_path.iterdir())


async def test_a_worker_that_starts_again_is_told_again_and_clears_what_a_dead_one_left(
    tmp_path: Path, woken: Woken, announcer: DoorAnnouncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.engine.door.announcer.LOOK_SECONDS", 0.0)
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.bind(str(tmp_path / SOCKETS.replace("*", "dead")))
    left.close()
    assert not announcer.tell(ARRIVED)
    async with ArrivalSocket(tmp_path, woken.events):
        assert len(list(tmp_path.iterdir())) == 1
        assert announcer.tell(ARRIVED)
        assert await woken.within(SOON)
    assert not announcer.tell(ARRIVED)
    async with ArrivalSocket(tmp_path, woken.events):
        assert announcer.tell(ARRIVED)
        assert await woken.within(SOON)


async def test_datagrams_that_are_no_events_change_nothing(tmp_path: Path, woken: Woken) -> None:
    async with ArrivalSocket(tmp_path, woken.events):
        [path] = tmp_path.iterdir()
        assert path.stat().st_mode & 0o777 == 0o660
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            for data in (b"", b"{}", b"\xff", b'{"event": "arrived"}', b"[" * 10_000):
                sender.sendto(data, str(path))
        assert not await woken.within(SOON)


async def test_a_folder_that_cannot_be_used_stops_no_worker(tmp_path: Path, woken: Woken) -> None:
    async with ArrivalSocket(tmp_path / "missing", woken.events), ArrivalSocket(tmp_path / ("x" * 200), woken.events):
        pass


async def test_a_worker_that_does_not_read_delays_no_caller(tmp_path: Path, announcer: DoorAnnouncer) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / SOCKETS.replace("*", "deaf")))
        told = [announcer.tell(ARRIVED) for _ in range(5000)]
    assert told[0]
    assert not told[-1]


async def test_without_a_shared_folder_the_stream_of_the_gateways_is_used(tmp_path: Path, woken: Woken) -> None:
    async with HttpServer(Settings(data_dir=tmp_path), SECRET, metrics=bytes) as server:
        with server.announced("engine-0", ArrivalEvents(woken.ledger, woken.woke.set)) as url:
            for token, wakes in ((door_token(SECRET, "engine-0"), True), (door_token(SECRET, "engine-1"), False)):
                announcer = DoorAnnouncer(token, None, url)
                announcer.tell(ARRIVED, at_once=True)
                assert await woken.within(0.5) is wakes
                announcer.close()
                await asyncio.sleep(SOON)
