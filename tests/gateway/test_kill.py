"""An engine is killed under load: streams that had not begun move to the other engine, the others end in a clear error."""

import asyncio
import signal
import sys
from dataclasses import replace

from app import processes
from app.errors import SlackwaterError
from app.gateway.relay import Gateway, SyncCall
from app.gateway.sse_frames import SseEvent
from testing.fakes.engine import FakeEngine
from tests.gateway.support import Registry
from tests.timing import note

STREAMS = 40


async def listen(gateway: Gateway, call: SyncCall, heard: list[SseEvent]) -> SlackwaterError | None:
    try:
        async for event in gateway.stream(call):
            heard.append(event)
    except SlackwaterError as error:
        return error
    return None


async def test_killing_an_engine_loses_no_stream_that_the_other_could_have_taken(
    gateway: Gateway, registry: Registry, call: SyncCall
) -> None:
    port = processes.free_port()
    command = [
        sys.executable,
        "-m",
        "testing.fakes.engine",
        "--port",
        str(port),
        "--latency",
        "0.6",
        "--token-seconds",
        "0.3",
    ]
    doomed = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert doomed.stdout is not None
    await doomed.stdout.readline()
    async with FakeEngine(latency=0.8) as other:
        other.answer_tokens, other.token_seconds = 12, 0.05
        await registry.ready(FakeEngine(port=port), "doomed")
        await registry.ready(other, "other")
        heard: list[list[SseEvent]] = [[] for _ in range(STREAMS)]
        tasks = []
        for number in range(STREAMS):
            one = replace(call, item={"messages": [{"role": "user", "content": f"hello {number}"}]})
            tasks.append(asyncio.create_task(listen(gateway, one, heard[number])))
            await asyncio.sleep(0.03)  # so that, at the kill, some have begun and some have not
        doomed.send_signal(signal.SIGKILL)
        await doomed.wait()
        failures = await asyncio.gather(*tasks)
    assert failures == [None] * STREAMS
    broken = {number for number in range(STREAMS) if heard[number][-1].error}
    assert all(len(heard[number]) > 1 for number in broken)  # what had not begun was not lost
    assert all("engine was lost" in str(heard[number][-1].error) for number in broken)
    assert broken
    note(
        f"engine killed under {STREAMS} streams: {STREAMS - len(broken)} answered, {len(broken)} begun ones ended in an error"
    )
