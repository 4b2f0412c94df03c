"""Reads the events of an engine's answer as they arrive."""

from collections.abc import AsyncIterator, Callable

import aiohttp
import orjson

from app.engines.continuation import Continuation
from app.engines.outcome import ABORT, ABORTED, EngineDown, Outcome, Retry, from_response, from_stream_error, usage_of
from app.engines.stream_merge import Chunks


async def read_transcript(
    content: aiohttp.StreamReader, transcript: Continuation, on_first_token: Callable[[], None]
) -> Outcome | None:
    """Read a stream into a transcript. Returns None when the answer has ended, else the outcome.

    `on_first_token` is called at the first token.
    """
    before, notified, done = transcript.received, False, False
    async for line in _lines(content):
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            done = True
            break
        if line.startswith(b"data:"):
            transcript.feed(data)
        if not notified and transcript.received > before:
            notified = True
            on_first_token()
        if transcript.error is not None:
            error, transcript.error = transcript.error, None
            return from_stream_error(error)
    if transcript.finish_reason == ABORT:
        transcript.finish_reason = None  # the next try goes on behind what was received
        return Retry(ABORTED)
    if transcript.finish_reason is None and done:  # not every server gives a reason
        transcript.finish_reason = "stop"
    return None if transcript.finish_reason else EngineDown("the stream ended early", suspect=True)


async def read_events(
    content: aiohttp.StreamReader, on_event: Callable[[bytes], None], *, begun: bool, prompt_tokens: int | None = None
) -> Outcome:
    """Read the events of a response or the chunks of a chat completion. Returns the outcome.

    `prompt_tokens`: an estimate. With it, an answer whose stream reports no usage gets one: a chat completion as a last event,
    a response in the event that ends it. Each piece counts as a token.
    """
    chunks, pieces, done = Chunks(), 0, False
    async for line in _lines(content):
        data = line.removeprefix(b"data:").strip()
        done |= data == b"[DONE]"
        if not line.startswith(b"data:") or data == b"[DONE]":
            continue
        event = orjson.loads(data)
        kind = event.get("type")
        if kind in ("error", "response.failed") or event.get("error"):
            return from_stream_error(event.get("error") or (event.get("response") or {}).get("error") or event)
        pieces += str(kind).endswith(".delta")
        ended = kind in ("response.completed", "response.incomplete")
        if ended and prompt_tokens is not None and usage_of(event["response"]) is None:
            event["response"]["usage"] = {
                "input_tokens": prompt_tokens,
                "output_tokens": pieces,
                "total_tokens": prompt_tokens + pieces,
            }
            data = orjson.dumps(event)
        if not (begun and kind in ("response.created", "response.queued")):
            on_event(data)
        if ended:
            return from_response(200, orjson.dumps(event["response"]))
        if kind is None:
            chunks.take(event)
    if done:
        chunks.end()
    if prompt_tokens is not None and (last := chunks.missing_usage(prompt_tokens)) is not None:
        on_event(orjson.dumps(last))
        chunks.take(last)
    answer = chunks.answer()
    return (
        EngineDown("the stream ended early", suspect=True)
        if answer is None
        else from_response(200, orjson.dumps(answer))
    )


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream, of any length. The first event contains the token ids of a whole prompt."""
    pieces: list[bytes] = []
    async for block in content.iter_any():
        *ended, rest = block.split(b"\n")
        for line in ended:
            yield b"".join([*pieces, line])
            pieces.clear()
        pieces.append(rest)
