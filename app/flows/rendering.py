"""What a stage makes of an item: a request, a parked item, a copied or picked result, an error, or nothing. Pure.

`children` is for maps and fan-outs, `is_part`, `group` and `packed` are for packs.
"""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from app.flows import conditions, templates
from app.flows.answers import Answer, Outside
from app.flows.items import Asked, Child, Copied, Lineage, Parked, Refused
from app.flows.language import MISSING, Fields, Readable, resolve
from app.flows.problems import ItemError, Reason
from app.flows.stages import (
    INPUT,
    MOST_OUTSIDE_BYTES,
    MOST_PARKED,
    MOST_REQUEST_BYTES,
    Again,
    BySize,
    ByValue,
    Definition,
    External,
    Pack,
    Pick,
    Request,
    Single,
    Stage,
)
from app.flows.templates import Room, Slot, Template

_LONGEST_GROUP = 1000
_ASK_AGAIN = "Your answer is not valid: {problem}\nAnswer again, with a valid answer only."


class _Scope(Readable):
    """What a path can read: names, and the fields of the parent's answer."""

    __slots__ = ("_answer", "_own")

    def __init__(self, own: dict[str, Any], answer: Answer | None) -> None:
        self._own, self._answer = own, answer

    def get(self, name: str, default: Any = MISSING, /) -> Any:
        """The value of a root, or `default`."""
        if name in self._own:
            return self._own[name]
        return default if self._answer is None else self._answer.get(name, default)


def answer_of(flow: Definition, stage: int, *, ok: bool, body: bytes) -> Answer:
    """The stored result of an item of this stage."""
    if stage == INPUT:
        return Answer(ok=ok, body=body)
    found = flow.stage(stage)
    kind = Outside if isinstance(found.work, External) else Answer
    return kind(ok=ok, body=body, schema=found.schema)


def children(flow: Definition, stage: Stage, lineage: Lineage, *, may_run: bool = True) -> list[Child]:
    """The items that a map (at most one) or a fan-out makes of its parent's item, in the order of k. Empty: it is dropped.

    `may_run` False: the stage's share is used up, so the item is passed on.
    """
    assert stage.pack is None
    scope = _below_parent(flow, stage, lineage)
    repeats = not isinstance(stage.work, Again) or stage.work.of in lineage.requests
    if not (conditions.holds(stage.when, scope) and repeats and may_run):
        parent = lineage.answers.get(stage.parent)
        return [Copied(parent.ok, parent.body)] if stage.otherwise == "pass" and parent else []
    if stage.each is None:
        return [_child(stage, _body_scope(stage, lineage, {}), lineage)]
    try:
        elements = _elements(stage, scope)
    except ItemError as error:
        return [Refused(error.of(stage.name))]
    return [
        _child(stage, _body_scope(stage, lineage, {"each": each, "k": k}), lineage) for k, each in enumerate(elements)
    ]


def of_sample(flow: Definition, stage: Stage, lineage: Lineage) -> Fields:
    """What the body of a stage can read of a lineage that has no answers of stages yet. A fan-out has its longest element, a pack
    one part.
    """
    above, own = _below_parent(flow, stage, lineage), dict[str, Any]()
    if stage.pack:
        own = {"parts": (above,), "count": 1, "missing": 0}
    if stage.each:
        own = {"k": 0}
        with suppress(ItemError):
            slot = Slot(stage.each.path, where="each")
            own["each"] = max(
                _elements(stage, above), key=lambda each: len(templates.text_of(each, slot)), default=None
            )
    return _body_scope(stage, lineage, own)


def is_part(flow: Definition, stage: Stage, lineage: Lineage) -> bool:
    """Whether an item of the parent belongs to its pack. A pack by value leaves out what has no value."""
    scope = _below_parent(flow, stage, lineage)
    return conditions.holds(stage.when, scope) and (
        not isinstance(stage.pack, ByValue) or group(flow, stage, lineage) is not None
    )


def group(flow: Definition, stage: Stage, lineage: Lineage) -> Hashable | None:
    """The value that a pack by value groups by; None: there is none, or it is too long, or it is a list or an object."""
    assert isinstance(stage.pack, ByValue)
    value = resolve(stage.pack.path, _below_parent(flow, stage, lineage))
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_GROUP else None
    return templates.written(value).encode() if isinstance(value, (bool, int, float)) else None


def packed(
    flow: Definition, stage: Stage, parts: Sequence[Lineage], missing: int, common: Lineage | None = None
) -> Child | None:
    """The item of a pack; None: it has no part, so it never comes. `missing`: items of the parent that belong to this pack and
    are no parts, because `when` does not hold (in a pack by value: none). `common`: what all parts have one of, in a pack of a
    stage.
    """
    assert stage.pack is not None
    lineage = common or Lineage()
    if not parts:
        return None
    if error := _pack_error(stage.pack, len(parts), missing):
        return Refused(error.of(stage.name))
    of_parts = tuple(_below_parent(flow, stage, part) for part in parts)
    own = {"parts": of_parts, "count": len(parts), "missing": missing}
    return _child(stage, _body_scope(stage, lineage, own), lineage)


def _pack_error(pack: Pack, parts: int, missing: int) -> ItemError | None:
    if parts < pack.least:
        mend = "lower pack.min, or look at why items are missing"
        message = f"the pack has {parts} items and {missing} are missing; the least is {pack.least}: {mend}"
        return ItemError(Reason.TOO_FEW, message, "pack.min")
    most = pack.size if isinstance(pack, BySize) else pack.most
    if parts > most:
        return ItemError(Reason.TOO_MANY, f"the pack has {parts} items; the most is {most}: raise pack.max", "pack.max")
    return None


def timed_out(stage: str) -> ItemError:
    """The error of a parked item of this stage that nobody answered."""
    message = "nobody outside answered in time; raise timeout, or look at who answers"
    return ItemError(Reason.TIMED_OUT, message, "external.timeout").of(stage)


def no_room(stage: Stage) -> ItemError:
    """The error of an item that would have to be parked while this stage has too many."""
    message = f"{MOST_PARKED:,} items wait for answers from outside, which is the most"
    return ItemError(Reason.TOO_MANY, f"{message}: answer faster, or make several pipelines", "external").of(stage.name)


def _below_parent(flow: Definition, stage: Stage, lineage: Lineage) -> _Scope:
    """What `when`, `each` and `pack.by` read, and templates of a part."""
    return _Scope(_named(flow.below(stage.parent), lineage), lineage.answers.get(stage.parent))


def _body_scope(stage: Stage, lineage: Lineage, own: dict[str, Any]) -> _Scope:
    parent = None if stage.pack else lineage.answers.get(stage.parent)
    return _Scope(_named(stage.single, lineage) | own, parent)


def _named(single: Single, lineage: Lineage) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: lineage.answers[number] for name, number in single.names.items() if number in lineage.answers
    }
    if single.line and lineage.line is not None:
        found["item"] = lineage.line
    return found


def _elements(stage: Stage, scope: _Scope) -> Sequence[Any]:
    assert stage.each
    path, most = stage.each.path, stage.each.most
    found = resolve(path, scope)
    if found is MISSING or found is None:
        message = f"{path} is missing or null; each needs a list there. Leave such items out with when"
        raise ItemError(Reason.MISSING_VALUE, message, "each", path.column)
    if not isinstance(found, (list, tuple)):
        message = f"{path} is no list; each needs one there. Ask for one, with a schema in response_format"
        raise ItemError(Reason.NOT_VALID, message, "each", path.column)
    if len(found) > most:
        message = f"{path} has {len(found):,} elements; the most is {most:,}: raise max"
        raise ItemError(Reason.TOO_MANY, message, "each", path.column)
    return found


def _child(stage: Stage, scope: _Scope, lineage: Lineage) -> Child:
    try:
        match stage.work:
            case Request(endpoint, model, body):
                return Asked(endpoint, model, _rendered(body, scope, MOST_REQUEST_BYTES))
            case External(body, timeout):
                return Parked(_rendered(body, scope, MOST_OUTSIDE_BYTES), timeout)
            case Pick():
                return _picked(stage.work, scope, lineage)
            case Again():
                return _again(stage, stage.work, lineage)
    except ItemError as error:
        return Refused(error.of(stage.name))


def _rendered(body: Mapping[str, Any], scope: _Scope, most: int) -> dict[str, Any]:
    """The body with its values. Raises ItemError."""
    room = Room(most)
    return _checked({key: _value(each, scope, room) for key, each in body.items()}, most)


def _checked(body: dict[str, Any], most: int) -> dict[str, Any]:
    """The body, if it can be stored. Raises ItemError."""
    try:
        size = len(orjson.dumps(body))
    except TypeError:
        message = "the request cannot be written as JSON: a value is nested too deeply; insert a part of it"
        raise ItemError(Reason.NOT_VALID, message, "body") from None
    if size > most:
        message = f"the request has {size:,} bytes; the most is {most:,}: cut values with |8000"
        raise ItemError(Reason.TOO_LONG, message, "body")
    return body


def _value(value: Any, scope: _Scope, room: Room) -> Any:
    if isinstance(value, Template):
        return filled(value, scope, room)
    if isinstance(value, dict):
        return {key: _value(each, scope, room) for key, each in value.items()}
    return [_value(each, scope, room) for each in value] if isinstance(value, list) else value


def filled(template: Template, scope: Fields, room: Room) -> Any:
    """The text, or the whole JSON value of the input's line where a placeholder for it is the whole text.

    Only the input can do that, so no answer can add a message or a role.
    """
    match template.pieces:
        case (Slot(path, None) as slot,) if path.root == "item":
            value = resolve(path, scope)
            if value is not MISSING and value is not None and not isinstance(value, (str, tuple)):
                room.take(len(templates.text_of(value, slot)), slot)
                return value
    return templates.render(template, scope, room)


def _picked(pick: Pick, scope: _Scope, lineage: Lineage) -> Copied:
    """The answer of a stage with one of its choices only. Raises ItemError."""
    index, answer = resolve(pick.index, scope), lineage.answers.get(pick.of)
    if index is MISSING or index is None:
        message = (
            f"{pick.index} is missing or null; pick needs the number of a choice there. Leave such items out with when"
        )
        raise ItemError(Reason.MISSING_VALUE, message, "pick.index", pick.index.column)
    choices = answer.content.get("choices") if answer and answer.ok else None
    if not isinstance(choices, list) or not choices:
        message = "the stage to pick from has no choices for this item; leave such items out with when"
        raise ItemError(Reason.MISSING_VALUE, message, "pick.from")
    if type(index) is not int or not 0 <= index < len(choices):
        shown = str(index) if type(index) in (int, float) else "no number"  # a text may be what nobody should see
        message = f"{pick.index} is {shown}; it must be a whole number from 0 to {len(choices) - 1}"
        raise ItemError(Reason.NOT_VALID, message, "pick.index", pick.index.column)
    assert answer is not None
    return Copied(True, templates.written(answer.content | {"choices": [choices[index]]}).encode())


def _again(stage: Stage, again: Again, lineage: Lineage) -> Asked:
    """The request of another stage once more. Raises ItemError."""
    body = {key: value for key, value in lineage.requests[again.of].items() if key != "model"}
    if again.with_answer:
        answer = lineage.answers[stage.parent]
        said = answer.text if isinstance(answer.text, str) else ""
        ask = _ASK_AGAIN.format(problem=answer.problem)
        messages = body.get("messages")
        body["messages"] = [
            *(messages if isinstance(messages, list) else ()),
            {"role": "assistant", "content": said},
            {"role": "user", "content": ask},
        ]
    return Asked(again.endpoint, again.model, _checked(body, MOST_REQUEST_BYTES))
