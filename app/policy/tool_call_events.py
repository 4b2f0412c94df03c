"""Withholds the calls of forbidden tools from streams of events: chat completions and the Responses API. Pure.

A call is held back until its name is complete: until its arguments begin, another call begins, or the answer ends; where its
arguments are judged, too, until it is complete. What is forbidden is then dropped with all that follows of it, and its refusal is
sent. See `tool_calls` for the forms.
"""

from typing import Any

from app.policy import tool_calls
from app.policy.tool_calls import CallJudge

_OLD_FORM = -1  # the number of a `function_call`, of which a choice has one


class EventWithholder:
    """Withholds from the events of one answer, and of the next where an answer starts again. `judge`: of the answer."""

    def __init__(self, judge: CallJudge) -> None:
        self._judge = judge
        self._name: object = None
        self._choices: dict[int, _Choice] = {}
        self._output = _Output(judge)

    def feed(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """What can be sent now. An event without calls is sent as it is, the same object."""
        if "type" in body:
            if body["type"] == "response.created":
                self._output = _Output(self._judge)
            return self._output.feed(body)
        choices = body.get("choices")
        if not isinstance(choices, list) or not choices:
            return [body]
        if (name := body.get("id")) != self._name:
            self._name, self._choices = name, {}
        found = [self._of(choice, place).feed(choice) for place, choice in enumerate(choices)]
        if all(one is other for one, other in zip(found, choices, strict=True)):
            return [body]
        left = [choice for choice in found if choice is not None]
        return [{**body, "choices": left}] if left else []

    def _of(self, choice: dict[str, Any], place: int) -> "_Choice":
        index = place if choice.get("index") is None else choice["index"]
        if index not in self._choices:
            self._choices[index] = _Choice(self._judge)
        return self._choices[index]


class _Choice:
    """One choice of a chat. `_places`: by the index of a call, that for the caller; None: it is withheld."""

    def __init__(self, judge: CallJudge) -> None:
        self._judge = judge
        self._held: dict[int, dict[str, Any]] = {}
        self._places: dict[int, int | None] = {}
        self._refused = False

    def feed(self, choice: dict[str, Any]) -> dict[str, Any] | None:
        """The choice as it may be sent; None: nothing of it."""
        delta = choice.get("delta")
        given = delta if isinstance(delta, dict) else {}
        parts = [(part["index"], part) for part in given.get("tool_calls") or ()]
        if isinstance(old_form := given.get("function_call"), dict):
            parts.append((_OLD_FORM, {"function": old_form}))
        ends = choice.get("finish_reason") is not None
        if not parts and not self._held and None not in self._places.values():
            return _without_traces(choice, given)
        sent: list[dict[str, Any]] = []
        refusals: list[str] = []
        for number, part in parts:
            self._add(number, part, sent, refusals)
        for index in list(self._held) if ends else ():
            self._decide(index, sent, refusals)
        return self._sent(choice, given, sent, refusals, ends=ends)

    def _add(self, index: int, part: dict[str, Any], sent: list[dict[str, Any]], refusals: list[str]) -> None:
        for other in [each for each in self._held if each != index and not self._judge.reads_arguments]:
            self._decide(other, sent, refusals)
        if index in self._places:
            if (place := self._places[index]) is not None:
                sent.append(_unnamed(part) | {"index": place})
            return
        held = self._held[index] = _joined(self._held.get(index, {}), part)
        if tool_calls.call_name(held) and _has_input(held) and not self._judge.reads_arguments:
            self._decide(index, sent, refusals)

    def _decide(self, index: int, sent: list[dict[str, Any]], refusals: list[str]) -> None:
        call = self._held.pop(index)
        if (refusal := self._judge.refusal(tool_calls.call_name(call), call)) is not None:
            self._places[index] = None
            refusals.append(refusal)
            return
        if index == _OLD_FORM:
            self._places[index] = _OLD_FORM
        else:
            self._places[index] = sum(place is not None and place >= 0 for place in self._places.values())
        sent.append({**call, "index": self._places[index]})

    def _sent(
        self,
        choice: dict[str, Any],
        delta: dict[str, Any],
        sent: list[dict[str, Any]],
        refusals: list[str],
        *,
        ends: bool,
    ) -> dict[str, Any] | None:
        own = {name: value for name, value in delta.items() if name not in ("tool_calls", "function_call")}
        calls = [call for call in sent if call["index"] != _OLD_FORM]
        for old_form in (call["function"] for call in sent if call["index"] == _OLD_FORM):
            own["function_call"] = old_form
        own |= {"tool_calls": calls} if calls else {}
        if refusals:
            own["refusal"] = " ".join(([""] if self._refused else []) + refusals)
            self._refused = True
        found = {**choice, "delta": own}
        if ends and None in self._places.values():
            left = sum(place is not None for place in self._places.values())
            found["finish_reason"] = tool_calls.end_of(choice["finish_reason"], left=left)
        return _without_traces(found, own) if ends or any(own.values()) else None


class _Output:
    """The output of one response, by the places of its items."""

    def __init__(self, judge: CallJudge) -> None:
        self._judge = judge
        self._refusals: dict[int, str | None] = {}  # None: its call may pass
        self._held: dict[int, list[dict[str, Any]]] = {}

    def feed(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The events that can be sent now. There are never more than came, so that each keeps its number."""
        place, item = body.get("output_index"), body.get("item")
        if isinstance(response := body.get("response"), dict):
            judged = [place for place, refusal in self._refusals.items() if refusal is not None]
            found = tool_calls.withheld(response, self._judge, judged)
            return [body if found is response else {**body, "response": found}]
        if not isinstance(place, int):
            return [body]
        name = tool_calls.name_of_item(item)
        if name is None:
            return self._of_call(place, body) if place in self._refusals or _is_of_call(body) else [body]
        assert isinstance(item, dict)
        done = body["type"].endswith(".done")
        if not done and (not name or self._judge.reads_arguments):
            self._held[place] = [body]
            return []
        before = self._refusals.get(place)
        refusal = before or self._judge.refusal(name, item)
        self._refusals[place] = refusal
        held = self._held.pop(place, [])
        if refusal is None:
            return [*held, body]
        begun = [{**each, "item": tool_calls.refusal_item(each["item"], None)} for each in held if "item" in each]
        return [*begun, {**body, "item": tool_calls.refusal_item(item, refusal if done else None)}]

    def _of_call(self, place: int, body: dict[str, Any]) -> list[dict[str, Any]]:
        """A further event of a call, such as a part of its arguments."""
        if place not in self._refusals:
            self._held.setdefault(place, []).append(body)
            return []
        return [body] if self._refusals[place] is None else []


def _is_of_call(body: dict[str, Any]) -> bool:
    """Whether an event, which has no item, belongs to a call."""
    return "_call" in str(body["type"])


def _joined(held: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """A call with its next part. Texts of `function` and `custom` go on; other fields are what was said last."""
    found = {**held, **{name: value for name, value in part.items() if value is not None}}
    for owner in ("function", "custom"):
        if not isinstance(part.get(owner), dict):
            continue
        before = held.get(owner) or {}
        texts = {name: _followed(before.get(name), value) for name, value in part[owner].items() if value is not None}
        found[owner] = {**before, **texts}
    return found


def _followed(before: Any, value: Any) -> Any:
    """A text with what came after it; of what is no text, what came last."""
    return before + value if isinstance(before, str) and isinstance(value, str) else value


def _has_input(call: dict[str, Any]) -> bool:
    owners = (call.get("function") or {}, call.get("custom") or {})
    return any(owner.get("arguments") or owner.get("input") for owner in owners)


def _unnamed(part: dict[str, Any]) -> dict[str, Any]:
    """A later part of a call, without a name: its call was judged by the name that was sent."""
    owners = {name: part[name] for name in ("function", "custom") if isinstance(part.get(name), dict)}
    return {
        **part,
        **{name: {key: value for key, value in owner.items() if key != "name"} for name, owner in owners.items()},
    }


def _without_traces(choice: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    """The choice without tokens that its own text does not spell: they may be those of a call."""
    found = choice
    if choice.get("token_ids") and "delta" in choice:
        found = {name: value for name, value in choice.items() if name != "token_ids"}
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, dict) and isinstance(tokens := logprobs.get("content"), list):
        text = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or ""
        if "".join(str(token.get("token", "")) for token in tokens) != text:
            found = {**found, "logprobs": None}
    return found
