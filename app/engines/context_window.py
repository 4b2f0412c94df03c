"""Whether a prompt fits a model's context window, as the engine's own tokenizer counts. Pure.

An engine refuses a prompt that is too long without counting it to its end; what it says is made whole here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.engines.requests import CHAT, COMPLETIONS, RESPONSES, EngineRequest

TOO_LONG = "context_length_exceeded"  # OpenAI's code
_LENGTHS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_TEMPLATE = ("tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")
_SAID = re.compile(r"maximum context length|max_model_len|longer than the maximum model length", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Count:
    """Tokens of a prompt, and of the context window of the engine that counted them."""

    prompt_tokens: int
    window: int

    def problem(self, answer_tokens: int, promised: int | None = None) -> str | None:
        """What is wrong with a prompt that is to be answered with so many tokens; None: it fits.

        `promised`: the model's own window, which holds where the engine's is larger: another engine may have no more.
        A limit of the whole window or more means whatever room is left, as it does to vLLM.
        """
        window = min(self.window, promised or self.window)
        answer_tokens = answer_tokens if answer_tokens < window else 0
        if self.prompt_tokens + max(1, answer_tokens) <= window:
            return None
        asked = f", and {answer_tokens} are asked for the answer: together" if answer_tokens else ":"
        return f"the prompt has {self.prompt_tokens} tokens{asked} beyond the context window of {window}"


def question(request: EngineRequest) -> dict[str, Any] | None:
    """The body of vLLM's `/tokenize` for the prompt of a request; None where it cannot be asked so."""
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
    """What the request asks for at most; 0: whatever room is left."""
    body: Mapping[str, Any] = orjson.loads(request.body)
    return min((body[name] for name in _LENGTHS if isinstance(body.get(name), int)), default=0)


def counted(answer: object) -> Count | None:
    """The meaning of vLLM's answer."""
    numbers: Sequence[object] = (
        [answer.get(name) for name in ("count", "max_model_len")] if isinstance(answer, dict) else ()
    )
    match [*numbers]:
        case [int(tokens), int(window)]:
            return Count(tokens, window)
    return None


def is_too_long(message: str) -> bool:
    """Whether an engine has refused a request with these words because its prompt does not fit."""
    return _SAID.search(message) is not None
