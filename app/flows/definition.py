"""Reads the definition of a pipeline. Pure.

    {"completion_window": "24h", "budget": {"usd": 20}, "input": {"file_id": "file-…"}, "stages": [
      {"id": "extract", "model": "small", "body": {"messages": [{"role": "user", "content": "{{item.text|8000}}"}]},
       "reask": 1, "escalate": {"model": "large", "when": "not valid or json.confidence < 0.7", "most": 0.2}},
      {"id": "topic", "model": "large", "pack": {"by": "json.topic", "max": 50}, "body": {…}}]}

Errors are BadInput with `param`, like `stages[1].when`. Items of the input that are sent with the definition are taken out
before it is read, and leave `{"input": {"items": true}}`.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from app.engines.requests import CHAT
from app.errors import BadInput
from app.flows.given import Given
from app.flows.stage_reader import StageReader
from app.flows.stages import MOST_STAGES, Definition, Input, Stage

MOST_BYTES = 256 * 1024
_FIELDS = ("name", "input", "stages", "completion_window", "budget", "limit")
_INPUTS = ("file_id", "items", "batch")
_LONGEST_WINDOW = 90 * 86_400.0
_LONGEST_NAME, _MOST_LINES, _MOST_USD = 100, 10_000_000, 1e9


def parse(given: Any) -> Definition:
    """The pipeline of a definition, which is JSON that was read. Raises BadInput."""
    _check_size(given, "pipeline")
    fields = Given(given, "", _FIELDS)
    source = _input(fields)
    return Definition(
        source,
        _stages(fields.value.get("stages"), StageReader(source, "stages")),
        name=fields.text("name", _LONGEST_NAME, "claims") if fields.has("name") else None,
        window=fields.seconds("completion_window", _LONGEST_WINDOW, "24h") if fields.has("completion_window") else None,
        usd=fields.inner("budget", ("usd",)).number("usd", _MOST_USD) if fields.has("budget") else None,
        limit=fields.whole("limit", 1, _MOST_LINES) if fields.has("limit") else None,
    )


def parse_then(given: Any, endpoint: str = CHAT) -> Definition:
    """The pipeline of the stages that follow a batch, in a chain; the batch is stage 0. Raises BadInput.

    They pass on what they do not run, and have no fan-out and no pack, so each line of the batch ends in a file of the last
    stage. `endpoint`: that of the batch, and of stages that name none.
    """
    _check_size(given, "then")
    source = Input()
    return Definition(source, _stages(given, StageReader(source, "then", endpoint, chained=True)))


def _check_size(given: Any, param: str) -> None:
    try:
        size = len(orjson.dumps(given))
    except TypeError:
        raise BadInput(f"{param} is nested too deeply, or it is no JSON", param=param) from None
    if size > MOST_BYTES:
        raise BadInput(f"{param} has {size:,} bytes as JSON; the most is {MOST_BYTES // 1024} KiB", param=param)


def _input(fields: Given) -> Input:
    if not fields.has("input"):
        raise fields.bad("input", 'is missing; write {"file_id": "file-…"}, {"items": […]} or {"batch": "…"}')
    given = fields.inner("input", _INPUTS)
    named = [name for name in _INPUTS if given.has(name)]
    if len(named) != 1:
        raise fields.bad("input", f"must have one of {', '.join(_INPUTS)}")
    if named == ["items"]:
        if given.value["items"] is not True:
            raise given.bad("items", 'must be a list of objects, like [{"custom_id": "1", "text": "…"}]')
        return Input(items=True)
    name = given.text(named[0], _LONGEST_NAME, "file-…")
    return Input(file_id=name) if named == ["file_id"] else Input(batch=name)


def _stages(given: Any, reader: StageReader) -> tuple[Stage, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise BadInput(f"{reader.place} must be a list of stages", param=reader.place)
    for each in given:
        reader.read(each)
    if len(reader.stages) > MOST_STAGES:
        message = f"{reader.place} has {len(reader.stages)} stages, re-asks and escalations included; the most is {MOST_STAGES}"
        raise BadInput(message, param=reader.place)
    return tuple(reader.stages)
