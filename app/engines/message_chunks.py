"""Chunks of a stream with `message` in place of `delta`, as some servers send the last or the only one. Pure.

A message is a piece as a delta is. Only where it ends a choice of which deltas have come, and begins with their text, it is the
whole of it, of which the rest is left.
"""

from collections.abc import Mapping
from typing import Any

_TEXTS = ("content", "reasoning", "reasoning_content", "refusal")


class MessagesAsDeltas:
    """Makes deltas of the messages in the chunks of one answer, in order."""

    def __init__(self) -> None:
        self._said: dict[tuple[int, str], list[str]] = {}  # by choice and field
        self._called: set[int] = set()

    def correct(self, chunk: Mapping[str, Any]) -> bool:
        """Give every choice its delta. Returns whether one had a message."""
        wrong = False
        for place, choice in enumerate(chunk.get("choices") or ()):
            index = place if choice.get("index") is None else choice["index"]
            delta = choice.get("delta")
            if not delta and isinstance(choice.get("message"), dict):
                choice["delta"] = delta = self._rest(
                    index, choice.pop("message"), ends=bool(choice.get("finish_reason"))
                )
                wrong = True
            if delta:
                self._note(index, delta)
        return wrong

    def _rest(self, index: int, message: dict[str, Any], *, ends: bool) -> dict[str, Any]:
        """What of a message has not come before."""
        if not ends:
            return message
        found = dict(message)
        for name in _TEXTS:
            said = "".join(self._said.get((index, name), ()))
            if isinstance(text := message.get(name), str) and text.startswith(said):
                found[name] = text[len(said) :]
        if index in self._called:
            found.pop("tool_calls", None)
        return found

    def _note(self, index: int, delta: Mapping[str, Any]) -> None:
        for name in _TEXTS:
            if isinstance(text := delta.get(name), str) and text:
                self._said.setdefault((index, name), []).append(text)
        if delta.get("tool_calls"):
            self._called.add(index)
