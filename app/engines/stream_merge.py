"""Merges the chunks of a streamed chat completion into one answer, as of a call without streaming. Pure.

The index of a tool call says to which a part belongs, as `EventReader` has made sure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

# Fields of a message that a stream sends in pieces: its text, and others.
_BESIDE_CONTENT = ("reasoning", "reasoning_content", "refusal")
_TEXTS = ("content", *_BESIDE_CONTENT)
BESIDE_TEXT = (*_BESIDE_CONTENT, "tool_calls", "function_call")


class Chunks:
    """Collects the chunks of one answer, in order."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None
        self._choices: dict[int, dict[str, Any]] = {}
        self._calls: dict[int, _Calls] = {}
        self._pieces = 0

    def take(self, chunk: Mapping[str, Any]) -> None:
        """Add the next chunk."""
        self._head = self._head or {name: chunk.get(name) for name in ("id", "created", "model")}
        self._usage = chunk.get("usage") or self._usage
        for place, part in enumerate(chunk.get("choices") or ()):
            index = place if part.get("index") is None else part["index"]
            choice = self._choices.setdefault(index, {"index": index, "message": None, "logprobs": None})
            delta = part.get("delta")
            if delta is not None and choice["message"] is None:  # without any delta there is nothing that we understand
                choice["message"] = {"role": "assistant", "content": None}
            delta = delta or {}
            self._pieces += any(delta.get(name) for name in ("content", *BESIDE_TEXT))
            _add_texts(choice["message"], delta)
            if delta.get("tool_calls"):
                self._calls.setdefault(index, _Calls()).add(delta["tool_calls"])
            _add_logprobs(choice, part.get("logprobs") or {})
            for name in ("finish_reason", "stop_reason"):
                choice[name] = choice.get(name) if part.get(name) is None else part[name]

    def end(self) -> None:
        """The stream says that it has ended, and not every server says why."""
        for choice in self._choices.values():
            choice["finish_reason"] = choice["finish_reason"] or "stop"

    def missing_usage(self, prompt_tokens: int) -> dict[str, Any] | None:
        """The last chunk of a whole answer that reports no usage; None if it does. Each piece counts as a token.

        `prompt_tokens`: an estimate.
        """
        if self._usage is not None or self.answer() is None:
            return None
        tokens = {"prompt_tokens": prompt_tokens, "completion_tokens": self._pieces}
        usage = tokens | {"total_tokens": prompt_tokens + self._pieces}
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def answer(self) -> dict[str, Any] | None:
        """The whole answer; None if a choice is incomplete."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        if not choices or any(choice["finish_reason"] is None for choice in choices):
            return None
        for index, calls in self._calls.items():
            self._choices[index]["message"]["tool_calls"] = calls.whole()
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": self._usage}


class _Calls:
    """The tool calls of one choice."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """Add the parts of one chunk."""
        for part in parts:
            call = self._calls.setdefault(part["index"], {"id": None, "type": "function"})
            again = part.get("id") and part["id"] == call["id"]
            call["id"] = part.get("id") or call["id"]
            call["type"] = part.get("type") or call["type"]
            for owner in ("function", "custom"):
                if isinstance(said := part.get(owner), Mapping):
                    _add_named(call.setdefault(owner, {}), said, again=again)

    def whole(self) -> list[dict[str, Any]]:
        """The calls, put together, in their order."""
        return [_completed(call) for call in self._calls.values()]


def _completed(call: Mapping[str, Any]) -> dict[str, Any]:
    empty = {} if "custom" in call else {"function": {"name": "", "arguments": ""}}
    return {**call, **{owner: texts | (call.get(owner) or {}) for owner, texts in empty.items()}}


def _add_named(call: dict[str, Any], said: Mapping[str, Any], *, again: object = False) -> None:
    """Add a part of a name and of arguments. `again`: the name is there, if it is said as it was."""
    for name in ("name", "arguments", "input"):
        more = said.get(name)
        if more is None or (again and name == "name" and more == call.get(name)):
            continue
        text = more if isinstance(more, str) else orjson.dumps(more).decode()
        call[name] = call.get(name, "") + text


def _add_texts(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name in _TEXTS:
        if delta.get(name) is not None:
            message[name] = _joined(message.get(name), delta[name])
    if isinstance(said := delta.get("function_call"), Mapping):  # the form before there were tools
        _add_named(message.setdefault("function_call", {}), said)


def _joined(before: Any, more: Any) -> Any:
    """A text, or a list of parts, with what follows. Parts of the same kind that touch become one."""
    if not before:
        return more
    if isinstance(before, str) and isinstance(more, str):
        return before + more
    joined = _parts(before)
    for part in _parts(more):
        [name] = part.keys() - {"type"} if len(part) == 2 else [None]
        if joined and name and joined[-1].keys() == part.keys() and joined[-1].get("type") == part.get("type"):
            joined[-1] = {**joined[-1], name: _joined(joined[-1][name], part[name])}
        else:
            joined.append(part)
    return joined


def _parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Raises TypeError if it is neither."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise TypeError(f"neither text nor parts: {parts!r:.80}")
    return list(parts)


def _add_logprobs(choice: dict[str, Any], logprobs: Mapping[str, Any]) -> None:
    if logprobs.get("content"):
        choice["logprobs"] = choice["logprobs"] or {"content": []}
        choice["logprobs"]["content"] += logprobs["content"]
