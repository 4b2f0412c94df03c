"""Claims about the HTTP request by which a gateway tells a worker of its requests, in the event loop of the API."""

import asyncio

import uvloop

from workers.engine.event_stream import EventStream


def test_what_is_sent_once_the_worker_has_gone_is_lost_without_an_error() -> None:
    errors: list[object] = []

    async def told() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        gone = asyncio.Event()

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            await gone.wait()
            writer.transport.abort()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        stream = EventStream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "token")
        await stream.ready.wait()
        gone.set()
        await stream.task
        await asyncio.sleep(0)
        assert stream.send(b"late\n", at_once=False)
        await asyncio.sleep(0.05)
        stream.close()
        server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(told())
    assert errors == []
