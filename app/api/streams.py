"""Answers that are streamed from what is stored."""

from collections.abc import AsyncIterator, Mapping

from fastapi.responses import StreamingResponse


async def streamed(
    blocks: AsyncIterator[bytes], status: int = 200, headers: Mapping[str, str] | None = None, *, media_type: str
) -> StreamingResponse:
    """An answer of these blocks. The first is awaited: what cannot be read raises before a status has been sent."""
    first = await anext(blocks, b"")

    async def whole() -> AsyncIterator[bytes]:
        yield first
        async for block in blocks:
            yield block

    return StreamingResponse(whole(), status, headers, media_type=media_type)
