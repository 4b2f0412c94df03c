"""Withholds the calls of forbidden tools from answers. Pure.

A withheld call is removed, and a refusal in OpenAI's form takes its place: `refusal` of a chat's message, a part of type
`refusal` in the output of a response. `finish_reason` is `content_filter` where no call is left. Text is never a call.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import orjson

from app.policy.denials import Denial
from app.policy.tool_terms import ToolTerms

CUT = "length"  # the answer ends at its limit, whatever was withheld of it
FILTERED = "content_filter"
_MARK = b"_call"  # in the name of every field and every type of an item that has calls
_CALL = "_call"
_OF_CALLS = ("id", "type", "status", "name", "call_id", "index", "function", "custom")
_RAW = ("output_messages", "input_messages")  # of a response of vLLM: what the model wrote, calls included


class CallJudge:
    """Judges the calls in one answer. `terms`: of the requests that it may belong to, and none of them may forbid a call.
    `offered`: the tools of its request, which the rules let pass. `on_withheld`: called once for each call that is withheld.
    """

    def __init__(
        self,
        terms: Sequence[ToolTerms],
        on_withheld: Callable[[Denial], object],
        offered: Collection[str] = (),
    ) -> None:
        self._terms, self._offered, self._on_withheld = terms, offered, on_withheld

    @property
    def reads_arguments(self) -> bool:
        """Whether a call can be judged only when it is complete."""
        return any(terms.hosts is not None for terms in self._terms)

    def refusal(self, name: str, call: Mapping[str, Any], *, again: bool = False) -> str | None:
        """Why a call of this tool is withheld; None: it may pass. `call`: with all that has come of it. `again`: it was judged
        before.
        """
        found = None
        if name not in self._offered:
            found = next((denial for terms in self._terms if (denial := terms.of_call(name)) is not None), None)
        if found is None and self.reads_arguments:
            judged = ((terms, given) for given in arguments_of(call) for terms in self._terms)
            found = next((denial for terms, given in judged if (denial := terms.of_arguments(name, given))), None)
        if found is None:
            return None
        if not again:
            self._on_withheld(found)
        return found.message


def withheld_body(body: bytes, judge: CallJudge) -> bytes:
    """The JSON of an answer without the calls of forbidden tools; the same bytes where there is none."""
    if _MARK not in body:
        return body
    answer = orjson.loads(body)
    found = withheld(answer, judge)
    return body if found is answer else orjson.dumps(found)


def withheld(answer: dict[str, Any], judge: CallJudge, judged: Collection[int] = ()) -> dict[str, Any]:
    """The same for an answer; the same object where nothing is withheld. `judged`: the places in a response's output whose
    calls were withheld before, in its stream.
    """
    if isinstance(choices := answer.get("choices"), list):
        found = [_choice(choice, judge) for choice in choices]
        return answer if _same(found, choices) else {**answer, "choices": found}
    if isinstance(output := answer.get("output"), list):
        found = [response_item(item, judge, again=place in judged) for place, item in enumerate(output)]
        if not _same(found, output):
            return {name: value for name, value in answer.items() if name not in _RAW} | {"output": found}
    return answer


def offered(request: Mapping[str, Any]) -> frozenset[str]:
    """The names of the tools that a valid request offers: functions by their own, others by their type."""
    names = []
    lists = (given for field in ("tools", "functions") if isinstance(given := request.get(field), list))
    for tool in (tool for given in lists for tool in given):
        if isinstance(tool, Mapping):
            function = tool.get("function")
            owner = function if isinstance(function, Mapping) else tool
            names.append(owner.get("name") or tool.get("type"))
    return frozenset(name for name in names if isinstance(name, str))


def call_name(call: Any) -> str:
    """The name in a tool call of a chat; empty: it has none."""
    if not isinstance(call, dict):
        return ""
    for owner in (call.get("function"), call.get("custom"), call):
        if isinstance(owner, dict) and isinstance(name := owner.get("name"), str):
            return name
    return ""


def arguments_of(call: Mapping[str, Any]) -> list[Any]:
    """What a tool is called with: its arguments, its input, as a text or as a value; where it has none, as of a tool that the API
    runs, all of the call but its names.
    """
    owners = [each for each in (call.get("function"), call.get("custom"), call) if isinstance(each, Mapping)]
    given = [owner[field] for owner in owners for field in ("arguments", "input") if owner.get(field)]
    return given or [{name: value for name, value in owner.items() if name not in _OF_CALLS} for owner in owners]


def name_of_item(item: Any) -> str | None:
    """The tool that an item of a response's output calls: its name, or its kind where the API runs it. None: it is no call."""
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str) or not kind.endswith(_CALL):
        return None
    name = item.get("name")
    return name if isinstance(name, str) else "" if "name" in item else kind.removesuffix(_CALL)


def response_item(item: Any, judge: CallJudge, *, again: bool = False) -> Any:
    """An item of a response's output, or the refusal in its place."""
    name = name_of_item(item)
    if name is None or (message := judge.refusal(name, item, again=again)) is None:
        return item
    return refusal_item(item, message)


def refusal_item(item: dict[str, Any], message: str | None) -> dict[str, Any]:
    """The message that takes the place of an item. Without a text it has only begun."""
    parts = [] if message is None else [{"type": "refusal", "refusal": message}]
    status = "in_progress" if message is None else "completed"
    return {"id": item.get("id"), "type": "message", "role": "assistant", "status": status, "content": parts}


def end_of(reason: str | None, *, left: int) -> str | None:
    """The finish reason of a choice whose calls were withheld but for `left`."""
    return reason if left or reason == CUT else FILTERED


def _choice(choice: Any, judge: CallJudge) -> Any:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return choice
    kept, refusals = [], []
    for call in message.get("tool_calls") or ():
        if (refusal := judge.refusal(call_name(call), call)) is None:
            kept.append(call)
        else:
            refusals.append(refusal)
    old_form = message.get("function_call")
    if old_form and (refusal := judge.refusal(call_name(old_form), old_form)) is not None:
        refusals.append(refusal)
        old_form = None
    if not refusals:
        return choice
    own = {name: value for name, value in message.items() if name != "function_call" or old_form}
    own |= {"tool_calls": kept, "refusal": " ".join(filter(None, [message.get("refusal"), *refusals]))}
    rest = {name: value for name, value in choice.items() if name != "token_ids"}
    reason = end_of(choice.get("finish_reason"), left=len(kept) + bool(old_form))
    return {**rest, "message": own, "finish_reason": reason, "logprobs": None}


def _same(found: Sequence[Any], before: Sequence[Any]) -> bool:
    return all(one is other for one, other in zip(found, before, strict=True))
