"""Answers of the fake engine that only call tools, in vLLM's JSON. A call is a pair: the tool's name and its arguments."""

from collections.abc import Iterator, Sequence
from typing import Any

Calls = Sequence[tuple[str, str]]
_CUT = 3  # characters in a part of a name or of arguments


def message(calls: Calls) -> dict[str, Any]:
    """The message of a chat completion."""
    made = [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "refusal": None, "tool_calls": made}


def deltas(calls: Calls) -> Iterator[dict[str, Any]]:
    """The same in parts. vLLM sends a name whole; here it comes in parts, too."""
    for index, (name, arguments) in enumerate(calls):
        first, *rest = _parts(name)
        begun = {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": first, "arguments": ""},
        }
        yield {"tool_calls": [begun]}
        for field, parts in (("name", rest), ("arguments", _parts(arguments))):
            for part in parts:
                yield {"tool_calls": [{"index": index, "function": {field: part}}]}


def items(calls: Calls) -> list[dict[str, Any]]:
    """The output of a response."""
    return [
        {
            "id": f"fc_{i}",
            "call_id": f"call_{i}",
            "type": "function_call",
            "name": name,
            "arguments": arguments,
            "status": "completed",
        }
        for i, (name, arguments) in enumerate(calls)
    ]


def events(calls: Calls) -> Iterator[dict[str, Any]]:
    """The events of this output."""
    for place, item in enumerate(items(calls)):
        at = {"output_index": place, "item_id": item["id"]}
        kind = "response.function_call_arguments"
        begun = item | {"arguments": "", "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": place, "item": begun}
        for part in _parts(item["arguments"]):
            yield {"type": f"{kind}.delta", **at, "delta": part}
        yield {"type": f"{kind}.done", **at, "arguments": item["arguments"]}
        yield {"type": "response.output_item.done", "output_index": place, "item": item}


def _parts(text: str) -> list[str]:
    return [text[begin : begin + _CUT] for begin in range(0, len(text), _CUT)]
