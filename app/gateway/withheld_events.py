"""Withholds the calls of forbidden tools from a stream of events. See `app.policy.tool_call_events`. Pure."""

from collections.abc import AsyncGenerator

import orjson

from app.gateway.sse_frames import SseEvent
from app.policy.tool_call_events import EventWithholder
from app.policy.tool_calls import CallJudge


async def of(events: AsyncGenerator[SseEvent, None], judge: CallJudge) -> AsyncGenerator[SseEvent, None]:
    """The events without the calls that `judge` refuses."""
    withholder = EventWithholder(judge)
    try:
        async for event in events:
            for body in withholder.feed(event.body):
                yield event if body is event.body else SseEvent(orjson.dumps(body), body)
    finally:
        await events.aclose()
