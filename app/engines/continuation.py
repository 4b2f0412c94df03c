"""A streamed batch request that can be yielded and continued later without losing a token. Pure.

    first call       the item's own request, streamed with `return_token_ids`
    after a yield    /v1/completions with the prompt's and the generated token ids as prompt, for the remaining tokens
    at the end       one answer, as of one call: the prompt counts once, and the text of all calls is joined

SGLang streams token ids for text completions only. There a chat's prompt is tokenized first, and the first call has that
prompt too. With an engine that streams no token ids the request starts again after a yield.

Continuing is exact at temperature 0, and has the same distribution when sampling without a seed. It is neither if the engine
keeps more state than the tokens: a seed, penalties, a grammar, logprobs, tools, several choices, or stop strings that may
span the cut. Such requests are not continued; they start again after a yield. So does one in whose answer more has come than
a text (reasoning, a tool call, a second choice), since a continuation has only that.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.engines import mending
from app.engines.answer_shape import EventReader
from app.engines.content_parts import text_of
from app.engines.dialects import VLLM, Dialect
from app.engines.outcome import Done, Outcome, Usage, from_response, marked, usage_of
from app.engines.requests import CHAT, COMPLETIONS, EngineRequest
from app.engines.stream_merge import BESIDE_TEXT, Chunks

_CARRIED = (
    "model",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "ignore_eos",
    "logit_bias",
    "priority",
    "cache_salt",
    "user",
)
_RESUMABLE = frozenset({*_CARRIED, "messages", "prompt", "max_tokens", "max_completion_tokens", "stream"})
_LONGEST_GAP = (
    2  # characters that may be missing between two pieces, because a cut may split the bytes of one character
)
STREAM_INTERVAL = 8  # tokens per message of a stream; a yield loses at most this many


def resumable(request: EngineRequest) -> bool:
    """Whether this request can be continued from its tokens after a yield."""
    if request.route not in (CHAT, COMPLETIONS):
        return False
    body = orjson.loads(request.body)
    return isinstance(body.get("prompt", ""), str) and not any(
        value is not None and key not in _RESUMABLE for key, value in body.items()
    )


@dataclass
class Continuation:
    """The transcript of one resumable request: what the engine has returned so far, over all calls.

    `context_window` of the model, in tokens, limits prompt and answer together. `received`: tokens, or pieces of text if the
    engine sends no token ids, of all calls. `begun`: there was a choice, if only an empty one. `beyond`: more than a text
    has come. `mended`: what was, in words.
    """

    request: EngineRequest
    context_window: int
    dialect: Dialect = VLLM
    received: int = 0
    begun: bool = False
    prompt_ids: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    error: dict[str, Any] | None = None
    mended: list[str] = field(default_factory=list)
    beyond: bool = False
    _chunks: Chunks = field(default_factory=Chunks)  # of this call
    _head: dict[str, Any] = field(default_factory=dict)
    _calls: int = 0
    _reader: EventReader = field(default_factory=EventReader)
    _reported: dict[int, Usage] = field(default_factory=dict)  # by call; one that yields reports none

    @property
    def started(self) -> bool:
        """Whether the engine has computed the prompt, and a call can go on behind its tokens."""
        return bool(self.output_ids) and not self.beyond

    @property
    def needs_prompt_ids(self) -> bool:
        """Whether the prompt's token ids are to be asked for before the first call."""
        return self.dialect.resume == "tokenize" and self.request.route == CHAT and not self.prompt_ids

    @property
    def context_tokens(self) -> int:
        """The number of tokens of prompt and output so far."""
        return len(self.prompt_ids) + len(self.output_ids)

    def call(self) -> EngineRequest:
        """The request to send now: the first call, or a continuation after a yield."""
        self._calls += 1
        self._reader = EventReader()
        self._chunks = Chunks()
        if not self.started:  # there is nothing to continue from, so it starts again
            self.pieces.clear()
            self.output_ids.clear()
            self.received, self.beyond = 0, False
        self.pieces.append("")
        body = orjson.loads(self.request.body)
        route = self.request.route
        if self.output_ids or (self.dialect.resume == "tokenize" and self.prompt_ids):
            left = self._limit(body) - len(self.output_ids)
            body = {key: body[key] for key in _CARRIED if key in body}
            body |= {"prompt": self.prompt_ids + self.output_ids, "max_tokens": left}
            route = COMPLETIONS
        body |= {"stream": True, "stream_options": {"include_usage": True}} | self._extensions(route)
        return EngineRequest(route, orjson.dumps(body), self.request.traceparent)

    def _extensions(self, route: str) -> dict[str, Any]:
        """The fields beyond OpenAI's that make the stream bring token ids."""
        resume = self.dialect.resume
        ids = resume == "stream" or (resume == "tokenize" and route == COMPLETIONS)
        interval = {"stream_interval": STREAM_INTERVAL} if self.dialect.interval else {}
        return ({"return_token_ids": True} if ids else {}) | interval

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be generated."""
        if self.finish_reason is not None:
            return True
        return self.started and len(self.output_ids) >= self._limit(orjson.loads(self.request.body))

    def feed(self, data: bytes) -> None:
        """Process one message of the stream: the JSON after `data:`. Raises ValueError if it is none."""
        message, _, mended = self._reader.read(data)
        self.mended += (repair for repair in mended if repair not in self.mended)
        if message.get("error"):
            self.error = message["error"] if isinstance(message["error"], dict) else {"message": str(message["error"])}
            return
        self._head = self._head or {
            "id": message.get("id"),
            "created": message.get("created"),
            "model": message.get("model"),
        }
        self._chunks.take(message)
        if message.get("usage") and (usage := usage_of(message)) is not None:
            self._reported[self._calls] = usage
        for place, choice in enumerate(message.get("choices") or ()):
            self._take(message, choice, place)

    def _take(self, message: Mapping[str, Any], choice: Mapping[str, Any], place: int) -> None:
        if not self.prompt_ids:
            self.prompt_ids = list(message.get("prompt_token_ids") or choice.get("prompt_token_ids") or ())
        ids = choice.get("token_ids") or ()
        self.output_ids += ids
        delta = choice.get("delta")
        self.begun = self.begun or delta is not None or choice.get("text") is not None
        text = text_of(choice.get("text") if delta is None else delta.get("content"))
        more = any(map((delta or {}).get, BESIDE_TEXT))
        self.beyond = self.beyond or more or (choice.get("index") or place) > 0
        self.received += len(ids) or bool(text or more)
        self.pieces[-1] += text
        if choice.get("finish_reason"):
            self.finish_reason = choice["finish_reason"]
            self.stop_reason = choice.get("stop_reason", choice.get("matched_stop"))

    def _limit(self, body: Mapping[str, Any]) -> int:
        """The limit of answer tokens: the request's own limit, at most the room that the prompt leaves."""
        room = self.context_window - len(self.prompt_ids)
        limit = body.get("max_completion_tokens") if body.get("max_tokens") is None else body["max_tokens"]
        return room if limit is None else min(int(limit), room)

    @property
    def text_ids(self) -> Sequence[int]:
        """The output ids without the stop token, which has no text."""
        return self.output_ids[:-1] if self.finish_reason == "stop" else self.output_ids

    @property
    def usage(self) -> Usage:
        """The usage as of one call: the prompt counts once, with the cached tokens of the first call.

        If the engine returns no token ids, this is the usage that it reported, or an estimate: each piece counts as a token.
        """
        if not self.output_ids and self._reported:
            return self._reported[max(self._reported)]
        if self._uncounted:
            return Usage(mending.prompt_estimate(self.request.body), 0, self.received)
        cached = self._reported[1].cached_tokens if 1 in self._reported else 0
        return Usage(len(self.prompt_ids), cached, len(self.output_ids), self._details)

    @property
    def _details(self) -> dict[str, int]:
        """Those of the prompt as the first call reported them, and the sums of those of the output."""
        found: Counter[str] = Counter()
        for call, usage in self._reported.items():
            found.update({name: n for name, n in usage.details.items() if call == 1 or name.startswith("output.")})
        return dict(found)

    @property
    def resumed_cached(self) -> int:
        """Tokens that later calls found in the prefix cache."""
        return sum(usage.cached_tokens for call, usage in self._reported.items() if call > 1)

    @property
    def _uncounted(self) -> bool:
        """Whether an answer has come, and nothing that says how many tokens it has."""
        return bool(self.received) and not self.output_ids and not self._reported

    def done(self, text: str) -> Outcome:
        """The outcome of a complete transcript. `text`: of all calls."""
        if self.beyond:
            return self._merged()
        mended = [*self.mended, *([mending.NO_USAGE] if self._uncounted else ())]
        answer = self.answer(text)
        return Done(mending.marked(answer, mended) if mended else answer, self.usage, tuple(mended))

    def _merged(self) -> Outcome:
        """The outcome of an answer that is more than a text, which one call has given whole."""
        self._chunks.end()
        size = mending.prompt_estimate(self.request.body)
        return marked(from_response(200, orjson.dumps(self._chunks.answer()), size), self.mended)

    def answer(self, text: str) -> bytes:
        """The whole answer in the shape of one call without streaming."""
        counted = self.usage
        usage: dict[str, Any] = {
            "prompt_tokens": counted.prompt_tokens,
            "completion_tokens": counted.completion_tokens,
            "total_tokens": counted.prompt_tokens + counted.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": counted.cached_tokens, **_parts_of(counted, "input")},
        }
        if outputs := _parts_of(counted, "output"):
            usage["completion_tokens_details"] = outputs
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": self.finish_reason or "length"}
        choice["stop_reason"] = self.stop_reason
        if self.request.route == CHAT:
            kind, choice["message"] = "chat.completion", {"role": "assistant", "content": text, "tool_calls": []}
        else:
            kind, choice["text"] = "text_completion", text
        return orjson.dumps({**self._head, "object": kind, "choices": [choice], "usage": usage})


def _parts_of(usage: Usage, of: str) -> dict[str, int]:
    return {name.removeprefix(f"{of}."): n for name, n in usage.details.items() if name.startswith(f"{of}.")}


def joined(pieces: Sequence[str], whole: str) -> str:
    """The text of all calls. `whole` is the engine's text of all tokens together. Only `whole` has a character that a cut
    has split. But it also shows special tokens, which a stream leaves out; if it does, the pieces are used instead.
    `whole` marks an unfinished character at the end, which a stream leaves out.
    """
    at = 0
    for piece in pieces:
        end = _end(piece, whole, at)
        if end is None:
            return "".join(pieces)
        at = end
    rest = whole[at:].rstrip("\N{REPLACEMENT CHARACTER}")
    return whole[:at] + rest if len(rest) <= _LONGEST_GAP else "".join(pieces)


def _end(piece: str, whole: str, at: int) -> int | None:
    """The end of the piece that begins at `at`; None if `whole` does not contain it there.

    If a prompt ends within a character, vLLM's stream begins with the text of the whole prompt and the earlier output.
    """
    found = whole.find(piece, at)
    if 0 <= found - at <= _LONGEST_GAP:
        return found + len(piece)
    return next((end for end in range(len(whole), max(at, 1) - 1, -1) if piece.endswith(whole[:end])), None)
