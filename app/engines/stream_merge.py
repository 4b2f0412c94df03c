"""Merges the chunks of a streamed chat completion into one answer, as of a call without streaming. Pure."""

from collections.abc import Mapping
from typing import Any

# Fields of a message that a stream sends in pieces.
_TEXTS = ("content", "reasoning", "reasoning_content", "refusal")


class Chunks:
    """Collects the chunks of one answer, in order."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None
        self._choices: dict[int, dict[str, Any]] = {}
        self._pieces = 0

    def take(self, chunk: Mapping[str, Any]) -> None:
        """Add the next chunk."""
        self._head = self._head or {name: chunk.get(name) for name in ("id", "created", "model")}
        self._usage = chunk.get("usage") or self._usage
        for part in chunk.get("choices") or ():
            index = part.get("index") or 0
            fresh = {"index": index, "message": {"role": "assistant", "content": None}, "logprobs": None}
            choice = self._choices.setdefault(index, fresh)
            self._pieces += any((part.get("delta") or {}).get(name) for name in (*_TEXTS, "tool_calls"))
            _add_delta(choice["message"], part.get("delta") or {})
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
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": self._usage}


def _add_delta(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name in _TEXTS:
        if delta.get(name) is not None:
            message[name] = (message.get(name) or "") + delta[name]
    for part in delta.get("tool_calls") or ():
        calls = message.setdefault("tool_calls", [])
        while len(calls) <= part.get("index", 0):
            calls.append({"id": None, "type": "function", "function": {"name": "", "arguments": ""}})
        call, function = calls[part.get("index", 0)], part.get("function") or {}
        call["id"] = part.get("id") or call["id"]
        for name in ("name", "arguments"):
            call["function"][name] += function.get(name) or ""


def _add_logprobs(choice: dict[str, Any], logprobs: Mapping[str, Any]) -> None:
    if logprobs.get("content"):
        choice["logprobs"] = choice["logprobs"] or {"content": []}
        choice["logprobs"]["content"] += logprobs["content"]
