"""Checks whether a prompt fits a model's context window, as counted by the engine's tokenizer. Pure.

An engine refuses a prompt that is too long without counting all of it; the message here has the full count.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.engines.requests import CHAT, COMPLETIONS, RESPONSES, EngineRequest

_LENGTHS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_TEMPLATE = ("tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")
_TOO_LONG_MESSAGE = re.compile(
    r"maximum context length|max_model_len|longer than the maximum model length|longer than the model's context length",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Count:
    """The tokens of a prompt, and the context window of the engine that counted them."""

    prompt_tokens: int
    window: int

    def problem(self, answer_tokens: int, promised: int | None = None) -> str | None:
        """Why a prompt with an answer of `answer_tokens` does not fit; None if it fits.

        `promised`: the model's window. It applies if the engine's window is larger, because another engine may have less.
        As in vLLM, an `answer_tokens` of the whole window or more means all the room that is left.
        """
        window = min(self.window, promised or self.window)
        answer_tokens = answer_tokens if answer_tokens < window else 0
        if self.prompt_tokens + max(1, answer_tokens) <= window:
            return None
        answer = f", and {answer_tokens} are asked for the answer: together" if answer_tokens else ":"
        return f"the prompt has {self.prompt_tokens} tokens{answer} beyond the context window of {window}"


def question(request: EngineRequest) -> dict[str, Any] | None:
    """The body of a `/tokenize` call to vLLM for the prompt of a request; None if there is no such call for it."""
    body = orjson.loads(request.body)
    template = {name: body[name] for name in _TEMPLATE if body.get(name) is not None}
    if request.route == CHAT and isinstance(body.get("messages"), list):
        return {"messages": body["messages"], **template}
    if request.route == COMPLETIONS and isinstance(body.get("prompt"), str):
        return {"prompt": body["prompt"]}
    if request.route == RESPONSES and isinstance(body.get("input"), str):
        system = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
        return {"messages": [*system, {"role": "user", "content": body["input"]}]}
    return None


def answer_tokens(request: EngineRequest) -> int:
    """The request's limit of answer tokens; 0 means all the room that is left."""
    body: Mapping[str, Any] = orjson.loads(request.body)
    return min((body[name] for name in _LENGTHS if isinstance(body.get(name), int)), default=0)


def counted(answer: object) -> Count | None:
    """Parse an engine's answer to `/tokenize`; None if it is not valid."""
    numbers: Sequence[object] = (
        [answer.get(name) for name in ("count", "max_model_len")] if isinstance(answer, dict) else ()
    )
    match [*numbers]:
        case [int(tokens), int(window)] if window > 0:
            return Count(tokens, window)
    return None


def is_too_long(message: str) -> bool:
    """Whether this error message of an engine says that the prompt does not fit the context window."""
    return _TOO_LONG_MESSAGE.search(message) is not None
