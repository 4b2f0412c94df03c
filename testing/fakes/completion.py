"""The answer of the fake engine to one completion, in vLLM's JSON: as a whole, or as the events of a stream."""

from collections.abc import Iterator
from typing import Any

from testing.fakes import tokens, tool_calls
from testing.fakes.tokens import Answer


class Run:
    """One completion: the tokens of `answer` from `done`, the number that a continuation brought, to `stop`.

    `prompt`: the tokens of the whole prompt; None: those of the text that is answered.
    """

    def __init__(
        self, body: dict[str, Any], answer: Answer, name: str = "cmpl-1", prompt: list[int] | None = None
    ) -> None:
        self.chat = "messages" in body
        self.answer = answer
        self.options: dict[str, Any] = body.get("stream_options") or {}
        self.wrong = ""
        self.model = body.get("model")
        self.name = name
        self._ids = bool(body.get("return_token_ids"))
        given = body.get("prompt")
        continued = isinstance(given, list) and isinstance(given[0], int) and tokens.known(given)
        self._prompt: list[int] = (given if continued else prompt) or tokens.encode(answer.prompt)
        _, generated = tokens.split(self._prompt)
        self.done = len(generated)
        if generated != [answer.token(i) for i in range(min(self.done, answer.length - 1))]:
            self.wrong = "the tokens after the prompt are not those that this engine answered to it"
        most = body.get("max_tokens") or body.get("max_completion_tokens") or answer.length
        self.stop = min(answer.length, self.done + most)

    @property
    def prompt_tokens(self) -> int:
        return len(self._prompt)

    def whole(self, calls: tool_calls.Calls = ()) -> dict[str, Any]:
        """The answer of a call without streaming. It ignores `max_tokens`. `calls`: it consists of them."""
        text = "".join(self.answer.text(i) for i in range(self.done, self.answer.length))
        content: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        choice = {"index": 0, "finish_reason": "stop", **content}
        if calls:
            choice |= {"finish_reason": "tool_calls", "message": tool_calls.message(calls)}
        return {
            "id": self.name,
            "object": "chat.completion" if self.chat else "text_completion",
            "created": 1,
            "model": self.model,
            "choices": [choice],
            "usage": self.usage(self.answer.length),
        }

    def usage(self, end: int) -> dict[str, Any]:
        """Tokens up to `end`. Half of a new prompt counts as cached, of a continued one all but its last token."""
        completed = end - self.done
        cached = self.prompt_tokens - 1 if self.done else self.prompt_tokens // 2
        counts = {"prompt_tokens": self.prompt_tokens, "completion_tokens": completed}
        return {
            **counts,
            "total_tokens": self.prompt_tokens + completed,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def event(self, choices: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
        """One event of the stream."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {"id": self.name, "object": kind, "created": 1, "model": self.model, "choices": choices, **extra}

    def opening(self) -> dict[str, Any]:
        """The event before a chat's first token: the role, and the prompt's tokens if requested."""
        delta = {"role": "assistant", "content": ""}
        extra = {"prompt_token_ids": self._prompt} if self._ids else {}
        return self.event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}], **extra)

    def calls(self, calls: tool_calls.Calls) -> Iterator[dict[str, Any]]:
        """The events of an answer that consists of calls; none without any."""
        for delta in tool_calls.deltas(calls):
            yield self.event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])
        if calls:
            yield self.event([{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "tool_calls"}])

    def piece(self, begin: int, end: int) -> dict[str, Any]:
        """The tokens from `begin` to `end`; the last one has the finish reason."""
        text = "".join(self.answer.text(i) for i in range(begin, end))
        finish = None if end < self.stop else "stop" if end == self.answer.length else "length"
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
        choice |= {"delta": {"content": text}} if self.chat else {"text": text}
        if self._ids:
            choice["token_ids"] = [self.answer.token(i) for i in range(begin, end)]
            if not self.chat and begin == self.done:
                choice["prompt_token_ids"] = self._prompt
        usage = {"usage": self.usage(end)} if self.options.get("continuous_usage_stats") else {}
        return self.event([choice], **usage)


def prompt_of(body: dict[str, Any]) -> str:
    """The prompt of a request as text: of a chat the last message, of a continuation the original prompt."""
    if "messages" in body:
        return str(body["messages"][-1].get("content"))
    prompt = body.get("prompt")
    if isinstance(prompt, list) and isinstance(prompt[0], int) and tokens.known(prompt):
        return tokens.split(prompt)[0]
    return str(prompt)
