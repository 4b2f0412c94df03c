"""A forbidden tool's name, wherever it is cut in a stream, is never sent, nor its arguments; other calls arrive whole."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.engines.call_parts import CallIndices
from app.policy.denials import Denial
from app.policy.tool_call_events import EventWithholder
from app.policy.tool_calls import CallJudge, withheld
from app.policy.tool_terms import ToolList, ToolTerms
from tests.sets import drawn

DENY = ToolTerms(denied=ToolList("no-shell", "ops@example.com", frozenset({"shell"})))
NAMES = ("shell", "lookup", "shells", "she")
ARGUMENTS = '{"planted": "shell"}'
CUTS = st.lists(st.integers(0, 24), max_size=5)
CALLS = st.lists(st.tuples(st.sampled_from(NAMES), CUTS, CUTS), max_size=4)


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted(min(cut, len(text)) for cut in cuts)
    return [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]


def fed(bodies: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Denial]]:
    noted: list[Denial] = []
    withholder = EventWithholder(CallJudge([DENY], noted.append))
    return [event for body in bodies for event in withholder.feed(body)], noted


def chunk(delta: dict[str, Any], end: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": end, **more}]}


def of_call(index: int, name: list[str], arguments: list[str]) -> list[dict[str, Any]]:
    """The deltas of one call: its name in parts, then its arguments."""
    first = {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name[0], "arguments": ""}}
    rest = [{"index": index, "function": {"name": part}} for part in name[1:]]
    rest += [{"index": index, "function": {"arguments": part}} for part in arguments]
    return [chunk({"tool_calls": [part]}) for part in (first, *rest)]


def joined(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message and its end, as a client joins them."""
    message: dict[str, Any] = {"content": "", "refusal": "", "tool_calls": [], "end": None}
    for choice in (choice for event in events for choice in event["choices"]):
        delta = choice["delta"]
        message["content"] += delta.get("content") or ""
        message["refusal"] += delta.get("refusal") or ""
        message["end"] = choice["finish_reason"] or message["end"]
        for part in delta.get("tool_calls") or ():
            if part["index"] == len(message["tool_calls"]):  # indexes have no gap, as clients need
                message["tool_calls"].append({"id": part["id"], "name": "", "arguments": ""})
            call = message["tool_calls"][part["index"]]
            call["name"] += part["function"].get("name") or ""
            call["arguments"] += part["function"].get("arguments") or ""
    return message


@drawn(40, 400)
@given(CALLS, st.booleans())
def test_a_forbidden_call_is_never_sent_wherever_its_name_is_cut(
    calls: list[tuple[str, list[int], list[int]]], end_with_last: bool
) -> None:
    bodies = [chunk({"role": "assistant", "content": ""}), chunk({"content": "so "})]
    for index, (name, cuts, argument_cuts) in enumerate(calls):
        bodies += of_call(index, pieces(name, cuts), pieces(ARGUMENTS, argument_cuts))
    if end_with_last:
        bodies[-1]["choices"][0]["finish_reason"] = "tool_calls"
    else:
        bodies.append(chunk({}, "tool_calls"))
    events, noted = fed(bodies)
    found = joined(events)
    left = [(index, name) for index, (name, _, _) in enumerate(calls) if name != "shell"]
    assert found["content"] == "so "
    assert [(call["id"], call["name"], call["arguments"]) for call in found["tool_calls"]] == [
        (f"call_{index}", name, ARGUMENTS) for index, name in left
    ]
    assert len(noted) == len(calls) - len(left)
    assert found["refusal"].count("no-shell") == len(noted)
    assert found["end"] == ("tool_calls" if left or not noted else "content_filter")
    assert (str(events).count("planted") > 0) <= bool(left)


@drawn(20, 200)
@given(CALLS)
def test_a_stream_and_the_whole_answer_lose_the_same_calls(calls: list[tuple[str, list[int], list[int]]]) -> None:
    whole = [
        {"id": f"call_{i}", "function": {"name": name, "arguments": ARGUMENTS}} for i, (name, _, _) in enumerate(calls)
    ]
    answer = {"choices": [{"message": {"tool_calls": whole}, "finish_reason": "tool_calls"}]}
    [choice] = withheld(answer, CallJudge([DENY], id))["choices"]
    bodies = [each for i, (name, *cuts) in enumerate(calls) for each in of_call(i, pieces(name, cuts[0]), [ARGUMENTS])]
    found = joined(fed([*bodies, chunk({}, "tool_calls")])[0])
    assert [call["id"] for call in found["tool_calls"]] == [call["id"] for call in choice["message"]["tool_calls"]]
    assert (found["end"], found["refusal"]) == (choice["finish_reason"], choice["message"].get("refusal", ""))


def test_a_name_cannot_go_on_after_its_arguments_have_begun() -> None:
    parts = [{"name": "she"}, {"arguments": "{"}, {"name": "ll", "arguments": "}"}]
    events, _ = fed([chunk({"tool_calls": [{"index": 0, "id": "a", "function": part}]}) for part in parts])
    assert joined(events)["tool_calls"] == [{"id": "a", "name": "she", "arguments": "{}"}]


def test_events_without_calls_are_the_same_objects() -> None:
    bodies = [
        chunk({"content": "a"}),
        chunk({}, "stop"),
        {"id": "c", "choices": [], "usage": {}},
        {"error": {"code": 1}},
    ]
    bodies += [{"type": "response.output_text.delta", "output_index": 0, "delta": "a"}]
    assert all(one is other for one, other in zip(fed(bodies)[0], bodies, strict=True))


def test_tokens_that_the_text_does_not_spell_are_not_sent() -> None:
    spelled = {"content": [{"token": "a"}, {"token": "b"}]}
    kept, cut = fed(
        [chunk({"content": "ab"}, logprobs=spelled), chunk({"content": "a"}, logprobs=spelled, token_ids=[1])]
    )[0]
    assert kept["choices"][0]["logprobs"] == spelled
    assert (cut["choices"][0]["logprobs"], "token_ids" in cut["choices"][0]) == (None, False)


def test_the_old_form_of_a_call_is_held_back_too() -> None:
    for name, left in (("shell", False), ("lookup", True)):
        parts = [{"name": name[:2]}, {"name": name[2:]}, {"arguments": "{"}, {"arguments": "}"}]
        events, _ = fed([*(chunk({"function_call": part}) for part in parts), chunk({}, "function_call")])
        found = [choice["delta"].get("function_call") for event in events for choice in event["choices"]]
        assert "".join(part["name"] for part in found if part and "name" in part) == (name if left else "")
        assert "".join(part.get("arguments") or "" for part in found if part) == ("{}" if left else "")


def test_choices_are_judged_each_for_itself() -> None:
    one = chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "shell", "arguments": "{}"}}]})
    other = chunk({"tool_calls": [{"index": 0, "id": "b", "function": {"name": "lookup", "arguments": "{}"}}]})
    other["choices"][0]["index"] = 1
    events, _ = fed([{"id": "c", "choices": [*one["choices"], *other["choices"]]}])
    first, second = events[0]["choices"]
    assert (set(first["delta"]), set(second["delta"])) == ({"refusal"}, {"tool_calls"})


def test_an_answer_that_starts_again_is_judged_anew() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "lookup", "arguments": "{}"}}
    again = chunk({"tool_calls": [call]}) | {"id": "d"}
    events, _ = fed([chunk({"tool_calls": [{"index": 0, "function": {"name": "she"}}]}), again])
    assert joined(events)["tool_calls"] == [{"id": "a", "name": "lookup", "arguments": "{}"}]


# ── responses ────────────────────────────────────────────────────────────────────────────────────────────────


def response_events(names: list[str], *, late: bool = False) -> list[dict[str, Any]]:
    """A response that calls these tools. `late`: the name of a call is only known at its end."""
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"output": []}}]
    output = []
    for place, name in enumerate(names):
        item = {"type": "function_call", "id": f"fc_{place}", "name": name, "arguments": ARGUMENTS}
        begun = item | {"arguments": ""} | ({"name": ""} if late else {})
        kind, at = "response.function_call_arguments", {"output_index": place, "item_id": f"fc_{place}"}
        events += [
            {"type": "response.output_item.added", "output_index": place, "item": begun},
            {"type": f"{kind}.delta", **at, "delta": ARGUMENTS[:3]},
            {"type": f"{kind}.delta", **at, "delta": ARGUMENTS[3:]},
            {"type": f"{kind}.done", **at, "arguments": ARGUMENTS},
            {"type": "response.output_item.done", "output_index": place, "item": item},
        ]
        output.append(item)
    events.append({"type": "response.completed", "response": {"output": output}})
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


@drawn(20, 200)
@given(st.lists(st.sampled_from(NAMES), max_size=4), st.booleans())
def test_a_response_has_refusals_in_the_places_of_forbidden_calls(names: list[str], late: bool) -> None:
    given = response_events(names, late=late)
    events, noted = fed(given)
    assert len(noted) == names.count("shell")
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    left = [
        event for event in events if event.get("output_index") not in {i for i, n in enumerate(names) if n == "shell"}
    ]
    assert left[:-1] == [event for event in given[:-1] if event in left]
    final = events[-1]["response"]["output"]
    for place, name in enumerate(names):
        own = [event for event in events if event.get("output_index") == place]
        if name != "shell":
            assert final[place]["name"] == name
            assert own == [event for event in given if event.get("output_index") == place]
            continue
        assert final[place]["content"][0]["refusal"].endswith("Ask ops@example.com.")
        assert own[-1]["item"] == final[place]
        assert all(event["item"]["type"] == "message" for event in own)
        assert '"shell"' not in str(own)
        assert "planted" not in str(own)


def test_a_forbidden_call_without_an_index_is_no_part_of_the_one_before_it() -> None:
    for index in ({}, {"index": None}, {"index": 0}):
        bodies = [
            chunk({"tool_calls": [{"id": f"call_{name}", **index, "function": {"name": name, "arguments": "{}"}}]})
            for name in ("lookup", "shell", "she")
        ]
        indices = CallIndices()
        for body in bodies:
            indices.correct(body)
        events, noted = fed([*bodies, chunk({}, "tool_calls")])
        message = joined(events)
        assert [call["name"] for call in message["tool_calls"]] == ["lookup", "she"]
        assert len(noted) == 1
        assert "shell" not in str(message["tool_calls"])
