"""The answers of the fake engine on `/v1/embeddings` and `/v1/responses`, in vLLM's JSON."""

import hashlib
import math
from collections.abc import Iterator
from typing import Any

from testing.fakes import tool_calls

DIMENSIONS = 8


def vector(text: str) -> list[float]:
    """A unit vector that depends only on the text."""
    raw = [byte - 127.5 for byte in hashlib.sha256(text.encode()).digest()[:DIMENSIONS]]
    length = math.hypot(*raw)
    return [x / length for x in raw]


def embeddings(body: dict[str, Any]) -> dict[str, Any]:
    """A vector for each input."""
    given = body["input"]
    texts = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    data = [{"index": i, "object": "embedding", "embedding": vector(str(text))} for i, text in enumerate(texts)]
    tokens = sum(len(text) for text in texts)
    usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
    return {"id": "embd-1", "object": "list", "created": 1, "model": body["model"], "data": data, "usage": usage}


def response(body: dict[str, Any], calls: tool_calls.Calls = ()) -> dict[str, Any]:
    """The whole response: an echo, or these calls of tools."""
    text = f"echo: {last_input_text(body)}"
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
    usage = {
        "input_tokens": len(last_input_text(body)),
        "input_tokens_details": {"cached_tokens": 1},
        "output_tokens": len(text.split()),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": len(last_input_text(body)) + len(text.split()),
    }
    cut = body.get("max_output_tokens") == 1
    return _response(
        body, "incomplete" if cut else "completed", output=tool_calls.items(calls) or [message], usage=usage
    )


def events(body: dict[str, Any], calls: tool_calls.Calls = ()) -> Iterator[dict[str, Any]]:
    """The response as the events of a stream."""
    done = response(body, calls)
    created = {"type": "response.created", "response": _response(body, "in_progress")}
    if calls:
        found = [created, *tool_calls.events(calls), {"type": f"response.{done['status']}", "response": done}]
        return ({**event, "sequence_number": number} for number, event in enumerate(found))
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    [message] = done["output"]
    [part] = message["content"]
    begun = {**message, "status": "in_progress", "content": []}
    found = [
        created,
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
    ]
    for word in part["text"].split():
        found.append({"type": "response.output_text.delta", **place, "delta": word, "logprobs": []})
    found.append({"type": "response.output_item.done", "output_index": 0, "item": message})
    found.append({"type": f"response.{done['status']}", "response": done})
    return ({**event, "sequence_number": number} for number, event in enumerate(found))


def last_input_text(body: dict[str, Any]) -> str:
    """The last text of the input."""
    given = body["input"]
    if isinstance(given, str):
        return given
    content = given[-1].get("content")
    return str(content if isinstance(content, str) or not content else content[-1]["text"])


def _response(
    body: dict[str, Any], status: str, output: list[dict[str, Any]] | None = None, usage: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": body["model"],
        "status": status,
        "output": output or [],
        "usage": usage,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
