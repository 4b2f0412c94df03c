"""The result of an item as templates and conditions read it. Pure."""

import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Self

import orjson

from app.flows import validity
from app.flows.language import MISSING, Readable
from app.flows.problems import CODE, Reason
from app.flows.scopes import ANSWER

_FIELDS = frozenset(ANSWER)
_LARGE = re.compile("[0-9]{19}")  # perhaps an integer beyond 64 bits, of which orjson makes a double
_NOT_JSON = "the answer is not JSON"


class Answer(Readable):
    """A stored result: `ok`, and the engine's answer, the answer from outside, or the error, as JSON. Fields are read when they
    are first asked for. It has any content, since engines and strangers wrote it; what is not there is MISSING.

    `text`: of the first choice. `json`: the value of the text, if that is JSON. `choices`: `{index, text, finish_reason}` of
    each. `valid`: it is ok and fits the `schema` of the stage, if there is one. `error`: `{code, message}` of a failure, and of
    an answer that is not valid.
    """

    def __init__(self, *, ok: bool, body: bytes, schema: bytes | None = None) -> None:
        self.ok, self.body, self._schema = ok, body, schema

    def with_body(self, body: bytes) -> Self:
        """The same with another body."""
        return type(self)(ok=self.ok, body=body, schema=self._schema)

    def get(self, name: str, default: Any = MISSING, /) -> Any:
        """The value of a field, or `default`."""
        return getattr(self, name) if name in _FIELDS else default

    @cached_property
    def content(self) -> dict[str, Any]:
        """The stored JSON; empty if it is no object."""
        found = _parsed(self.body)
        return found if isinstance(found, dict) else {}

    @cached_property
    def choices(self) -> Any:
        """Of each choice, `{index, text, finish_reason}`."""
        if not self.ok:
            return MISSING
        return [
            {"index": n, "text": text, "finish_reason": reason} for n, (text, reason) in enumerate(_texts(self.content))
        ]

    @cached_property
    def text(self) -> Any:
        """The text of the first choice."""
        return next(_texts(self.content), (MISSING, None))[0] if self.ok else MISSING

    @cached_property
    def json(self) -> Any:
        """The value of the text."""
        return _parsed(self.text) if isinstance(self.text, str) else MISSING

    @cached_property
    def usage(self) -> Any:
        """The token counts, as the engine wrote them."""
        return self.content.get("usage", MISSING) if self.ok else MISSING

    @cached_property
    def problem(self) -> str | None:
        """The validator's message about an answer that is not valid; None: it is valid, or it is no answer."""
        if not self.ok or self._schema is None:
            return None
        return _NOT_JSON if self.json is MISSING else validity.problem(self._schema, self.json)

    @property
    def valid(self) -> bool:
        """Whether it is an answer, and fits."""
        return self.ok and self.problem is None

    @property
    def error(self) -> Any:
        """What is wrong; MISSING: nothing."""
        if not self.ok:
            return self.content
        return {"code": CODE, "reason": Reason.NOT_VALID.value, "message": self.problem} if self.problem else MISSING


class Outside(Answer):
    """The answer from outside to a parked item: any JSON. A text is `text`, and `json` is the whole of it."""

    @cached_property
    def choices(self) -> Any:
        """An answer from outside is one."""
        return MISSING

    @cached_property
    def json(self) -> Any:
        """The answer."""
        return _parsed(self.body) if self.ok else MISSING

    @cached_property
    def text(self) -> Any:
        """The answer if it is a text, else as JSON."""
        if self.json is MISSING:
            return MISSING
        return self.json if isinstance(self.json, str) else self.body.decode(errors="replace")

    @cached_property
    def usage(self) -> Any:
        """There is none."""
        return MISSING


def _parsed(text: str | bytes) -> Any:
    """The value of JSON, with integers of any size; MISSING: it is none."""
    try:
        found = orjson.loads(text)
        written = text if isinstance(text, str) else text.decode()
        return json.loads(written) if _LARGE.search(written) else found
    except (ValueError, RecursionError):
        return MISSING


def _texts(answer: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The text of each choice, None if it has none, and why it ended: of a completion, a chat or a response."""
    choices = answer.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        fields = choice if isinstance(choice, dict) else {}
        message = fields.get("message")
        text = message.get("content") if isinstance(message, dict) else fields.get("text")
        yield text if isinstance(text, str) else None, fields.get("finish_reason")
    if isinstance(output := answer.get("output"), list):
        parts = [part for item in output if isinstance(item, dict) for part in _list(item.get("content"))]
        texts = [
            part["text"] for part in parts if part.get("type") == "output_text" and isinstance(part.get("text"), str)
        ]
        yield "".join(texts) if texts else None, answer.get("status")


def _list(content: Any) -> list[dict[str, Any]]:
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
