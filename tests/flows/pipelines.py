"""Definitions for the tests of `app.flows`."""

from typing import Any

import orjson

from app.flows import rendering
from app.flows.definition import parse
from app.flows.items import Lineage
from app.flows.stages import Definition

Json = dict[str, Any]


def chat(content: str, **more: Any) -> Json:
    """The body of a chat with one message."""
    return {"messages": [{"role": "user", "content": content}], **more}


def stage(name: str, content: str = "Go on.", **more: Any) -> Json:
    """A stage that asks a model."""
    return {"id": name, "model": "small", "body": chat(content)} | more


def pipeline(*stages: Json, **more: Any) -> Json:
    """A definition with a file as its input."""
    return {"input": {"file_id": "file-1"}, "stages": list(stages)} | more


def flow(*stages: Json, **more: Any) -> Definition:
    """The pipeline of these stages."""
    return parse(pipeline(*stages, **more))


def completion(*texts: str, **more: Any) -> Json:
    """An engine's answer with these choices."""
    choices = [{"index": n, "message": {"role": "assistant", "content": text}} for n, text in enumerate(texts)]
    return {"choices": choices, "usage": {"prompt_tokens": 7, "completion_tokens": 2}} | more


SCHEMA: Json = {"type": "object", "properties": {"sure": {"type": "number", "maximum": 1}}, "required": ["sure"]}
FORMAT: Json = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
LINE: Json = {
    "custom_id": "a",
    "text": "Blue cheese",
    "messages": [{"role": "system", "content": "Be brief."}],
    "t": 0.5,
}


def lineage(flow: Definition, *answers: Any, line: Json | None = None, **more: Any) -> Lineage:
    """An item whose ancestors, from stage 1 on, have these answers: a text, or bytes of a whole stored answer; None: failed."""
    stored = {
        n: (answer is not None, answer if isinstance(answer, bytes) else orjson.dumps(completion(answer or "")))
        for n, answer in enumerate(answers, 1)
    }
    found = {n: rendering.answer_of(flow, n, ok=ok, body=body) for n, (ok, body) in stored.items()}
    return Lineage(LINE if line is None else line, found, **more)
