"""What a turn's request is made of: the items of the turns before it, in the form that every engine reads. Pure.

An item is an input item of the Responses API, as a dict. Past messages of the assistant become plain text, so that the beginning
of each prompt is the same text again, and stays in the prefix cache.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.detection.shape import SHAPE
from app.policy.placeholders import Placeholders

Item = dict[str, Any]
WHOLE_TURNS = 2  # the latest ones, which no summary replaces
_CALLS = frozenset({"function_call", "custom_tool_call"})
_ANSWERS = frozenset({"function_call_output", "custom_tool_call_output"})
_ITEM_ID = re.compile("(?:msg|item)_([0-9a-f]{32})_(a?)([0-9]{1,9})")
_INTRODUCTION = "This is a summary of our conversation until now:\n\n"
_ACKNOWLEDGED = "I have read the summary and continue from there."


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A turn that has ended: what its caller sent, and the items of its answer. `prompt_tokens`: of its whole prompt."""

    n: int
    turn_id: UUID
    given: Sequence[Item]
    answer: Sequence[Item]
    prompt_tokens: int = 0


def as_items(given: str | Sequence[Item]) -> list[Item]:
    """The input of a request as items."""
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def rendered(past: Iterable[PastTurn], summary: str | None = None) -> list[Item]:
    """The items of a conversation until now. `summary`: of the turns before the first of these."""
    items: list[Item] = []
    if summary is not None:
        items += [{"role": "user", "content": _INTRODUCTION + summary}, {"role": "assistant", "content": _ACKNOWLEDGED}]
    for turn in past:
        items += map(_plain, turn.given)
        items += (_plain(item) for item in turn.answer if item.get("type") != "reasoning")
    return items


def _plain(item: Item) -> Item:
    """An item as engines read it: without its id and empty fields; a message of the assistant as text."""
    item = {name: value for name, value in item.items() if value is not None and name not in ("id", "status")}
    if item.get("role") == "assistant" and isinstance(item.get("content"), list):
        texts = (part.get("text") or part.get("refusal") or "" for part in item["content"] if isinstance(part, Mapping))
        return {"role": "assistant", "content": "".join(texts)}
    return item


def foldable(past: Sequence[PastTurn]) -> int:
    """How many of these turns a summary may replace: not the last `WHOLE_TURNS`, and no call without its answer."""
    begins = _begins(past)
    end = max(0, len(past) - WHOLE_TURNS)
    first = min(begins[end:], default=0)
    while first < end:
        end -= 1
        first = min(first, begins[end])
    return end


def _begins(past: Sequence[PastTurn]) -> list[int]:
    """For each turn the first one with a call whose last answer it has; where there is none, a number beyond all turns."""
    called: dict[str, int] = {}
    answered: dict[str, int] = {}
    for place, turn in enumerate(past):
        for item in (*turn.given, *turn.answer):
            if item.get("type") in _CALLS:
                called.setdefault(_call_id(item), place)
            elif item.get("type") in _ANSWERS:
                answered[_call_id(item)] = place
    begins = [len(past)] * len(past)
    for call_id, place in answered.items():
        begins[place] = min(begins[place], called.get(call_id, len(past)))
    return begins


def _call_id(item: Item) -> str:
    """The call that an item is, or answers. The owner of a conversation may have added any."""
    return str(item.get("call_id"))


def shown(turn: PastTurn) -> list[Item]:
    """The items of a turn, each with an id, as the API lists them."""
    given = shown_items(turn.given, turn.turn_id)
    return given + [_shown_item(item, turn.turn_id, f"a{place}") for place, item in enumerate(turn.answer)]


def shown_items(given: Iterable[Item], turn_id: UUID) -> list[Item]:
    """The items with which a turn began, each with an id."""
    return [_shown_item(item, turn_id, str(place)) for place, item in enumerate(given)]


def _shown_item(item: Item, turn_id: UUID, place: str) -> Item:
    """An item in the form of OpenAI's listings: it has an id, and text is a list of content parts. An id that it got when another
    item of its turn was deleted stays; others are its caller's own.
    """
    item = {name: value for name, value in item.items() if value is not None}
    kind, own = item.get("type", "message"), str(item.get("id"))
    mark = f"{'msg' if kind == 'message' else 'item'}_{turn_id.hex}_"
    found = {**item, "id": own if own.startswith(mark) else mark + place, "type": kind, "status": "completed"}
    if isinstance(found.get("content"), str):
        part = "output_text" if item.get("role") == "assistant" else "input_text"
        found["content"] = [{"type": part, "text": found["content"]}]
    return found


def turn_of(item_id: str) -> UUID | None:
    """The turn whose item has this id in `shown`. None: it is no id of an item."""
    found = _ITEM_ID.fullmatch(item_id)
    return UUID(found[1]) if found else None


def around(items: Sequence[Item], item_id: str) -> tuple[int, int]:
    """How many of these items of one turn are before the one with this id, which may have been deleted; how many after it.

    Raises ValueError for what is no id of an item.
    """
    place, places = _place(item_id), [_place(item["id"]) for item in items]
    return sum(each < place for each in places), sum(each > place for each in places)


def _place(item_id: str) -> tuple[bool, int]:
    """The place of an item in its turn: what was answered is behind what was given. Raises ValueError."""
    found = _ITEM_ID.fullmatch(item_id)
    if found is None:
        raise ValueError(item_id)
    return bool(found[2]), int(found[3])


def without(turn: PastTurn, place: int) -> PastTurn:
    """The turn without the item at this place of `shown`. The others keep their ids."""
    items = [item | {"id": named["id"]} for item, named in zip([*turn.given, *turn.answer], shown(turn), strict=True)]
    given, answer = items[: len(turn.given)], items[len(turn.given) :]
    (given if place < len(given) else answer).pop(place if place < len(given) else place - len(given))
    return PastTurn(turn.n, turn.turn_id, given, answer, turn.prompt_tokens)


def renamed(text: str, own: Mapping[str, str], known: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A text whose placeholders stand for `own`, with placeholders that fit to `known` too; and the values of those in the text
    and in `known`. What only looks like a placeholder gets one, where there are any.
    """
    if not own and not known:
        return text, {}
    names = Placeholders(known)
    return SHAPE.sub(lambda found: names.of_other(found[0], own), text), names.values
